/* Failures on order, and the counts of calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "sim_world.h"
#include "stories.h"

static int (*set_faults)(const char *faults, char *why, size_t why_size);
static uint64_t (*calls)(const char *symbol);

static int setup(void **state)
{
    (void)state;
    sim_world_open("sim0", 64 * MIB);
    *(void **)&set_faults = sim_symbol("cubiemem_sim_set_faults");
    *(void **)&calls = sim_symbol("cubiemem_sim_calls");
    return 0;
}

static int teardown(void **state)
{
    char why[128];

    (void)state;
    assert_int_equal(set_faults(NULL, why, sizeof(why)), 0);
    assert_int_equal(sim_used(), 0);
    sim_world_close();
    return 0;
}

static void order(const char *faults)
{
    char why[128] = "";

    assert_int_equal(set_faults(faults, why, sizeof(why)), 0);
}

static CUresult create(void)
{
    const CUmemAllocationProp prop = segment_prop(0);
    CUmemGenericAllocationHandle handle;
    CUresult result = sim.cuMemCreate(&handle, 2 * MIB, &prop, 0);

    if (result == CUDA_SUCCESS) {
        CU_OK(sim.cuMemRelease(handle));
    }
    return result;
}

static void test_the_nth_call_fails(void **state)
{
    (void)state;
    order("cuMemCreate:3=2,cuMemCreate:5+=999");
    CU_OK(create());
    CU_OK(create());
    assert_int_equal(create(), CUDA_ERROR_OUT_OF_MEMORY);
    CU_OK(create());
    assert_int_equal(create(), CUDA_ERROR_UNKNOWN);
    assert_int_equal(create(), CUDA_ERROR_UNKNOWN);
    /* counts begin anew */
    order("cuMemCreate:2=46");
    CU_OK(create());
    assert_int_equal(create(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CU_OK(create());
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void test_calls_are_delayed(void **state)
{
    uint64_t start = now_ms();

    (void)state;
    order("cuMemRelease:*~30ms");
    CU_OK(create());
    CU_OK(create());
    assert_in_range(now_ms() - start, 60, 5000);
}

static void test_the_device_is_lost_at_its_time(void **state)
{
    struct nvml_memory memory = {.version = NVML_MEMORY_VERSION};
    int count;

    (void)state;
    order("lose@1s");
    CU_OK(create());
    sleep_ms(1020);
    assert_int_equal(create(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_int_equal(sim.cuDeviceGetCount(&count), CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_int_equal(sim.nvmlDeviceGetMemoryInfo(NULL, &memory), 15);
}

static void test_nvml_fails_on_order(void **state)
{
    void *device;

    (void)state;
    order("nvmlDeviceGetHandleByUUID:1=999");
    assert_int_equal(sim.nvmlDeviceGetHandleByUUID("GPU-none", &device), 999);
    assert_int_equal(sim.nvmlDeviceGetHandleByUUID("GPU-none", &device), 6);
}

static void test_a_bad_order_changes_nothing(void **state)
{
    static const char *const bad[] = {
        "cuMemCrate:1=2",   "cuMemCreate",        "cuMemCreate:0=2", "cuMemCreate:1",
        "cuMemCreate:1=",   "cuMemCreate:1=0",    "cuMemCreate:*~5", "cuMemCreate:*~5m",
        "cuMemCreate:1=2;", "cuMemCreate:1=2,,",  "lose@",           "loose@5s",
        "lose@-1s",         "cuMemCreate:-1=2",   "cuMemCreate:1=x", "lose@99999999999999999999s",
        ",",                "cuMemCreate:1=2~1s,x", "cuMemCreate_v2:1=2",
    };
    char why[256];

    (void)state;
    order("cuMemCreate:1=2");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        why[0] = '\0';
        assert_int_equal(set_faults(bad[i], why, sizeof(why)), -1);
        assert_non_null(strstr(why, "not a fault"));
    }
    assert_int_equal(create(), CUDA_ERROR_OUT_OF_MEMORY);
}

static int run_faulty(int fd)
{
    peer_say(fd, create() == CUDA_ERROR_OUT_OF_MEMORY ? 'y' : 'n', -1);
    return 0;
}

static void test_a_process_gets_its_faults_from_the_environment(void **state)
{
    struct peer peer = peer_start("faulty", "CUBIEMEM_SIM_FAULTS=cuMemCreate:1=2");

    (void)state;
    assert_int_equal(peer_hear(peer.fd, NULL), 'y');
    assert_int_equal(peer_end(&peer), 0);
    /* and does not even load with bad ones */
    peer = peer_start("faulty", "CUBIEMEM_SIM_FAULTS=nonsense");
    assert_int_equal(peer_end(&peer), 99);
}

static void test_calls_are_counted(void **state)
{
    uint64_t before = calls("cuMemCreate");
    uint64_t all = calls(NULL);

    (void)state;
    order("cuMemCreate:2=2");
    CU_OK(create());
    assert_int_equal(create(), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(calls("cuMemCreate"), before + 2);
    assert_int_equal(calls(""), all + 3);
    assert_int_equal(calls("cuNothing"), 0);
}

int main(int argc, char **argv)
{
    static const struct peer_role roles[] = {{"faulty", run_faulty}};
    const struct CMUnitTest tests[] = {
#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        STORY(test_the_nth_call_fails),
        STORY(test_calls_are_delayed),
        STORY(test_the_device_is_lost_at_its_time),
        STORY(test_nvml_fails_on_order),
        STORY(test_a_bad_order_changes_nothing),
        STORY(test_a_process_gets_its_faults_from_the_environment),
        STORY(test_calls_are_counted),
#undef STORY
    };
    int status = peer_main(argc, argv, roles, sizeof(roles) / sizeof(roles[0]));

    return status >= 0 ? status
                       : stories_run(tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
