/* The device: what --device means, how it opens, and segments that are whole or not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cubiemem.h"
#include "fake_driver.h"
#include "sim_env.h"
#include "stories.h"

#define MIB (1ull << 20)
#define N(array) (sizeof(array) / sizeof((array)[0]))

static char why[512];

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

/* ------------------------------------------------------------------ specs */

static void test_specs(void **state)
{
    static const char *const good[] = {
        "sim",           "sim:64MiB",
        "sim:64MiB,b",   "sim,gpu-1_x.y",
        "cuda:0",        "cuda:15",
        "GPU-8e9c4e9a-0123-4567-89ab-cdefABCDEF01",
    };
    static const char *const bad[] = {
        "",          "Sim",          "sim:",       "sim:,x",    "sim,",     "sim,a/b",
        "sim,..",    "sim,.hidden",  "sim:1 GiB",  "sim:0",     "cuda",     "cuda:",
        "cuda:a",    "cuda:1x",      "cuda:-1",    "cuda: 1",   "cuda:1024",
        "GPU-",      "GPU-8e9c4e9a-0123-4567-89ab-cdefABCDEF0",
        "GPU-8e9c4e9a-0123-4567-89ab-cdefABCDEF012", "GPU-8e9c4e9a_0123-4567-89ab-cdefABCDEF01",
        "MIG-8e9c4e9a-0123-4567-89ab-cdefABCDEF01",  "GPU-8e9c4e9a-0123-4567-89ab-cdefABCDEFgh",
        "sim:99999999999999999999999999999999999999GiB",
    };
    char long_name[128] = "sim,";

    (void)state;
    for (size_t i = 0; i < N(good); i++) {
        assert_int_equal(device_spec_check(good[i], why, sizeof(why)), CUBIEMEM_OK);
    }
    for (size_t i = 0; i < N(bad); i++) {
        why[0] = '\0';
        assert_int_equal(device_spec_check(bad[i], why, sizeof(why)), CUBIEMEM_INVALID_REQUEST);
        assert_true(strlen(why) > 10);
    }
    memset(long_name + 4, 'n', 63);
    assert_int_equal(device_spec_check(long_name, why, sizeof(why)), CUBIEMEM_OK);
    long_name[67] = 'n';
    assert_int_equal(device_spec_check(long_name, why, sizeof(why)), CUBIEMEM_INVALID_REQUEST);
}

/* --------------------------------------------------------------- segments */

static void test_a_segment_is_whole_or_not_there(void **state)
{
    struct device device;
    struct segment *segment = NULL;
    CUresult result;

    (void)state;
    fake_device_init(&device);
    const int fds = n_fds();
    assert_int_equal(device_segment_create(&device, 4 * MIB, &segment, &result), CUBIEMEM_OK);
    assert_int_equal(result, CUDA_SUCCESS);
    assert_int_equal(segment->id, 1);
    assert_int_equal(segment->size, 4 * MIB);
    assert_true(fcntl(segment->fd, F_GETFD) & FD_CLOEXEC);
    device_segment_destroy(&device, segment);

    segment = NULL;
    fake.fail_export_at = fake.n_export + 1;
    assert_int_equal(device_segment_create(&device, 4 * MIB, &segment, &result), CUBIEMEM_CUDA);
    assert_int_equal(result, CUDA_ERROR_OPERATING_SYSTEM);
    assert_null(segment);
    fake.fail_create_at = fake.n_create + 1;
    assert_int_equal(device_segment_create(&device, 4 * MIB, &segment, &result),
                     CUBIEMEM_NO_MEMORY);
    assert_null(segment);
    assert_int_equal(fake.n_live, 0);
    assert_int_equal(n_fds(), fds);

    assert_int_equal(device_segment_create(&device, 4 * MIB, &segment, &result), CUBIEMEM_OK);
    assert_int_equal(segment->id, 2); /* what was never there takes no number */
    device_segment_destroy(&device, segment);
}

static void test_bad_sizes_never_reach_the_driver(void **state)
{
    static const uint64_t bad[] = {0, 1, 2 * MIB - 1, 2 * MIB + 1, UINT64_MAX, UINT64_MAX - 511};
    struct device device;
    struct segment *segment = NULL;
    CUresult result;

    (void)state;
    fake_device_init(&device);
    for (size_t i = 0; i < N(bad); i++) {
        assert_int_equal(device_segment_create(&device, bad[i], &segment, &result),
                         CUBIEMEM_INVALID_REQUEST);
    }
    assert_int_equal(fake.n_create, 0);
}

static void test_let_go_twice_is_once(void **state)
{
    struct device device;
    struct segment *segment = NULL;
    CUresult result;

    (void)state;
    fake_device_init(&device);
    assert_int_equal(device_segment_create(&device, 2 * MIB, &segment, &result), CUBIEMEM_OK);
    assert_int_equal(device_segment_let_go(&device, segment), CUDA_SUCCESS);
    assert_int_equal(device_segment_let_go(&device, segment), CUDA_SUCCESS);
    assert_int_equal(segment->id, 1); /* still to be read */
    assert_int_equal(segment->fd, -1);
    device_segment_destroy(&device, segment);
    device_segment_destroy(&device, NULL);
    assert_int_equal(fake.n_release, 1);
}

/* No descriptor left: said as such, and the allocation is undone. */
static void test_no_descriptors_left(void **state)
{
    struct device device;
    struct segment *segment = NULL;
    struct rlimit before, none;
    CUresult result;

    (void)state;
    fake_device_init(&device);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = dup(0);
    close(next);
    none = before;
    none.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int status = device_segment_create(&device, 2 * MIB, &segment, &result);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, CUBIEMEM_NO_FDS);
    assert_int_equal(fake.n_live, 0);
}

static void test_statuses(void **state)
{
    (void)state;
    assert_int_equal(device_status(CUDA_SUCCESS), CUBIEMEM_OK);
    assert_int_equal(device_status(CUDA_ERROR_OUT_OF_MEMORY), CUBIEMEM_NO_MEMORY);
    assert_int_equal(device_status(CUDA_ERROR_ECC_UNCORRECTABLE), CUBIEMEM_DEVICE_LOST);
    assert_int_equal(device_status(CUDA_ERROR_UNKNOWN), CUBIEMEM_CUDA);
}

/* ---------------------------------------------------- the simulated device */

static char run_dir[64];

static int make_run_dir(void **state)
{
    (void)state;
    snprintf(run_dir, sizeof(run_dir), "/tmp/device.XXXXXX");
    return mkdtemp(run_dir) != NULL ? 0 : -1;
}

static int remove_run_dir(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", run_dir);
    return system(command);
}

static void test_the_simulated_device_opens(void **state)
{
    struct device device = {0}, again = {0};
    struct segment *segment = NULL;
    uint64_t total, free_bytes;
    CUresult result;

    (void)state;
    int status = device_open("sim:64MiB,unit", run_dir, &device, why, sizeof(why));
    if (status != CUBIEMEM_OK) {
        fail_msg("%s", why);
    }
    assert_true(device.simulated);
    assert_false(device.exclusive);
    assert_int_equal(device.total, 64 * MIB);
    assert_int_equal(device.granularity, 2 * MIB);
    assert_int_equal(strlen(device.uuid), 40);
    assert_memory_equal(device.uuid, "GPU-", 4);
    assert_string_equal(device.run_dir, run_dir);
    assert_int_equal(device_memory(&device, &total, &free_bytes), CUBIEMEM_OK);
    assert_int_equal(total, 64 * MIB);
    assert_int_equal(free_bytes, 64 * MIB);

    assert_int_equal(device_segment_create(&device, 64 * MIB, &segment, &result), CUBIEMEM_OK);
    struct segment *more = NULL;
    assert_int_equal(device_segment_create(&device, 2 * MIB, &more, &result), CUBIEMEM_NO_MEMORY);
    assert_int_equal(result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(device_memory(&device, &total, &free_bytes), CUBIEMEM_OK);
    assert_int_equal(free_bytes, 0);
    device_segment_destroy(&device, segment);
    assert_int_equal(device_memory(&device, &total, &free_bytes), CUBIEMEM_OK);
    assert_int_equal(free_bytes, 64 * MIB);

    /* the same by its UUID, as the legacy helper does it */
    assert_int_equal(device_open_uuid(device.uuid, true, run_dir, &again, why, sizeof(why)),
                     CUBIEMEM_OK);
    assert_string_equal(again.uuid, device.uuid);
    device_close(&again);
    assert_int_equal(device_open_uuid("GPU-00000000-0000-0000-0000-000000000000", true, run_dir,
                                      &again, why, sizeof(why)),
                     CUBIEMEM_NOT_FOUND);
    device_close(&device);
    device_close(&device);
}

/* Asked for a GPU, the simulation is no answer. */
static void test_a_gpu_is_never_replaced(void **state)
{
    struct device device = {.ordinal = 77};

    (void)state;
    int status = device_open("GPU-00000000-0000-0000-0000-000000000000", run_dir, &device, why,
                             sizeof(why));
    assert_int_equal(status, CUBIEMEM_NOT_FOUND);
    assert_true(strlen(why) > 10);
    assert_null(strchr(why, '\n'));
    assert_int_equal(device.ordinal, 77);
    assert_int_equal(device_open("cuda:1000", run_dir, &device, why, sizeof(why)),
                     CUBIEMEM_NOT_FOUND);
}

static void test_a_missing_simulation_is_said(void **state)
{
    struct device device;

    (void)state;
    const char *before = getenv("CUBIEMEM_SIM");
    char *kept = before != NULL ? strdup(before) : NULL;
    setenv("CUBIEMEM_SIM", "/no/such/library.so", 1);
    int status = device_open("sim", run_dir, &device, why, sizeof(why));
    if (kept != NULL) {
        setenv("CUBIEMEM_SIM", kept, 1);
        free(kept);
    } else {
        unsetenv("CUBIEMEM_SIM");
    }
    assert_int_equal(status, CUBIEMEM_NOT_FOUND);
    assert_non_null(strstr(why, "/no/such/library.so"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_specs),
        cmocka_unit_test(test_a_segment_is_whole_or_not_there),
        cmocka_unit_test(test_bad_sizes_never_reach_the_driver),
        cmocka_unit_test(test_let_go_twice_is_once),
        cmocka_unit_test(test_no_descriptors_left),
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_a_missing_simulation_is_said),
        cmocka_unit_test_setup_teardown(test_a_gpu_is_never_replaced, make_run_dir,
                                        remove_run_dir),
        cmocka_unit_test_setup_teardown(test_the_simulated_device_opens, make_run_dir,
                                        remove_run_dir),
    };
    sim_env_set();
    return stories_run(tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
