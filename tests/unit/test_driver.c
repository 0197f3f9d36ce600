/* Loading a driver's table: all of it or a clear line why not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_layout.h"
#include "sim_world.h"

static void test_a_missing_library_is_named(void **state)
{
    const char *before = getenv("CUBIEMEM_SIM");
    char *saved = before ? strdup(before) : NULL;
    struct driver driver;
    char why[256] = "";

    (void)state;
    memset(&driver, 0x5a, sizeof(driver));
    setenv("CUBIEMEM_SIM", "/nonexistent/libcubiemem-sim.so", 1);
    assert_int_equal(driver_load(DRIVER_SIM, DRIVER_PART_CUDA, "/tmp", &driver, why, sizeof(why)),
                     -1);
    assert_non_null(strstr(why, "/nonexistent/libcubiemem-sim.so"));
    assert_null(strchr(why, '\n'));
    /* the caller's table is as it was */
    assert_int_equal(*(const unsigned char *)&driver, 0x5a);

    /* a library that is no driver: the first symbol that it lacks */
    setenv("CUBIEMEM_SIM", "libm.so.6", 1);
    assert_int_equal(driver_load(DRIVER_SIM, DRIVER_PART_CUDA, "/tmp", &driver, why, sizeof(why)),
                     -1);
    assert_non_null(strstr(why, "libm.so.6 has no symbol cuInit"));
    if (saved) {
        setenv("CUBIEMEM_SIM", saved, 1);
    } else {
        unsetenv("CUBIEMEM_SIM");
    }
    free(saved);
}

static void test_the_table_is_complete_and_named_for_the_exports(void **state)
{
    (void)state;
    sim_world_open("sim0", 64 * MIB);
    assert_true(sim.simulated);
    assert_non_null(sim.simDelay);
#define SAME_FUNCTION(member, symbol, parameters)                                                  \
    assert_ptr_equal(*(void **)&sim.member, sim_symbol(#symbol));
    DRIVER_CUDA_MAP(SAME_FUNCTION)
    DRIVER_NVML_MAP(SAME_FUNCTION)
#undef SAME_FUNCTION
    assert_non_null(sim_symbol("cuMemAlloc_v2"));
    assert_null(sim_symbol("cuMemAlloc"));
    sim_world_close();
    assert_null(sim.cuda_library);
}

static void test_a_uuid_is_written_as_nvml_does(void **state)
{
    CUuuid uuid;
    char text[UUID_TEXT_SIZE];

    (void)state;
    for (int i = 0; i < 16; i++) {
        uuid.bytes[i] = (char)(i * 17);
    }
    uuid_format(&uuid, text);
    assert_string_equal(text, "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

static void test_a_simulated_gpus_uuid_is_its_names(void **state)
{
    char first[UUID_TEXT_SIZE], other[UUID_TEXT_SIZE];
    CUuuid uuid;

    (void)state;
    sim_world_open("sim0", 64 * MIB);
    CU_OK(sim.cuDeviceGetUuid(&uuid, 0));
    uuid_format(&uuid, first);
    CU_OK(sim.cuDeviceGetUuid(&uuid, sim_world_add("other", 64 * MIB)));
    uuid_format(&uuid, other);
    sim_world_close();
    /* for ever: ledgers and sockets are named by it */
    assert_string_equal(first, "GPU-eb5365e8-b7fa-4040-b18a-55d0a62dfedc");
    assert_string_not_equal(first, other);
    assert_int_equal(first[18], '4');
}

static void test_a_bad_simulated_gpu_is_refused(void **state)
{
    static const struct {
        const char *name;
        uint64_t size;
        const char *why;
    } bad[] = {
        {"", 64 * MIB, "name"},     {"../x", 64 * MIB, "name"}, {"a,b", 64 * MIB, "name"},
        {"sim1", 0, "2 MiB"},       {"sim1", MIB, "2 MiB"},     {"sim1", 64 * MIB + 1, "2 MiB"},
    };
    int ordinal = -7;

    (void)state;
    sim_world_open("sim0", 64 * MIB);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char why[256] = "";

        assert_int_equal(driver_sim_add(&sim, sim_world_dir(), bad[i].name, bad[i].size, &ordinal,
                                        why, sizeof(why)),
                         -1);
        assert_non_null(strstr(why, bad[i].why));
    }
    assert_int_equal(ordinal, -7);
    sim_world_close();
}

static void test_an_error_has_a_name_and_a_text(void **state)
{
    const struct driver none = {0};
    char buffer[128];

    (void)state;
    sim_world_open("sim0", 64 * MIB);
    assert_string_equal(driver_error(&sim, CUDA_ERROR_OUT_OF_MEMORY, buffer),
                        "CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
    assert_string_equal(driver_error(&sim, (CUresult)12345, buffer), "CUDA error 12345");
    assert_string_equal(driver_error(&none, CUDA_ERROR_UNKNOWN, buffer), "CUDA error 999");
    sim_world_close();
}

static void test_a_segment_is_device_memory_with_an_fd(void **state)
{
    const CUmemAllocationProp prop = segment_prop(3);

    (void)state;
    assert_int_equal(prop.type, CU_MEM_ALLOCATION_TYPE_PINNED);
    assert_int_equal(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    assert_int_equal(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    assert_int_equal(prop.location.id, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_missing_library_is_named),
        cmocka_unit_test(test_the_table_is_complete_and_named_for_the_exports),
        cmocka_unit_test(test_a_uuid_is_written_as_nvml_does),
        cmocka_unit_test(test_a_simulated_gpus_uuid_is_its_names),
        cmocka_unit_test(test_a_bad_simulated_gpu_is_refused),
        cmocka_unit_test(test_an_error_has_a_name_and_a_text),
        cmocka_unit_test(test_a_segment_is_device_memory_with_an_fd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
