/*
 * The library's memory on the simulated device, lent by a scripted daemon:
 * grants, replacements, failures half-way, work marks, eviction.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cubiemem.h"
#include "fake_daemon.h"
#include "sim.h"
#include "sim_env.h"
#include "stories.h"

#define MIB (1ull << 20)

static struct driver driver;
static char run_dir[64];
static struct fake_daemon fake;
static struct cubiemem_client *client;
static struct cubiemem_instance *instance;
static char why[256];

/* The simulated driver's own functions. */
static int (*set_faults)(const char *faults, char *why_, size_t size);
static uint64_t (*n_calls)(const char *symbol);

static int n_open_fds(void)
{
    int n = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory) != NULL) {
        n++;
    }
    closedir(directory);
    return n;
}

static unsigned n_hooks;
static int hook_status;
static void hook(struct cubiemem_instance *evicted, void *arg)
{
    uint64_t free_, total;
    (void)arg;
    n_hooks++;
    hook_status = cubiemem_memory_info(evicted, &free_, &total);
}

static void open_all(bool with_hook)
{
    struct cubiemem_options options = {.size = sizeof options, .socket = fake.path,
                                       .timeout_ns = PATIENCE_NS};
    struct cubiemem_instance_options of_instance = {.size = sizeof of_instance,
                                                    .invalidate = with_hook ? hook : NULL};
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_OK);
    assert_int_equal(cubiemem_register(client, "solver", &of_instance, &instance), CUBIEMEM_OK);
}

static int start(void **state)
{
    CUuuid uuid;
    CUdevice device;
    (void)state;
    n_hooks = 0;
    fake_daemon_start(&fake, &driver, NULL, NULL);
    assert_int_equal(driver.cuDeviceGet(&device, 0), CUDA_SUCCESS);
    assert_int_equal(driver.cuDeviceGetUuid(&uuid, device), CUDA_SUCCESS);
    uuid_format(&uuid, fake.uuid);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    set_faults(NULL, why, sizeof why);
    cubiemem_close(client);
    client = NULL;
    fake_daemon_stop(&fake);
    return 0;
}

/* An array of so many MiB, of bytes. */
static struct cubiemem_array_request array_of(const char *label, int64_t *mib)
{
    struct cubiemem_array_request request = CUBIEMEM_ARRAY_REQUEST_INIT;
    request.label = label;
    request.shape = mib;
    request.rank = 1;
    request.dtype = CUBIEMEM_UINT8;
    *mib *= (int64_t)MIB;
    return request;
}

static int allocate(const char *const *labels, const int64_t *mibs, size_t n)
{
    struct cubiemem_array_request requests[16];
    int64_t shapes[16];
    struct cubiemem_response *response = NULL;
    for (size_t i = 0; i < n; i++) {
        shapes[i] = mibs[i];
        requests[i] = array_of(labels[i], &shapes[i]);
    }
    int status = cubiemem_queue(instance, requests, n);
    if (status == CUBIEMEM_OK) {
        status = cubiemem_allocate(instance, NULL, &response);
    }
    cubiemem_response_free(response);
    return status;
}

static const char *const six[] = {"a", "b", "c", "d", "e", "f"};
static const int64_t two_each[] = {2, 2, 2, 2, 2, 2};

/* -------------------------------------------------------------- grants */

static void write_and_check(const struct cubiemem_array *array, unsigned char value)
{
    unsigned char seen = 0;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)array->pointer;
    CUcontext context;
    assert_int_equal(driver.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(driver.cuCtxPushCurrent(context), CUDA_SUCCESS);
    assert_int_equal(driver.cuMemsetD8(at, value, array->nbytes), CUDA_SUCCESS);
    assert_int_equal(driver.cuMemcpyDtoH(&seen, at + array->nbytes - 1, 1), CUDA_SUCCESS);
    assert_int_equal(driver.cuCtxPopCurrent(&context), CUDA_SUCCESS);
    driver.cuDevicePrimaryCtxRelease(0);
    assert_int_equal(seen, value);
}

static void test_six_arrays_again_without_driver_calls(void **state)
{
    (void)state;
    struct cubiemem_array_request requests[6];
    int64_t shapes[6];
    struct cubiemem_response *response = NULL;
    struct cubiemem_array array = {.size = sizeof array}, again = {.size = sizeof again};
    struct cubiemem_partition partition = {.size = sizeof partition};
    open_all(false);
    assert_int_equal(fake.n_contexts, 1);
    assert_int_equal(fake.n_acks, 1); /* of the control page */
    for (size_t i = 0; i < 6; i++) {
        shapes[i] = 2;
        requests[i] = array_of(six[i], &shapes[i]);
    }
    assert_int_equal(cubiemem_queue(instance, requests, 6), CUBIEMEM_OK);
    assert_int_equal(cubiemem_allocate(instance, NULL, &response), CUBIEMEM_OK);
    assert_int_equal(cubiemem_response_array(response, "c", &array), CUBIEMEM_OK);
    assert_int_equal(cubiemem_response_array(response, "x", &again), CUBIEMEM_NOT_FOUND);
    assert_int_equal(cubiemem_response_partition(response, &partition), CUBIEMEM_OK);
    assert_int_equal(array.nbytes, 2 * MIB);
    assert_int_equal(array.rank, 1);
    write_and_check(&array, 7);
    cubiemem_response_free(response);

    uint64_t calls = n_calls(NULL);
    assert_int_equal(cubiemem_queue(instance, requests, 6), CUBIEMEM_OK);
    assert_int_equal(cubiemem_allocate(instance, NULL, &response), CUBIEMEM_OK);
    assert_int_equal(n_calls(NULL), calls);
    assert_int_equal(cubiemem_response_array(response, "c", &again), CUBIEMEM_OK);
    assert_ptr_equal(again.pointer, array.pointer);
    cubiemem_response_free(response);
    assert_int_equal(fake.n_give_backs, 0);
    assert_int_equal(fake.n_acks, 2); /* the second grant had no descriptors */
}

static void test_replace_with_other_shapes(void **state)
{
    (void)state;
    open_all(false);
    assert_int_equal(allocate(six, two_each, 6), CUBIEMEM_OK);
    const int64_t others[] = {4, 2, 4};
    assert_int_equal(allocate(six, others, 3), CUBIEMEM_OK);
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    assert_int_equal(fake.n_given, 2);
    assert_int_equal(cubiemem_release(instance, six, 6), CUBIEMEM_OK);
    assert_int_equal(cubiemem_release(instance, six, 6), CUBIEMEM_OK); /* not held is fine */
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    assert_int_equal(fake.n_releases, 2);
}

/* Grants, replaces and releases for long: descriptors and addresses come back. */
static void test_cycles_leak_nothing(void **state)
{
    (void)state;
    open_all(false);
    assert_int_equal(allocate(six, two_each, 6), CUBIEMEM_OK);
    assert_int_equal(cubiemem_release(instance, NULL, 0), CUBIEMEM_OK);
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    uint64_t reserved = n_calls("cuMemAddressReserve") - n_calls("cuMemAddressFree");
    /* A segment of the fake costs the simulated driver what it costs; the
     * library's import of it must come back. */
    uint64_t kept = n_calls("cuMemImportFromShareableHandle") - n_calls("cuMemRelease");
    int before = n_open_fds() - (int)fake.n_segments;
    for (int i = 0; i < 10; i++) {
        const int64_t sizes[] = {2 + 2 * (i % 2), 2};
        assert_int_equal(allocate(six, sizes, 2), CUBIEMEM_OK);
    }
    assert_int_equal(cubiemem_release(instance, NULL, 0), CUBIEMEM_OK);
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    assert_int_equal(n_calls("cuMemAddressReserve") - n_calls("cuMemAddressFree"), reserved);
    assert_int_equal(n_calls("cuMemImportFromShareableHandle") - n_calls("cuMemRelease"), kept);
    assert_int_equal(n_open_fds() - (int)fake.n_segments, before);
}

static void test_pinned_and_empty(void **state)
{
    (void)state;
    struct cubiemem_response *response = NULL;
    struct cubiemem_array array = {.size = sizeof array};
    int64_t shape = 1, none = 0;
    open_all(false);
    struct cubiemem_array_request requests[] = {array_of("host", &shape), array_of("none", &none)};
    requests[0].memory = CUBIEMEM_PINNED;
    assert_int_equal(cubiemem_queue(instance, requests, 2), CUBIEMEM_OK);
    assert_int_equal(cubiemem_allocate(instance, NULL, &response), CUBIEMEM_OK);
    assert_int_equal(cubiemem_response_array(response, "host", &array), CUBIEMEM_OK);
    assert_non_null(array.pointer);
    memset(array.pointer, 1, array.nbytes);
    assert_int_equal(cubiemem_response_array(response, "none", &array), CUBIEMEM_OK);
    assert_null(array.pointer);
    cubiemem_response_free(response);
    /* The nth registration fails: it is host memory that is short, it says. */
    assert_int_equal(cubiemem_release(instance, NULL, 0), CUBIEMEM_OK);
    set_faults("cuMemHostRegister:1=2", why, sizeof why);
    assert_int_equal(cubiemem_queue(instance, requests, 1), CUBIEMEM_OK);
    assert_int_equal(cubiemem_allocate(instance, NULL, &response), CUBIEMEM_HOST_MEMORY);
    assert_non_null(strstr(cubiemem_last_error()->text, "host memory"));
    set_faults(NULL, why, sizeof why);
    assert_int_equal(cubiemem_queue(instance, requests, 1), CUBIEMEM_OK);
    assert_int_equal(cubiemem_allocate(instance, NULL, &response), CUBIEMEM_OK);
    cubiemem_response_free(response);
}

static void test_refusal_changes_nothing(void **state)
{
    (void)state;
    struct cubiemem_response *response = (void *)1;
    open_all(false);
    fake.refuse = CUBIEMEM_NO_MEMORY;
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_NO_MEMORY);
    assert_string_equal(cubiemem_last_error()->text, "allocate: the fake refuses");
    fake.refuse = 0;
    /* The queue is kept: the same batch again. */
    response = NULL;
    assert_int_equal(cubiemem_allocate(instance, NULL, &response), CUBIEMEM_OK);
    struct cubiemem_array array = {.size = sizeof array};
    assert_int_equal(cubiemem_response_array(response, "b", &array), CUBIEMEM_OK);
    cubiemem_response_free(response);
}

/* -------------------------------------------------- failures half-way */

static void test_lost_descriptors(void **state)
{
    (void)state;
    open_all(false);
    fake.lose_fds = true;
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_NO_FDS);
    fake.lose_fds = false;
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    assert_int_equal(fake.n_releases, 1);
    assert_int_equal(allocate(six, two_each, 6), CUBIEMEM_OK);
}

/* Each driver call on the way fails once: the arrays are released, nothing
 * stays mapped, and the same batch works afterwards. */
static void test_every_call_fails_once(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuMemImportFromShareableHandle", "cuMemAddressReserve",
                                        "cuMemMap", "cuMemSetAccess"};
    open_all(false);
    for (size_t i = 0; i < 4; i++) {
        for (int k = 1; k <= 3; k++) {
            char fault[64];
            snprintf(fault, sizeof fault, "%s:%d=2", calls[i], k);
            unsigned released = fake.n_releases;
            set_faults(fault, why, sizeof why);
            assert_int_equal(allocate(six, two_each, 3), CUBIEMEM_CUDA);
            assert_int_equal(cubiemem_last_error()->cu_result, 2);
            set_faults(NULL, why, sizeof why);
            assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
            assert_int_equal(fake.n_releases, released + 1);
            for (size_t j = 0; j < fake.n_segments; j++) {
                fake.segments[j].live = false;
            }
        }
    }
    assert_int_equal(n_calls("cuMemAddressReserve") > 0, 1);
    assert_int_equal(allocate(six, two_each, 3), CUBIEMEM_OK);
}

static void *vanish_soon(void *arg)
{
    (void)arg;
    usleep(100000);
    fake_daemon_hang_up(&fake);
    return NULL;
}

static bool swallow_allocate(struct fake_daemon *daemon, const Cubiemem__ClientMessage *message)
{
    (void)daemon;
    return message->allocate != NULL;
}

static void test_daemon_vanishes_in_allocate(void **state)
{
    (void)state;
    pthread_t thread;
    struct cubiemem_response *response = NULL;
    open_all(true);
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_OK);
    fake.handler = swallow_allocate;
    pthread_create(&thread, NULL, vanish_soon, NULL);
    assert_int_equal(cubiemem_allocate(instance, NULL, &response), CUBIEMEM_DISCONNECTED);
    pthread_join(thread, NULL);
    /* What is held stays usable. */
    assert_int_equal(cubiemem_begin_work(instance), CUBIEMEM_OK);
    assert_int_equal(cubiemem_end_work(instance, NULL), CUBIEMEM_OK);
    assert_int_equal(cubiemem_sync(instance), CUBIEMEM_OK);
}

/* --------------------------------------------------------------- input */

static void test_bad_input(void **state)
{
    (void)state;
    char label[300];
    int64_t shape = 1, huge[] = {INT64_MAX / 4}, wraps[] = {2, 13, 419, 691, 823, 2977518503};
    struct cubiemem_instance *other = NULL;
    struct cubiemem_instance_options options = {.size = sizeof options, .manual = 1};
    struct cubiemem_array_request request = array_of("x", &shape);
    open_all(false);
    memset(label, 'x', sizeof label);
    label[256] = '\0';
    const double bad[] = {NAN, INFINITY, -INFINITY, -0.5, 1.5};
    for (size_t i = 0; i < 5; i++) {
        options.proportion = bad[i];
        assert_int_equal(cubiemem_register(client, "y", &options, &other),
                         CUBIEMEM_BAD_PROPORTION);
        assert_int_equal(cubiemem_set_proportion(instance, bad[i]), CUBIEMEM_BAD_PROPORTION);
    }
    assert_int_equal(cubiemem_register(client, "", NULL, &other), CUBIEMEM_INVALID_REQUEST);
    assert_int_equal(cubiemem_register(client, label, NULL, &other), CUBIEMEM_INVALID_REQUEST);
    assert_int_equal(cubiemem_change_group(instance, label, 0), CUBIEMEM_INVALID_REQUEST);
    request.label = label;
    assert_int_equal(cubiemem_queue(instance, &request, 1), CUBIEMEM_INVALID_REQUEST);
    request.label = "";
    assert_int_equal(cubiemem_queue(instance, &request, 1), CUBIEMEM_INVALID_REQUEST);
    request.label = "x";
    request.dtype = 99;
    assert_int_equal(cubiemem_queue(instance, &request, 1), CUBIEMEM_INVALID_REQUEST);
    request.dtype = CUBIEMEM_FLOAT64;
    request.rank = 33;
    assert_int_equal(cubiemem_queue(instance, &request, 1), CUBIEMEM_INVALID_REQUEST);
    request.rank = 1;
    request.shape = huge;
    assert_int_equal(cubiemem_queue(instance, &request, 1), CUBIEMEM_TOO_LARGE);
    request.dtype = CUBIEMEM_UINT8;
    request.rank = 6;
    request.shape = wraps;
    assert_int_equal(cubiemem_queue(instance, &request, 1), CUBIEMEM_TOO_LARGE);
    struct cubiemem_array_request twins[] = {array_of("x", &shape), array_of("x", &shape)};
    assert_int_equal(cubiemem_queue(instance, twins, 2), CUBIEMEM_INVALID_REQUEST);
    struct cubiemem_ipc_handle handle = {.size = sizeof handle};
    assert_int_equal(cubiemem_export_legacy(instance, "x", &handle), CUBIEMEM_NOT_FOUND);
    assert_int_equal(allocate(six, two_each, 1), CUBIEMEM_OK);
    assert_int_equal(cubiemem_export_legacy(instance, "a", &handle), CUBIEMEM_HANDLE_KIND);
}

/* ---------------------------------------------------------------- work */

static void test_marks_nest(void **state)
{
    (void)state;
    cubiemem_stream stream = NULL;
    open_all(true);
    struct control_owner *words = &fake.page[1].owner;
    assert_int_equal(cubiemem_end_work(instance, NULL), CUBIEMEM_INVALID_REQUEST);
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_OK);
    assert_int_equal(cubiemem_group_stream(instance, &stream), CUBIEMEM_OK);
    assert_non_null(stream);
    assert_int_equal(cubiemem_begin_work(instance), CUBIEMEM_OK);
    assert_int_equal(cubiemem_begin_work(instance), CUBIEMEM_OK);
    assert_int_equal(atomic_load(&words->word), 2);
    assert_true(atomic_load(&words->last_begin_ns) > 0);
    assert_int_equal(cubiemem_end_work(instance, stream), CUBIEMEM_OK);
    assert_int_equal(atomic_load(&words->word), 1);
    assert_int_equal(cubiemem_end_work(instance, NULL), CUBIEMEM_OK);
    assert_int_equal(atomic_load(&words->word), 0);
    assert_int_equal(atomic_load(&words->used), atomic_load(&words->granted));
    assert_int_equal(cubiemem_sync(instance), CUBIEMEM_OK);
    assert_int_equal(cubiemem_end_work(instance, stream), CUBIEMEM_INVALID_REQUEST);
}

static void wait_for(_Atomic unsigned *counter, unsigned value)
{
    for (int i = 0; i < 500 && atomic_load(counter) < value; i++) {
        usleep(10000);
    }
    assert_int_equal(atomic_load(counter), value);
}

/* Every reason to be busy, one after the other, until there is none. */
static void test_eviction_orders(void **state)
{
    (void)state;
    cubiemem_stream stream = NULL;
    open_all(true);
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_OK);
    assert_int_equal(cubiemem_group_stream(instance, &stream), CUBIEMEM_OK);
    fake_daemon_invalidate(&fake, 1);
    wait_for(&fake.n_busy, 1); /* granted and never used */
    assert_int_equal(cubiemem_begin_work(instance), CUBIEMEM_OK);
    fake_daemon_invalidate(&fake, 1);
    wait_for(&fake.n_busy, 2); /* begun */
    driver.simDelay(stream, 300000000);
    assert_int_equal(cubiemem_end_work(instance, stream), CUBIEMEM_OK);
    fake_daemon_invalidate(&fake, 1);
    wait_for(&fake.n_busy, 3); /* the stream has not come past the mark */
    assert_int_equal(cubiemem_sync(instance), CUBIEMEM_OK);
    assert_int_equal(n_hooks, 0);
    fake_daemon_invalidate(&fake, 1);
    wait_for(&fake.n_evicted, 1);
    assert_int_equal(n_hooks, 1);
    assert_int_equal(hook_status, CUBIEMEM_IN_CALLBACK);
    assert_int_equal(cubiemem_begin_work(instance), CUBIEMEM_EVICTED);
    fake.segments[0].live = fake.segments[1].live = false;
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_OK);
    assert_int_equal(cubiemem_begin_work(instance), CUBIEMEM_OK);
    assert_int_equal(cubiemem_end_work(instance, stream), CUBIEMEM_OK);
    assert_int_equal(cubiemem_sync(instance), CUBIEMEM_OK);
}

static void test_no_hook_no_eviction(void **state)
{
    (void)state;
    open_all(false);
    assert_int_equal(allocate(six, two_each, 1), CUBIEMEM_OK);
    assert_int_equal(cubiemem_begin_work(instance), CUBIEMEM_OK);
    assert_int_equal(cubiemem_end_work(instance, NULL), CUBIEMEM_OK);
    assert_int_equal(cubiemem_sync(instance), CUBIEMEM_OK);
    fake_daemon_invalidate(&fake, 1);
    wait_for(&fake.n_busy, 1);
}

/* Replacing waits for the work in what is replaced. */
static void test_allocate_waits_for_marked_work(void **state)
{
    (void)state;
    cubiemem_stream stream = NULL;
    struct timespec before, after;
    open_all(false);
    assert_int_equal(allocate(six, two_each, 1), CUBIEMEM_OK);
    assert_int_equal(cubiemem_group_stream(instance, &stream), CUBIEMEM_OK);
    assert_int_equal(cubiemem_begin_work(instance), CUBIEMEM_OK);
    clock_gettime(CLOCK_MONOTONIC, &before);
    driver.simDelay(stream, 200000000);
    assert_int_equal(cubiemem_end_work(instance, stream), CUBIEMEM_OK);
    const int64_t four[] = {4};
    assert_int_equal(allocate(six, four, 1), CUBIEMEM_OK);
    clock_gettime(CLOCK_MONOTONIC, &after);
    int64_t took = (after.tv_sec - before.tv_sec) * 1000000000ll + after.tv_nsec - before.tv_nsec;
    assert_true(took >= 190000000);
}

static void *work_often(void *arg)
{
    for (int i = 0; i < 300; i++) {
        int status = cubiemem_begin_work(instance);
        if (status == CUBIEMEM_OK) {
            status = cubiemem_end_work(instance, arg);
        }
        if (status != CUBIEMEM_OK) {
            return (void *)1;
        }
    }
    return NULL;
}

/* Streams by handle, the per-thread one by thread, from four threads. */
static void test_work_from_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    open_all(true);
    assert_int_equal(allocate(six, two_each, 1), CUBIEMEM_OK);
    for (size_t i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, work_often, i % 2 ? (void *)2 : NULL);
    }
    for (size_t i = 0; i < 4; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(atomic_load(&fake.page[1].owner.word), 0);
    assert_int_equal(cubiemem_sync(instance), CUBIEMEM_OK);
    unsigned n_streams = 0;
    for (size_t i = 1; i < CONTROL_SLOTS; i++) {
        n_streams += atomic_load(&fake.page[i].kind) == CONTROL_STREAM;
    }
    assert_int_equal(n_streams, 3); /* legacy, and two threads' own */
}

static void test_fork_keeps_the_parents_memory(void **state)
{
    (void)state;
    int status = 0;
    open_all(true);
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_OK);
    pid_t child = fork();
    if (child == 0) {
        int ok = cubiemem_begin_work(instance) == CUBIEMEM_FORKED &&
                 cubiemem_end_work(instance, NULL) == CUBIEMEM_FORKED &&
                 cubiemem_release(instance, NULL, 0) == CUBIEMEM_FORKED &&
                 cubiemem_stream_host_fn(NULL, free, NULL) == CUBIEMEM_FORKED;
        cubiemem_unregister(instance);
        cubiemem_close(client);
        _exit(ok ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    assert_int_equal(fake.n_releases, 0);
    assert_int_equal(fake.n_unregisters, 0);
    assert_int_equal(cubiemem_begin_work(instance), CUBIEMEM_OK);
    assert_int_equal(cubiemem_end_work(instance, NULL), CUBIEMEM_OK);
}

/* Another instance of the group gets its response by take_response. */
static void test_response_of_another_member(void **state)
{
    (void)state;
    struct cubiemem_instance *second = NULL;
    struct cubiemem_response *response = NULL;
    struct cubiemem_array array = {.size = sizeof array};
    int64_t shape = 2;
    struct cubiemem_array_request request = array_of("x", &shape);
    open_all(false);
    assert_int_equal(cubiemem_register(client, "second", NULL, &second), CUBIEMEM_OK);
    assert_int_equal(cubiemem_take_response(second, &response), CUBIEMEM_NOT_FOUND);
    assert_int_equal(cubiemem_queue(second, &request, 1), CUBIEMEM_OK);
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_OK);
    assert_int_equal(cubiemem_take_response(second, &response), CUBIEMEM_OK);
    assert_int_equal(cubiemem_response_array(response, "x", &array), CUBIEMEM_OK);
    write_and_check(&array, 3);
    cubiemem_response_free(response);
    cubiemem_unregister(second);
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    assert_int_equal(fake.n_unregisters, 1);
}

static void *allocate_often(void *arg)
{
    for (int i = 0; i < 50; i++) {
        struct cubiemem_response *response = NULL;
        if (cubiemem_allocate(arg, NULL, &response) != CUBIEMEM_OK) {
            return (void *)1;
        }
        cubiemem_response_free(response);
    }
    return NULL;
}

/* Allocates of one group take turns, beside pings and invalidations. */
static void test_allocate_from_threads(void **state)
{
    (void)state;
    pthread_t threads[3];
    open_all(true);
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_OK);
    for (size_t i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, allocate_often, instance);
    }
    for (int i = 0; i < 100; i++) {
        assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    }
    for (size_t i = 0; i < 3; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

/* A Yield before the answer: the block is unmapped and handed back first. */
static bool yield_first(struct fake_daemon *daemon, const Cubiemem__ClientMessage *message)
{
    static uint64_t waiting;
    Cubiemem__DaemonMessage event = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Yield yield = CUBIEMEM__YIELD__INIT;
    if (message->give_back != NULL && message->give_back->yield_id == 77) {
        daemon->segments[0].live = false;
        fake_daemon_answer(daemon, waiting, CUBIEMEM_NO_MEMORY, "not even so");
        return false; /* counted as ever */
    }
    if (message->allocate == NULL) {
        return false;
    }
    waiting = message->id;
    event.yield = &yield;
    yield.has_yield_id = yield.has_instance_id = true;
    yield.yield_id = 77;
    yield.instance_id = 1;
    yield.n_block_ids = 1;
    yield.block_ids = &daemon->segments[0].block;
    fake_daemon_send(daemon, &event, NULL, 0);
    return true;
}

static void test_yield(void **state)
{
    (void)state;
    struct cubiemem_response *response = NULL;
    open_all(false);
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_OK);
    uint64_t unmapped = n_calls("cuMemUnmap");
    fake.handler = yield_first;
    assert_int_equal(cubiemem_allocate(instance, NULL, &response), CUBIEMEM_NO_MEMORY);
    fake.handler = NULL;
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    assert_int_equal(n_calls("cuMemUnmap"), unmapped + 1);
    assert_int_equal(fake.n_given, 1);
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_OK);
}

/* An answer that comes after the time-out is applied and waits to be taken. */
static atomic_bool given_up;
static bool answer_late(struct fake_daemon *daemon, const Cubiemem__ClientMessage *message)
{
    (void)daemon;
    while (message->allocate != NULL && !given_up) {
        usleep(1000);
    }
    return false;
}

static void test_late_answer(void **state)
{
    (void)state;
    struct cubiemem_options options = {.size = sizeof options, .socket = fake.path,
                                       .timeout_ns = 1000000000};
    struct cubiemem_response *response = NULL;
    struct cubiemem_array array = {.size = sizeof array};
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_OK);
    assert_int_equal(cubiemem_register(client, "solver", NULL, &instance), CUBIEMEM_OK);
    fake.handler = answer_late;
    assert_int_equal(allocate(six, two_each, 2), CUBIEMEM_TIMEOUT);
    given_up = true;
    fake.handler = NULL;
    int status = CUBIEMEM_NOT_FOUND;
    for (int i = 0; i < 2000 && status == CUBIEMEM_NOT_FOUND; i++) {
        usleep(10000); /* by the library's thread, in its own time */
        status = cubiemem_take_response(instance, &response);
    }
    assert_int_equal(status, CUBIEMEM_OK);
    assert_int_equal(cubiemem_response_array(response, "b", &array), CUBIEMEM_OK);
    write_and_check(&array, 5);
    cubiemem_response_free(response);
}

/* A long batch travels in several packets and arrives whole. */
static void test_long_batch(void **state)
{
    (void)state;
    enum { N = 1000 };
    static struct cubiemem_array_request requests[N];
    static char labels[N][200];
    int64_t shape = 0;
    struct cubiemem_response *response = NULL;
    open_all(false);
    for (size_t i = 0; i < N; i++) {
        memset(labels[i], 'l', 190);
        snprintf(labels[i] + 190, 10, "%zu", i);
        requests[i] = array_of(labels[i], &shape);
    }
    unsigned parts = fake.n_parts;
    assert_int_equal(cubiemem_queue(instance, requests, N), CUBIEMEM_OK);
    assert_int_equal(cubiemem_allocate(instance, NULL, &response), CUBIEMEM_OK);
    cubiemem_response_free(response);
    assert_true(fake.n_parts >= parts + 4);
    assert_int_equal(fake.n_allocates, 1);
}

/* Each story's process has a driver of its own. */
static int load(void **state)
{
    int ordinal = 0;
    int (*add)(const char *, uint64_t, int *, char *, size_t);
    (void)state;
    if (driver_load(DRIVER_SIM, DRIVER_PART_CUDA, run_dir, &driver, why, sizeof why) != 0) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    *(void **)&add = dlsym(driver.cuda_library, "cubiemem_sim_add");
    *(void **)&set_faults = dlsym(driver.cuda_library, "cubiemem_sim_set_faults");
    *(void **)&n_calls = dlsym(driver.cuda_library, "cubiemem_sim_calls");
    if (add("sim0", 512 * MIB, &ordinal, why, sizeof why) != 0 ||
        driver.cuInit(0) != CUDA_SUCCESS) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    return 0;
}

int main(void)
{
#define MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        MEMORY_TEST(test_six_arrays_again_without_driver_calls),
        MEMORY_TEST(test_replace_with_other_shapes),
        MEMORY_TEST(test_cycles_leak_nothing),
        MEMORY_TEST(test_pinned_and_empty),
        MEMORY_TEST(test_refusal_changes_nothing),
        MEMORY_TEST(test_lost_descriptors),
        MEMORY_TEST(test_every_call_fails_once),
        MEMORY_TEST(test_daemon_vanishes_in_allocate),
        MEMORY_TEST(test_bad_input),
        MEMORY_TEST(test_marks_nest),
        MEMORY_TEST(test_eviction_orders),
        MEMORY_TEST(test_no_hook_no_eviction),
        MEMORY_TEST(test_allocate_waits_for_marked_work),
        MEMORY_TEST(test_work_from_threads),
        MEMORY_TEST(test_fork_keeps_the_parents_memory),
        MEMORY_TEST(test_response_of_another_member),
        MEMORY_TEST(test_allocate_from_threads),
        MEMORY_TEST(test_yield),
        MEMORY_TEST(test_late_answer),
        MEMORY_TEST(test_long_batch),
    };
    char command[128];
    sim_env_set();
    snprintf(run_dir, sizeof run_dir, "/tmp/cubiemem-client.XXXXXX");
    if (mkdtemp(run_dir) == NULL) {
        return 1;
    }
    setenv("CUBIEMEM_RUNDIR", run_dir, 1);
    int failed = stories_run(tests, sizeof tests / sizeof tests[0], load, NULL);
    snprintf(command, sizeof command, "rm -rf %s", run_dir);
    return system(command) != 0 || failed != 0;
}
