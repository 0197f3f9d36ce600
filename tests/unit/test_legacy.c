/*
 * Legacy helper: blocks that are clear, ends that are noticed, and nothing inherited.
 *
 * CUBIEMEM_TEST_DEVICE (such as cuda:0) runs it on that device. The program is its own
 * helper, and its own importer: a process that knows only a handle.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "legacy.h"
#include "cubiemem.h"
#include "sim_env.h"
#include "stories.h"

#define MIB (1ull << 20)
#define MAX_EVENTS 256

static struct device device;
static char run_dir[64];
static uv_loop_t loop;
static struct legacy_helper *helper;

/* What the loop was told; asserts are for after uv_run(). */
static int n_allocs, n_frees, n_deaths, death_status;
static int statuses[MAX_EVENTS];
static uintptr_t tags[MAX_EVENTS];
static struct legacy_block blocks[MAX_EVENTS];
static bool kill_in_callback;

static void on_alloc(int status, CUresult result, const struct legacy_block *block, void *data)
{
    (void)result;
    statuses[n_allocs] = status;
    tags[n_allocs] = (uintptr_t)data;
    memset(&blocks[n_allocs], 0, sizeof(blocks[0]));
    if (block != NULL) {
        blocks[n_allocs] = *block;
    }
    n_allocs++;
    if (kill_in_callback) {
        kill_in_callback = false;
        legacy_helper_kill(helper);
        helper = NULL;
    }
}

static void on_free(int status, CUresult result, void *data)
{
    (void)result;
    (void)data;
    statuses[n_frees++] = status;
}

static void on_died(int wait_status, void *data)
{
    (void)data;
    n_deaths++;
    death_status = wait_status;
}

static void reset(void)
{
    n_allocs = n_frees = n_deaths = 0;
    memset(statuses, 0x55, sizeof(statuses));
}

static int n_fds(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");

    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

static int setup(void **state)
{
    (void)state;
    reset();
    kill_in_callback = false;
    helper = NULL;
    return uv_loop_init(&loop) != 0 ||
           legacy_helper_create(&loop, &device, on_died, NULL, &helper) != CUBIEMEM_OK;
}

static int teardown(void **state)
{
    (void)state;
    legacy_helper_kill(helper);
    helper = NULL;
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static void on_late(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

/* Run the loop until *counter is n, or 20 s are over. */
static void run_until(const int *counter, int n)
{
    uv_timer_t late;

    uv_timer_init(&loop, &late);
    uv_timer_start(&late, on_late, 20000, 0);
    for (int i = 0; i < 100000 && *counter < n && uv_timer_get_due_in(&late) > 0; i++) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&late, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

/* The only allocation of the moment. */
static int alloc_one(uint64_t size)
{
    reset();
    int status = legacy_helper_alloc(helper, size, on_alloc, NULL);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    run_until(&n_allocs, 1);
    return n_allocs == 1 ? statuses[0] : CUBIEMEM_TIMEOUT;
}

static int free_one(uint64_t generation)
{
    reset();
    assert_int_equal(legacy_helper_free(helper, generation, on_free, NULL), CUBIEMEM_OK);
    run_until(&n_frees, 1);
    return n_frees == 1 ? statuses[0] : CUBIEMEM_TIMEOUT;
}

/* Ours to reap once its parent is gone (see main). */
static bool is_gone_soon(pid_t pid)
{
    for (int i = 0; i < 5000; i++) {
        if (waitpid(pid, NULL, WNOHANG) == pid) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

/* --------------------------------------------------------------- importer */

/*
 * argv: program, "import", UUID, sim|cuda, run dir, handle in hex, size. Exit status 0:
 * the block was all zero, and is all 0xa5 now.
 */
static int importer(char **argv)
{
    const size_t size = strtoul(argv[6], NULL, 10);
    unsigned char *bytes = calloc(1, size);
    struct device own;
    struct driver *driver = &own.driver;
    CUcontext context;
    CUipcMemHandle handle;
    CUdeviceptr address;
    char why[256];

    for (size_t i = 0; i < sizeof(handle); i++) {
        unsigned int byte = 0;
        sscanf(argv[5] + 2 * i, "%2x", &byte);
        ((unsigned char *)&handle)[i] = (unsigned char)byte;
    }
    if (bytes == NULL || device_open_uuid(argv[2], strcmp(argv[3], "sim") == 0, argv[4], &own, why,
                                          sizeof(why)) != CUBIEMEM_OK) {
        return 10;
    }
    if (driver->cuDevicePrimaryCtxRetain(&context, own.device) != CUDA_SUCCESS ||
        driver->cuCtxSetCurrent(context) != CUDA_SUCCESS) {
        return 11;
    }
    if (driver->cuIpcOpenMemHandle(&address, handle, 1) != CUDA_SUCCESS) {
        return 12;
    }
    if (driver->cuMemcpyDtoH(bytes, address, size) != CUDA_SUCCESS) {
        return 13;
    }
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return 14;
        }
    }
    memset(bytes, 0xa5, size);
    if (driver->cuMemcpyHtoD(address, bytes, size) != CUDA_SUCCESS ||
        driver->cuCtxSynchronize() != CUDA_SUCCESS ||
        driver->cuIpcCloseMemHandle(address) != CUDA_SUCCESS) {
        return 15;
    }
    free(bytes);
    return 0;
}

static int import(const struct legacy_block *block)
{
    char hex[2 * LEGACY_HANDLE_SIZE + 1], size[32];
    int status = 0;

    for (size_t i = 0; i < LEGACY_HANDLE_SIZE; i++) {
        snprintf(hex + 2 * i, 3, "%02x", block->handle[i]);
    }
    snprintf(size, sizeof(size), "%llu", (unsigned long long)block->size);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test_legacy", "import", device.uuid,
              device.simulated ? "sim" : "cuda", device.run_dir, hex, size, (char *)NULL);
        _exit(99);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ------------------------------------------------------------------ blocks */

static void test_a_block_is_clear_for_each_tenant(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(alloc_one(4 * MIB), CUBIEMEM_OK);
        const struct legacy_block block = blocks[0];
        assert_int_equal(block.size, 4 * MIB);
        assert_int_equal(import(&block), 0); /* zero, and dirty from now on */
        assert_int_equal(free_one(block.generation), CUBIEMEM_OK);
    }
}

/* CASES 2 */
static void test_two_blocks_have_two_handles(void **state)
{
    (void)state;
    assert_int_equal(alloc_one(2 * MIB), CUBIEMEM_OK);
    const struct legacy_block a = blocks[0];
    assert_int_equal(alloc_one(2 * MIB), CUBIEMEM_OK);
    const struct legacy_block b = blocks[0];
    assert_true(a.generation != 0);
    assert_true(a.generation != b.generation);
    assert_memory_not_equal(a.handle, b.handle, sizeof(a.handle));
    assert_int_equal(import(&a), 0);
    assert_int_equal(import(&b), 0); /* not a's memory */
}

static void test_what_does_not_fit_harms_nobody(void **state)
{
    (void)state;
    assert_int_equal(alloc_one(2 * MIB), CUBIEMEM_OK);
    assert_int_equal(alloc_one(1ull << 46), CUBIEMEM_NO_MEMORY);
    assert_int_equal(blocks[0].generation, 0);
    assert_int_equal(alloc_one(2 * MIB), CUBIEMEM_OK);
    assert_int_equal(free_one(1ull << 60), CUBIEMEM_NOT_FOUND);
    assert_int_equal(alloc_one(2 * MIB), CUBIEMEM_OK);
    assert_int_equal(n_deaths, 0);
}

static void test_bad_sizes_are_refused_at_once(void **state)
{
    static const uint64_t bad[] = {0, 1, 2 * MIB - 1, 3 * MIB, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(legacy_helper_alloc(helper, bad[i], on_alloc, NULL),
                         CUBIEMEM_INVALID_REQUEST);
    }
    assert_int_equal(alloc_one(2 * MIB), CUBIEMEM_OK);
    assert_int_equal(n_allocs, 1);
}

/* Far more than are sent at once; the answers come in order. */
static void test_a_long_queue_is_answered_in_order(void **state)
{
    const int n = 200;

    (void)state;
    for (int i = 0; i < n; i++) { /* what is too large costs nothing */
        assert_int_equal(legacy_helper_alloc(helper, i % 50 == 0 ? 2 * MIB : 1ull << 46, on_alloc,
                                             (void *)(uintptr_t)(i + 1)),
                         CUBIEMEM_OK);
    }
    assert_int_equal(n_allocs, 0); /* never from within the call */
    run_until(&n_allocs, n);
    assert_int_equal(n_allocs, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(tags[i], i + 1);
        assert_int_equal(statuses[i], i % 50 == 0 ? CUBIEMEM_OK : CUBIEMEM_NO_MEMORY);
    }
}

/* -------------------------------------------------------------------- ends */

static void test_kill_cancels_and_reaps(void **state)
{
    const pid_t pid = legacy_helper_pid(helper);

    (void)state;
    for (int i = 0; i < 40; i++) {
        assert_int_equal(legacy_helper_alloc(helper, 2 * MIB, on_alloc, NULL), CUBIEMEM_OK);
    }
    legacy_helper_kill(helper);
    helper = NULL;
    assert_int_equal(n_allocs, 40);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(statuses[i], CUBIEMEM_CANCELLED);
    }
    uv_run(&loop, UV_RUN_DEFAULT); /* ends when it has been reaped */
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    assert_int_equal(n_deaths, 0);
    assert_int_equal(n_allocs, 40);
}

static void test_death_is_reported_once(void **state)
{
    (void)state;
    assert_int_equal(kill(legacy_helper_pid(helper), SIGSTOP), 0);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(legacy_helper_alloc(helper, 2 * MIB, on_alloc, NULL), CUBIEMEM_OK);
    }
    assert_int_equal(kill(legacy_helper_pid(helper), SIGKILL), 0);
    run_until(&n_deaths, 1);
    uv_run(&loop, UV_RUN_DEFAULT); /* nothing is left to wait for */
    assert_int_equal(n_deaths, 1);
    assert_true(WIFSIGNALED(death_status) && WTERMSIG(death_status) == SIGKILL);
    assert_int_equal(n_allocs, 40);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(statuses[i], CUBIEMEM_DEVICE_LOST);
    }
    assert_int_equal(legacy_helper_alloc(helper, 2 * MIB, on_alloc, NULL), CUBIEMEM_DEVICE_LOST);
    assert_int_equal(legacy_helper_free(helper, 1, on_free, NULL), CUBIEMEM_DEVICE_LOST);
    assert_int_equal(n_allocs, 40);
}

static void test_a_callback_may_kill(void **state)
{
    (void)state;
    kill_in_callback = true;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(legacy_helper_alloc(helper, 1ull << 46, on_alloc, NULL), CUBIEMEM_OK);
    }
    run_until(&n_allocs, 20);
    assert_int_equal(n_allocs, 20);
    assert_int_equal(statuses[19], CUBIEMEM_CANCELLED);
    assert_int_equal(n_deaths, 0);
}

static void test_no_descriptor_is_left_behind(void **state)
{
    (void)state;
    legacy_helper_kill(helper);
    helper = NULL;
    uv_run(&loop, UV_RUN_DEFAULT);
    const int before = n_fds();
    for (int i = 0; i < 10; i++) {
        assert_int_equal(legacy_helper_create(&loop, &device, on_died, NULL, &helper),
                         CUBIEMEM_OK);
        legacy_helper_kill(helper);
    }
    helper = NULL;
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_fds(), before);
}

/* How many descriptors a process has, and the highest. */
static int list_fds(pid_t pid, int *highest_p)
{
    char path[64];
    int n = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    *highest_p = -1;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.') {
            int fd = (int)strtol(entry->d_name, NULL, 10);
            *highest_p = fd > *highest_p ? fd : *highest_p;
            n++;
        }
    }
    closedir(dir);
    return n;
}

/* Descriptors of the daemon, with and without CLOEXEC, do not reach the helper. */
static void test_the_helper_inherits_nothing(void **state)
{
    struct legacy_helper *other;
    char path[64], text[256] = "";
    int highest = -1, n = 0;

    (void)state;
    int leaky[2];
    assert_int_equal(pipe(leaky), 0);
    assert_int_equal(legacy_helper_create(&loop, &device, on_died, NULL, &other), CUBIEMEM_OK);
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)legacy_helper_pid(other));
    for (int i = 0; i < 2000 && strstr(text, "legacy-helper") == NULL; i++) {
        usleep(1000);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t length = read(fd, text, sizeof(text) - 1);
        text[length > 0 ? length : 0] = '\0';
        close(fd);
    }
    assert_non_null(strstr(text, "legacy-helper"));
    /* Its loader closes what it opens, sooner or later. */
    for (int i = 0; i < 2000 && (n != 4 || highest != 3); i++) {
        usleep(10000);
        n = list_fds(legacy_helper_pid(other), &highest);
    }
    legacy_helper_kill(other);
    close(leaky[0]);
    close(leaky[1]);
    assert_int_equal(n, 4);
    assert_int_equal(highest, 3);
}

/* The daemon is killed: its helper goes with it. */
static void test_the_helper_dies_with_the_daemon(void **state)
{
    int pipe_fds[2];
    pid_t helper_pid = 0;

    (void)state;
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        uv_loop_t own;
        struct legacy_helper *child;
        uv_loop_init(&own);
        if (legacy_helper_create(&own, &device, on_died, NULL, &child) == CUBIEMEM_OK) {
            pid_t made = legacy_helper_pid(child);
            if (write(pipe_fds[1], &made, sizeof(made)) != sizeof(made)) {
                _exit(1);
            }
        }
        pause();
        _exit(0);
    }
    assert_int_equal(read(pipe_fds[0], &helper_pid, sizeof(helper_pid)), sizeof(helper_pid));
    assert_int_equal(kill(helper_pid, 0), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_true(is_gone_soon(helper_pid));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void test_a_context_may_be_forbidden(void **state)
{
    struct device exclusive = device;
    struct legacy_helper *none = NULL;

    (void)state;
    exclusive.exclusive = true;
    assert_int_equal(legacy_helper_create(&loop, &exclusive, on_died, NULL, &none),
                     CUBIEMEM_HANDLE_KIND);
    assert_null(none);
}

/* Each story's process has the device open itself, and collects the orphans. */
static int open_device(void **state)
{
    const char *spec = getenv("CUBIEMEM_TEST_DEVICE");
    char why[256];

    (void)state;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (device_open(spec != NULL ? spec : "sim:64MiB", run_dir, &device, why, sizeof(why)) !=
        CUBIEMEM_OK) {
        fprintf(stderr, "%s\n", why);
        return -1;
    }
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&device);
    return 0;
}

int main(int argc, char **argv)
{
    /* Valgrind 3.19 does not know it. */
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (self < 0 && errno == ENOSYS) {
        printf("skipped: no pidfd_open\n");
        return 77;
    }
    close(self);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_context_may_be_forbidden),
        TEST(test_no_descriptor_is_left_behind),
        TEST(test_the_helper_inherits_nothing),
        TEST(test_the_helper_dies_with_the_daemon),
        TEST(test_kill_cancels_and_reaps),
        TEST(test_death_is_reported_once),
        TEST(test_a_callback_may_kill),
        TEST(test_bad_sizes_are_refused_at_once),
        TEST(test_what_does_not_fit_harms_nobody),
        TEST(test_a_long_queue_is_answered_in_order),
        TEST(test_two_blocks_have_two_handles),
        TEST(test_a_block_is_clear_for_each_tenant),
    };
    char command[128];

    sim_env_set();
    if (legacy_is_helper(argc, argv)) {
        return legacy_helper_main(argc, argv);
    }
    if (argc == 7 && strcmp(argv[1], "import") == 0) {
        return importer(argv);
    }
    snprintf(run_dir, sizeof(run_dir), "/tmp/legacy.XXXXXX");
    if (mkdtemp(run_dir) == NULL) {
        perror(run_dir);
        return 1;
    }
    int failed = stories_run(tests, sizeof(tests) / sizeof(tests[0]), open_device, close_device);
    snprintf(command, sizeof(command), "rm -rf %s", run_dir);
    return system(command) == 0 ? failed : 1;
}
