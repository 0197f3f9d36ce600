/*
 * test_status - every status, warning and element type survives the way there
 * and back, and no two share a name or a code.
 */
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int statuses[] = {
#define STATUS_VALUE(name, value, text) CUBIEMEM_##name,
    CUBIEMEM_STATUS_MAP(STATUS_VALUE)
#undef STATUS_VALUE
};

static void statuses_go_there_and_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        int back = 1;

        assert_true(status_from_name(status_name(statuses[i]), &back));
        assert_int_equal(back, statuses[i]);
        assert_true(strlen(status_text(statuses[i])) > 0);
    }
    assert_string_equal(status_name(CUBIEMEM_NO_MEMORY), "NO_MEMORY");
}

static void unknown_codes_and_names_are_said_to_be_unknown(void **state)
{
    int status = 17, dtype = 17;

    (void)state;
    assert_string_equal(status_name(1), "UNKNOWN");
    assert_string_equal(status_name(-1000), "UNKNOWN");
    assert_string_equal(status_text(-1000), "unknown status");
    assert_string_equal(warning_name(3), "UNKNOWN");
    assert_false(status_from_name("no_memory", &status));
    assert_false(status_from_name("", &status));
    assert_int_equal(status, 17);
    assert_false(dtype_from_name("float128", &dtype));
    assert_int_equal(dtype, 17);
    assert_null(dtype_name(0));
    assert_null(dtype_name(15));
    assert_int_equal(dtype_size(0), 0);
    assert_int_equal(dtype_size(-1), 0);
}

static void warnings_have_names(void **state)
{
    (void)state;
    assert_string_equal(warning_name(CUBIEMEM_WARN_AUTO_POOL_LOW), "AUTO_POOL_LOW");
    assert_string_equal(warning_name(CUBIEMEM_WARN_GROUP_NEARLY_FULL), "GROUP_NEARLY_FULL");
    assert_string_equal(warning_name(CUBIEMEM_WARN_OVERSUBSCRIBED_20X), "OVERSUBSCRIBED_20X");
}

static void dtypes_have_the_sizes_of_the_specification(void **state)
{
    static const struct {
        const char *name;
        uint32_t size;
    } expected[] = { { "float64", 8 }, { "float32", 4 },   { "float16", 2 },    { "int64", 8 },
                     { "int32", 4 },   { "int16", 2 },     { "int8", 1 },       { "uint64", 8 },
                     { "uint32", 4 },  { "uint16", 2 },    { "uint8", 1 },      { "bool", 1 },
                     { "complex64", 8 }, { "complex128", 16 } };

    (void)state;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        int dtype = 0;

        assert_true(dtype_from_name(expected[i].name, &dtype));
        assert_int_equal(dtype_size(dtype), expected[i].size);
        assert_string_equal(dtype_name(dtype), expected[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_go_there_and_back),
        cmocka_unit_test(unknown_codes_and_names_are_said_to_be_unknown),
        cmocka_unit_test(warnings_have_names),
        cmocka_unit_test(dtypes_have_the_sizes_of_the_specification),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
