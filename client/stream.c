/*
 * stream - the groups' streams, and host functions in stream order
 *
 * One non-blocking stream for each group of this process, made when somebody
 * first asks and kept until close.
 */
#include "client.h"
#include "failure.h"
#include "registry.h"

static int make_stream(struct cubiemem_client *client, struct group *group)
{
    struct context_guard guard;
    int status = context_enter(&client->context, &guard);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    CUresult result = client->context.driver.cuStreamCreate(&group->stream,
                                                            CU_STREAM_NON_BLOCKING);
    context_leave(&client->context, &guard);
    if (result != CUDA_SUCCESS) {
        group->stream = NULL;
        return failure_cuda(&client->context.driver, result, "cannot make the stream of group %s",
                            group->name);
    }
    return CUBIEMEM_OK;
}

int cubiemem_group_stream(struct cubiemem_instance *instance, cubiemem_stream *stream_p)
{
    int status = instance_check(instance, CLIENT_QUICK);
    if (status == CUBIEMEM_OK && stream_p == NULL) {
        status = failure_set(CUBIEMEM_INVALID_REQUEST, "nowhere to put the stream");
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    pthread_mutex_lock(&instance->client->books);
    struct group *group = instance->group;
    if (group->stream == NULL) {
        status = make_stream(instance->client, group);
    }
    if (status == CUBIEMEM_OK) {
        *stream_p = group->stream;
    }
    pthread_mutex_unlock(&instance->client->books);
    return status;
}

struct host_call {
    CUstream stream;
    CUhostFn fn;
    void *arg;
};

static int launch(struct context *context, void *arg)
{
    const struct host_call *call = arg;
    struct context_guard guard;
    int status = context_push(context, &guard);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    CUresult result = context->driver.cuLaunchHostFunc(call->stream, call->fn, call->arg);
    context_pop(context, &guard);
    return result == CUDA_SUCCESS
               ? CUBIEMEM_OK
               : failure_cuda(&context->driver, result, "cannot put a host function in a stream");
}

int cubiemem_stream_host_fn(cubiemem_stream stream, void (*fn)(void *), void *arg)
{
    struct host_call call = {.stream = stream, .fn = fn, .arg = arg};
    if (fn == NULL) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "no host function");
    }
    return registry_with_context(stream, launch, &call);
}
