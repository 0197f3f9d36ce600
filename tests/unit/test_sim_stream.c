/* The simulated device's work: order, waiting, what a dead program's engine still
 * does, captures, and that the engine does not show. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim_world.h"
#include "stories.h"

#define MS ((uint64_t)1000000)

#define PEER_OK(call)                                                                              \
    do {                                                                                           \
        if ((call) != CUDA_SUCCESS) {                                                              \
            return 98;                                                                             \
        }                                                                                          \
    } while (0)

static CUdeviceptr memory;
static CUmemGenericAllocationHandle memory_handle;

static int setup(void **state)
{
    (void)state;
    sim_world_open("sim0", 64 * MIB);
    sim_context();
    memory_handle = sim_create(4 * MIB);
    memory = sim_map(memory_handle, 4 * MIB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sim_unmap(memory, 4 * MIB);
    CU_OK(sim.cuMemRelease(memory_handle));
    sim_context_end();
    assert_true(sim_used_becomes(0));
    sim_world_close();
    return 0;
}

static CUstream new_stream(unsigned int flags)
{
    CUstream stream;

    CU_OK(sim.cuStreamCreate(&stream, flags));
    return stream;
}

static unsigned char byte_at(size_t offset)
{
    return ((volatile unsigned char *)(uintptr_t)memory)[offset];
}

static uint64_t word_at(size_t offset)
{
    return __atomic_load_n((uint64_t *)(uintptr_t)(memory + offset), __ATOMIC_SEQ_CST);
}

/* A stream under hold() stands still until let_go(), however long its caller takes. */
#define HOLD (3 * MIB)

static void hold(CUstream stream)
{
    CU_OK(sim.cuStreamWaitValue64(stream, memory + HOLD, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static void let_go(void)
{
    __atomic_store_n((uint64_t *)(uintptr_t)(memory + HOLD), 1, __ATOMIC_SEQ_CST);
}

static bool byte_becomes(size_t offset, unsigned char value)
{
    for (unsigned int ms = 0; ms < 20000 && byte_at(offset) != value; ms += 10) {
        sleep_ms(10);
    }
    return byte_at(offset) == value;
}

static void note_byte(void *seen)
{
    *(unsigned char *)seen = byte_at(0);
}

static void test_a_stream_keeps_its_order(void **state)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    unsigned char seen[2] = {99, 99};

    (void)state;
    hold(stream);
    CU_OK(sim.cuMemsetD8Async(memory, 1, MIB, stream));
    CU_OK(sim.cuLaunchHostFunc(stream, note_byte, &seen[0]));
    CU_OK(sim.cuMemsetD8Async(memory, 2, MIB, stream));
    CU_OK(sim.cuLaunchHostFunc(stream, note_byte, &seen[1]));
    CU_OK(sim.cuMemsetD32Async(memory + 8, 0x01020304, 2, stream));
    CU_OK(sim.cuStreamWriteValue64(stream, memory, 77, 0));
    CU_OK(sim.cuMemcpyAsync(memory + 2 * MIB, memory, MIB, stream));
    assert_int_equal(sim.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    assert_int_equal(byte_at(0), 0);
    let_go();
    CU_OK(sim.cuStreamSynchronize(stream));
    CU_OK(sim.cuStreamQuery(stream));
    assert_int_equal(seen[0], 1);
    assert_int_equal(seen[1], 2);
    assert_int_equal(word_at(2 * MIB), 77);
    assert_int_equal(word_at(2 * MIB + 8), 0x0102030401020304);
    assert_int_equal(byte_at(2 * MIB + 16), 2);
    CU_OK(sim.cuStreamDestroy(stream));
}

static void test_an_event_orders_two_streams(void **state)
{
    CUstream first = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream second = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event;

    (void)state;
    CU_OK(sim.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU_OK(sim.cuEventQuery(event));
    hold(first);
    CU_OK(sim.cuMemsetD8Async(memory, 1, 4096, first));
    CU_OK(sim.cuEventRecord(event, first));
    CU_OK(sim.cuStreamWaitEvent(second, event, 0));
    CU_OK(sim.cuMemsetD8Async(memory, 2, 4096, second));
    assert_int_equal(sim.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    let_go();
    CU_OK(sim.cuEventSynchronize(event));
    CU_OK(sim.cuStreamSynchronize(second));
    assert_int_equal(byte_at(0), 2);
    CU_OK(sim.cuEventQuery(event));
    /* the event's point in time outlives the stream */
    CU_OK(sim.cuStreamDestroy(first));
    CU_OK(sim.cuEventQuery(event));
    CU_OK(sim.cuEventDestroy(event));
    assert_int_equal(sim.cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    CU_OK(sim.cuStreamDestroy(second));
}

static void test_the_legacy_stream_waits_for_blocking_streams_alone(void **state)
{
    CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    CUstream apart = new_stream(CU_STREAM_NON_BLOCKING);

    (void)state;
    hold(apart);
    CU_OK(sim.simDelay(blocking, 40 * MS));
    CU_OK(sim.cuMemsetD8Async(memory, 1, 4096, blocking));
    CU_OK(sim.cuMemsetD8Async(memory, 2, 4096, NULL));
    CU_OK(sim.cuMemsetD8Async(memory + 1, 3, 1, blocking));
    CU_OK(sim.cuStreamSynchronize(blocking));
    assert_int_equal(byte_at(0), 2);
    assert_int_equal(byte_at(1), 3);
    CU_OK(sim.cuStreamSynchronize(CU_STREAM_LEGACY));
    assert_int_equal(sim.cuStreamQuery(apart), CUDA_ERROR_NOT_READY);
    let_go();
    CU_OK(sim.cuCtxSynchronize());
    CU_OK(sim.cuStreamQuery(apart));
    CU_OK(sim.cuStreamDestroy(apart));
    CU_OK(sim.cuStreamDestroy(blocking));
}

static void *use_own_stream(void *unused)
{
    CUcontext context = unused;

    if (sim.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        sim.cuStreamQuery(CU_STREAM_PER_THREAD) != CUDA_SUCCESS) {
        return context;
    }
    return NULL;
}

static void test_each_thread_has_a_default_stream_of_its_own(void **state)
{
    CUcontext context;
    pthread_t thread;
    void *result;

    (void)state;
    CU_OK(sim.cuCtxGetCurrent(&context));
    hold(CU_STREAM_PER_THREAD);
    assert_int_equal(pthread_create(&thread, NULL, use_own_stream, context), 0);
    pthread_join(thread, &result);
    assert_null(result);
    assert_int_equal(sim.cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    let_go();
    CU_OK(sim.cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

static void test_a_full_stream_makes_its_caller_wait(void **state)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    (void)state;
    CU_OK(sim.simDelay(stream, 20 * MS));
    for (uint64_t i = 1; i <= 3000; i++) {
        CU_OK(sim.cuStreamWriteValue64(stream, memory, i, 0));
    }
    CU_OK(sim.cuStreamSynchronize(stream));
    assert_int_equal(word_at(0), 3000);
    CU_OK(sim.cuStreamDestroy(stream));
}

static void test_a_plain_store_releases_a_waiting_stream(void **state)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    (void)state;
    CU_OK(sim.cuStreamWaitValue64(stream, memory, 5, CU_STREAM_WAIT_VALUE_GEQ));
    CU_OK(sim.cuMemsetD8Async(memory + 8, 1, 1, stream));
    sleep_ms(20);
    assert_int_equal(sim.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    __atomic_store_n((uint64_t *)(uintptr_t)memory, 6, __ATOMIC_SEQ_CST);
    CU_OK(sim.cuStreamSynchronize(stream));
    assert_int_equal(byte_at(8), 1);
    CU_OK(sim.cuStreamDestroy(stream));
}

static void test_registered_host_memory_is_written_in_order(void **state)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    int fd = memfd_create("page", MFD_CLOEXEC);
    CUdeviceptr device;
    uint64_t *page;

    (void)state;
    assert_int_equal(ftruncate(fd, 4096), 0);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_int_equal(sim.cuStreamWriteValue64(stream, (uintptr_t)page, 1, 0),
                     CUDA_ERROR_INVALID_VALUE);
    CU_OK(sim.cuMemHostRegister(page, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    assert_int_equal(sim.cuMemHostRegister(page, 4096, 0),
                     CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CU_OK(sim.cuMemHostGetDevicePointer(&device, page, 0));
    assert_int_equal(device, (uintptr_t)page);
    hold(stream);
    CU_OK(sim.cuStreamWriteValue64(stream, device, 8, 0));
    assert_int_equal(__atomic_load_n(page, __ATOMIC_SEQ_CST), 0);
    let_go();
    CU_OK(sim.cuStreamSynchronize(stream));
    assert_int_equal(__atomic_load_n(page, __ATOMIC_SEQ_CST), 8);
    CU_OK(sim.cuStreamWaitValue64(stream, device + 8, 1, CU_STREAM_WAIT_VALUE_EQ));
    sleep_ms(10);
    assert_int_equal(sim.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    __atomic_store_n(page + 1, 1, __ATOMIC_SEQ_CST);
    CU_OK(sim.cuStreamSynchronize(stream));
    CU_OK(sim.cuMemHostUnregister(page));
    assert_int_equal(sim.cuMemHostUnregister(page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    munmap(page, 4096);
    close(fd);
    CU_OK(sim.cuStreamDestroy(stream));
}

static void test_copies_cross_between_host_and_device(void **state)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    char out[] = "from the host";
    char back[sizeof(out)] = "";

    (void)state;
    CU_OK(sim.cuMemcpyHtoD(memory, out, sizeof(out)));
    CU_OK(sim.cuMemcpyDtoH(back, memory, sizeof(back)));
    assert_string_equal(back, out);
    memset(back, 0, sizeof(back));
    CU_OK(sim.cuMemcpyAsync(memory + MIB, memory, sizeof(out), stream));
    CU_OK(sim.cuMemcpyDtoHAsync(back, memory + MIB, sizeof(back), stream));
    CU_OK(sim.cuStreamSynchronize(stream));
    assert_string_equal(back, out);
    CU_OK(sim.cuMemcpyHtoDAsync(memory, "x", 1, stream));
    CU_OK(sim.cuStreamSynchronize(stream));
    assert_int_equal(byte_at(0), 'x');
    CU_OK(sim.cuStreamDestroy(stream));
}

/* --- the dead --- */

#define WRITERS_OWN (2 * MIB)

/* Maps what it is given and queues a write of it, behind the word that lets it go. What it
 * makes itself shows how long its engine lives. */
static int run_writer(int fd)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CUstream stream;
    int passed;

    sim_context();
    if (peer_hear(fd, &passed) != 'w') {
        return 1;
    }
    handle = sim_import(passed);
    address = sim_map(handle, 4 * MIB);
    sim_create(WRITERS_OWN);
    PEER_OK(sim.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    PEER_OK(sim.cuStreamWaitValue64(stream, address + HOLD, 1, CU_STREAM_WAIT_VALUE_GEQ));
    PEER_OK(sim.cuMemsetD8Async(address, 0x5a, 4 * MIB, stream));
    if (getenv("WITH_CHILD") && fork() == 0) {
        alarm(PEER_LIFE_S);
        peer_say(fd, 'q', -1);
        peer_hear(fd, NULL);
        _exit(0);
    }
    if (!getenv("WITH_CHILD")) {
        peer_say(fd, 'q', -1);
    }
    pause();
    return 0;
}

static struct peer start_writer(const char *setting)
{
    struct peer writer = peer_start("writer", setting);
    int fd = sim_export(memory_handle);

    peer_say(writer.fd, 'w', fd);
    close(fd);
    assert_int_equal(peer_hear(writer.fd, NULL), 'q');
    return writer;
}

static void test_a_killed_writers_late_write_lands(void **state)
{
    struct peer writer = start_writer("CUBIEMEM_SIM_FAULTS=linger@60s");

    (void)state;
    peer_kill(&writer);
    assert_int_equal(byte_at(4 * MIB - 1), 0);
    let_go();
    assert_true(byte_becomes(4 * MIB - 1, 0x5a));
}

static void test_a_writers_work_ends_with_its_family(void **state)
{
    struct peer writer = start_writer("CUBIEMEM_SIM_FAULTS=linger@20ms");

    (void)state;
    peer_kill(&writer);
    assert_true(sim_used_becomes(4));
    let_go();
    sleep_ms(50);
    assert_int_equal(byte_at(0), 0);
}

static void test_a_writers_work_goes_on_while_its_child_lives(void **state)
{
    struct peer writer;
    int talk;

    (void)state;
    setenv("WITH_CHILD", "1", 1);
    writer = start_writer("CUBIEMEM_SIM_FAULTS=linger@0ms");
    unsetenv("WITH_CHILD");
    talk = dup(writer.fd);
    peer_kill(&writer);
    sleep_ms(50);
    assert_int_equal(sim_used(), 6);
    let_go();
    assert_true(byte_becomes(4 * MIB - 1, 0x5a));
    peer_say(talk, 'e', -1);
    close(talk);
}

/* --- the engine --- */

static int (*engine_pid)(void);

static int n_children;

static void count_child(int signal_number)
{
    (void)signal_number;
    n_children++;
}

static void test_the_engine_does_not_show(void **state)
{
    int pid;

    (void)state;
    *(void **)&engine_pid = sim_symbol("cubiemem_sim_engine_pid");
    sim_unmap(memory, 4 * MIB);
    sim_context_end();
    n_children = 0;
    signal(SIGCHLD, count_child);
    sim_context();
    pid = engine_pid();
    assert_true(pid > 0);
    assert_int_equal(kill(pid, 0), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    sim_context_end();
    assert_int_equal(n_children, 0);
    signal(SIGCHLD, SIG_DFL);
    sim_context();
    assert_int_not_equal(engine_pid(), pid);
    memory = sim_map(memory_handle, 4 * MIB);
}

static void test_a_killed_engine_is_an_error_and_no_hang(void **state)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    (void)state;
    *(void **)&engine_pid = sim_symbol("cubiemem_sim_engine_pid");
    CU_OK(sim.simDelay(stream, 10000 * MS));
    kill(engine_pid(), SIGKILL);
    assert_int_equal(sim.cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    CU_OK(sim.cuStreamDestroy(stream));
}

static void test_a_context_does_not_wait_for_its_streams(void **state)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event;

    (void)state;
    CU_OK(sim.cuEventCreate(&event, 0));
    CU_OK(sim.simDelay(stream, 10000 * MS));
    CU_OK(sim.cuEventRecord(event, stream));
    sim_context_end();
    assert_int_equal(sim.cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(sim.cuEventQuery(event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CU_OK(sim.cuEventDestroy(event));
    sim_context();
    /* what was mapped is known to the new engine */
    CU_OK(sim.cuMemsetD8(memory, 4, 4 * MIB));
    assert_int_equal(byte_at(4 * MIB - 1), 4);
}

static void test_work_on_unmapped_memory_fails_the_context(void **state)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUmemGenericAllocationHandle handle = sim_create(2 * MIB);
    CUdeviceptr address = sim_map(handle, 2 * MIB);

    (void)state;
    hold(stream);
    CU_OK(sim.cuMemsetD8Async(address, 1, 2 * MIB, stream));
    sim_unmap(address, 2 * MIB);
    CU_OK(sim.cuMemRelease(handle));
    assert_int_equal(sim_used(), 4);
    let_go();
    assert_int_equal(sim.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(sim.cuMemsetD8Async(memory, 1, 1, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    CU_OK(sim.cuStreamDestroy(stream));
}

/* --- captures --- */

static void test_a_captured_operation_does_not_run(void **state)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;

    (void)state;
    CU_OK(sim.cuStreamIsCapturing(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    CU_OK(sim.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_OK(sim.cuStreamIsCapturing(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CU_OK(sim.cuMemsetD8Async(memory, 1, 4096, stream));
    CU_OK(sim.cuStreamWriteValue64(stream, memory, 3, 0));
    CU_OK(sim.cuStreamEndCapture(stream, &graph));
    assert_non_null(graph);
    CU_OK(sim.cuStreamSynchronize(stream));
    assert_int_equal(word_at(0), 0);
    assert_int_equal(sim.cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CU_OK(sim.cuStreamDestroy(stream));
}

static void test_unsafe_calls_break_a_capture_unless_relaxed(void **state)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr address;
    CUgraph graph;

    (void)state;
    CU_OK(sim.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_OK(sim.cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CU_OK(sim.cuMemAlloc(&address, 4096));
    CU_OK(sim.cuMemFree(address));
    CU_OK(sim.cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    CU_OK(sim.cuStreamEndCapture(stream, &graph));

    CU_OK(sim.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(sim.cuMemAlloc(&address, 4096), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(sim.cuStreamEndCapture(stream, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    CU_OK(sim.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_OK(sim.cuMemAlloc(&address, 4096));
    CU_OK(sim.cuMemFree(address));
    assert_int_equal(sim.cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(sim.cuStreamEndCapture(stream, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CU_OK(sim.cuStreamDestroy(stream));
}

static void test_a_capture_spreads_by_events(void **state)
{
    CUstream origin = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureStatus status;
    CUevent event;
    CUgraph graph;

    (void)state;
    CU_OK(sim.cuEventCreate(&event, 0));
    CU_OK(sim.cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_OK(sim.cuEventRecord(event, origin));
    CU_OK(sim.cuStreamWaitEvent(other, event, 0));
    CU_OK(sim.cuStreamIsCapturing(other, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CU_OK(sim.cuStreamEndCapture(origin, &graph));
    CU_OK(sim.cuStreamIsCapturing(other, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(sim.cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    CU_OK(sim.cuEventDestroy(event));
    CU_OK(sim.cuStreamDestroy(other));
    CU_OK(sim.cuStreamDestroy(origin));
}

int main(int argc, char **argv)
{
    static const struct peer_role roles[] = {{"writer", run_writer}};
    const struct CMUnitTest tests[] = {
#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        STORY(test_a_stream_keeps_its_order),
        STORY(test_an_event_orders_two_streams),
        STORY(test_the_legacy_stream_waits_for_blocking_streams_alone),
        STORY(test_each_thread_has_a_default_stream_of_its_own),
        STORY(test_a_full_stream_makes_its_caller_wait),
        STORY(test_a_plain_store_releases_a_waiting_stream),
        STORY(test_registered_host_memory_is_written_in_order),
        STORY(test_copies_cross_between_host_and_device),
        STORY(test_a_killed_writers_late_write_lands),
        STORY(test_a_writers_work_ends_with_its_family),
        STORY(test_a_writers_work_goes_on_while_its_child_lives),
        STORY(test_the_engine_does_not_show),
        STORY(test_a_killed_engine_is_an_error_and_no_hang),
        STORY(test_a_context_does_not_wait_for_its_streams),
        STORY(test_work_on_unmapped_memory_fails_the_context),
        STORY(test_a_captured_operation_does_not_run),
        STORY(test_unsafe_calls_break_a_capture_unless_relaxed),
        STORY(test_a_capture_spreads_by_events),
#undef STORY
    };
    int status = peer_main(argc, argv, roles, sizeof(roles) / sizeof(roles[0]));

    return status >= 0 ? status
                       : stories_run(tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
