/*
 * test_marks - work marks where they are special
 *
 * A stream that is being captured; a device without 64-bit stream memory operations;
 * the per-thread default stream, one handle for as many streams as there are threads.
 * The real daemon and library on a simulated device, the client in this process.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "harness.h"
#include "measure.h"
#include "outcome.h"
#include "role.h"
#include "watch.h"

#define MIB ((uint64_t)1 << 20)
#define PER_THREAD ((cubiemem_stream)2)
#define DELAY_NS ((uint64_t)300000000)

static struct harness harness;
static struct cubiemem_client *client;
static struct cubiemem_instance *instance;

static void hook(struct cubiemem_instance *evicted, void *argument)
{
    (void)evicted;
    (void)argument;
}

static void open_client(void)
{
    const struct cubiemem_options options = {.size = sizeof(options), .name = "marks"};
    const struct cubiemem_instance_options wanted = {.size = sizeof(wanted), .invalidate = hook};
    struct cubiemem_array_request request = CUBIEMEM_ARRAY_REQUEST_INIT;
    struct cubiemem_response *response;
    const int64_t shape = (int64_t)MIB;

    client = harness_connect(&harness, &options);
    must(cubiemem_register(client, "marks", &wanted, &instance), "register");
    request.label = "a";
    request.shape = &shape;
    request.rank = 1;
    must(cubiemem_queue(instance, &request, 1), "queue");
    must(cubiemem_allocate(instance, NULL, &response), "allocate");
    cubiemem_response_free(response);
}

static uint64_t begun(void)
{
    return atomic_load(&instance->owner->words->word) & CONTROL_COUNT_MASK;
}

static bool is_idle(void)
{
    const struct control_owner *words = instance->owner->words;

    return begun() == 0 && atomic_load(&words->used) == atomic_load(&words->granted) &&
           marks_are_complete(instance->owner);
}

static void delay(cubiemem_stream stream)
{
    struct context_guard guard;

    must(context_enter(&client->context, &guard), "context");
    expect(client->context.driver.simDelay(stream, DELAY_NS) == CUDA_SUCCESS, "delay");
    context_leave(&client->context, &guard);
}

/* ------------------------------------------------------------------ stories */

static CUresult CUDAAPI captured(CUstream stream, CUstreamCaptureStatus *status_p)
{
    (void)stream;
    *status_p = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

static void a_captured_stream(int fd, const void *argument)
{
    cubiemem_stream stream;

    (void)fd;
    (void)argument;
    open_client();
    must(cubiemem_group_stream(instance, &stream), "stream");
    must(cubiemem_begin_work(instance), "begin");
    CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus *) =
        client->context.driver.cuStreamIsCapturing;
    client->context.driver.cuStreamIsCapturing = captured;
    expect(cubiemem_end_work(instance, stream) == CUBIEMEM_CAPTURING, "a capture is marked");
    expect(begun() == 1, "the work does not count as begun any more");
    client->context.driver.cuStreamIsCapturing = is_capturing;
    must(cubiemem_end_work(instance, stream), "end");
    must(cubiemem_sync(instance), "sync");
    expect(is_idle(), "the owner is not idle");
    cubiemem_close(client);
}

static void without_stream_values(int fd, const void *argument)
{
    cubiemem_stream stream;

    (void)fd;
    (void)argument;
    setenv("CUBIEMEM_SIM_FAULTS", "cuDeviceGetAttribute:*=1", 1);
    open_client();
    expect(!client->context.stream_values, "the device has stream memory operations");
    must(cubiemem_group_stream(instance, &stream), "stream");
    for (int i = 0; i < 100; i++) {
        must(cubiemem_begin_work(instance), "begin");
        must(cubiemem_end_work(instance, stream), "end");
    }
    delay(stream);
    must(cubiemem_begin_work(instance), "begin");
    must(cubiemem_end_work(instance, stream), "end");
    expect(!is_idle(), "idle while its stream works");
    uint64_t start_ns = measure_now_ns();
    must(cubiemem_sync(instance), "sync");
    expect(measure_now_ns() - start_ns > DELAY_NS / 2, "sync did not wait");
    expect(is_idle(), "the owner is not idle");
    cubiemem_close(client);
}

static void *work_a_while(void *argument)
{
    must(cubiemem_begin_work(instance), "begin");
    delay(PER_THREAD);
    must(cubiemem_end_work(instance, PER_THREAD), "end");
    return argument;
}

static void case_30_per_thread_streams(int fd, const void *argument)
{
    pthread_t thread;

    (void)fd;
    (void)argument;
    open_client();
    uint64_t start_ns = measure_now_ns();
    pthread_create(&thread, NULL, work_a_while, NULL);
    pthread_join(thread, NULL);
    must(cubiemem_begin_work(instance), "begin");
    must(cubiemem_end_work(instance, PER_THREAD), "end");
    expect(instance->owner->n_marks == 2, "two threads have %zu marks", instance->owner->n_marks);
    while (atomic_load(&instance->owner->marks[1].slot.words->completed) == 0) {
        usleep(1000);
    }
    expect(measure_now_ns() - start_ns < DELAY_NS, "one thread waited for the other's stream");
    expect(!is_idle(), "one thread's end ended the other's work");
    must(cubiemem_sync(instance), "sync");
    expect(measure_now_ns() - start_ns >= DELAY_NS, "sync did not wait for both");
    cubiemem_close(client);
}

static const struct {
    const char *name;
    role_fn *tell;
} stories[] = {
    {"a captured stream", a_captured_stream},
    {"without stream memory operations", without_stream_values},
    {"case_30: per-thread streams", case_30_per_thread_streams},
};

int main(void)
{
    harness_start("sim:64MiB", NULL, &harness);
    for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++) {
        struct role role;
        printf("%s\n", stories[i].name);
        fflush(stdout);
        role_start(&role, stories[i].name, stories[i].tell, NULL);
        role_finish(&role);
    }
    harness_stop(&harness);
    return 0;
}
