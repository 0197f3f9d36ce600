/*
 * lent_holder - the memory of a process that asks cubiememd for it
 *
 * One instance of the auto pool, which may be evicted while it has nothing to do. The
 * whole batch is one piece of work, so its arrays stay in place from the grant to the
 * end of its last chunk; what was taken back between two batches is asked for again by
 * the next, as it would be anyway.
 */
#include <stdio.h>

#include "holder.h"

static int complain(struct holder *holder, int status, const char *what)
{
    const struct cubiemem_error *error = cubiemem_last_error();

    snprintf(holder->why, sizeof(holder->why), "%s: %s", what,
             error->text != NULL && error->text[0] != '\0' ? error->text
                                                           : cubiemem_strerror(status));
    return -1;
}

/* The next batch asks anew in any case. */
static void taken_back(struct cubiemem_instance *instance, void *argument)
{
    (void)instance;
    (void)argument;
}

static int queue_arrays(struct holder *holder, const struct share_load *load)
{
    static const char *const labels[SHARE_ARRAYS] = {"in", "out"};
    struct cubiemem_array_request requests[SHARE_ARRAYS];
    int64_t shapes[SHARE_ARRAYS][2];

    for (int i = 0; i < SHARE_ARRAYS; i++) {
        shapes[i][0] = (int64_t)load->run_size[i];
        shapes[i][1] = (int64_t)load->runs;
        requests[i] = (struct cubiemem_array_request)CUBIEMEM_ARRAY_REQUEST_INIT;
        requests[i].label = labels[i];
        requests[i].shape = shapes[i];
        requests[i].rank = 2;
        requests[i].dtype = CUBIEMEM_UINT8;
        requests[i].chunk_axis_index = 1;
        requests[i].total_runs = (int64_t)load->runs;
    }
    return cubiemem_queue(holder->instance, requests, SHARE_ARRAYS);
}

static int read_response(const struct cubiemem_response *response, struct grant *grant_p)
{
    struct cubiemem_partition partition = {.size = sizeof(partition)};
    struct cubiemem_array in = {.size = sizeof(in)}, out = {.size = sizeof(out)};
    int status = cubiemem_response_partition(response, &partition);

    if (status == CUBIEMEM_OK) {
        status = cubiemem_response_array(response, "in", &in);
    }
    if (status == CUBIEMEM_OK) {
        status = cubiemem_response_array(response, "out", &out);
    }
    if (status == CUBIEMEM_OK) {
        *grant_p = (struct grant){
            .chunk_length = partition.chunk_length,
            .at = {(CUdeviceptr)(uintptr_t)in.pointer, (CUdeviceptr)(uintptr_t)out.pointer}};
    }
    return status;
}

static int lent_take(struct holder *holder, const struct share_load *load, struct grant *grant_p)
{
    const struct cubiemem_wait wait = {.size = sizeof(wait), .timeout_ns = holder->wait_ns};
    struct cubiemem_response *response;
    int status = queue_arrays(holder, load);

    if (status == CUBIEMEM_OK) {
        status = cubiemem_allocate(holder->instance, &wait, &response);
    }
    if (status != CUBIEMEM_OK) {
        return complain(holder, status, "allocate");
    }
    status = read_response(response, grant_p);
    cubiemem_response_free(response);
    return status == CUBIEMEM_OK ? 0 : complain(holder, status, "the response");
}

static int lent_begin(struct holder *holder)
{
    int status = cubiemem_begin_work(holder->instance);
    return status == CUBIEMEM_OK ? 0 : complain(holder, status, "begin_work");
}

static int lent_end(struct holder *holder)
{
    int status = cubiemem_end_work(holder->instance, (cubiemem_stream)holder->stream);

    if (status != CUBIEMEM_OK) {
        return complain(holder, status, "end_work");
    }
    status = cubiemem_sync(holder->instance);
    return status == CUBIEMEM_OK ? 0 : complain(holder, status, "sync");
}

static void lent_holder_close(struct holder *holder)
{
    cubiemem_close(holder->client);
    card_close(&holder->card);
}

static int enter(struct holder *holder, const struct share_task *task)
{
    const struct cubiemem_instance_options instance = {.size = sizeof(instance),
                                                       .invalidate = taken_back};
    cubiemem_stream stream;
    char name[32];

    snprintf(name, sizeof(name), "synthetic-%u", task->number + 1);
    const struct cubiemem_options options = {
        .size = sizeof(options), .socket = task->harness->socket, .name = name};
    int status = cubiemem_connect(&options, &holder->client);
    if (status != CUBIEMEM_OK) {
        return complain(holder, status, "connect");
    }
    status = cubiemem_register(holder->client, name, &instance, &holder->instance);
    if (status == CUBIEMEM_OK) {
        status = cubiemem_group_stream(holder->instance, &stream);
    }
    if (status != CUBIEMEM_OK) {
        cubiemem_close(holder->client);
        return complain(holder, status, "register");
    }
    holder->stream = (CUstream)stream;
    return 0;
}

int lent_holder_open(struct holder *holder_p, const struct share_task *task)
{
    static const struct holder_ops ops = {lent_take, lent_begin, lent_end, lent_holder_close};

    *holder_p = (struct holder){.ops = &ops, .wait_ns = task->wait_ns};
    if (enter(holder_p, task) < 0) {
        return -1;
    }
    card_open(task->harness, &holder_p->card);
    card_use(&holder_p->card); /* the same context as the library's */
    return 0;
}
