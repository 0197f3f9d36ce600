/*
 * test_checked - sums that just fit and just do not; sizes as people write them,
 * and what is no size.
 */
#include "checked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_last_sum_that_fits_fits(void **state)
{
    uint64_t x = 7;

    (void)state;
    assert_true(checked_add(UINT64_MAX - 1, 1, &x));
    assert_true(x == UINT64_MAX);
    x = 7;
    assert_false(checked_add(UINT64_MAX, 1, &x));
    assert_false(checked_mul(1ull << 32, 1ull << 32, &x));
    assert_int_equal(x, 7);
    assert_true(checked_mul(1ull << 32, (1ull << 32) - 1, &x));
    assert_true(sub_or_zero(3, 5) == 0);
    assert_true(sub_or_zero(5, 3) == 2);
}

static void rounding_up_never_wraps(void **state)
{
    uint64_t x = 7;

    (void)state;
    /* every size in the last step below 2^64 (CASES 26) */
    for (uint64_t size = UINT64_MAX - 510; size != 0; size++) {
        assert_false(checked_round_up(size, 512, &x));
    }
    assert_int_equal(x, 7);
    assert_true(checked_round_up(UINT64_MAX - 511, 512, &x));
    assert_true(x == UINT64_MAX - 511);
    assert_true(checked_round_up(0, 512, &x) && x == 0);
    assert_true(checked_round_up(1, 512, &x) && x == 512);
    assert_true(checked_round_up(512, 512, &x) && x == 512);
    assert_true(checked_round_up(513, 512, &x) && x == 1024);
    assert_true(checked_round_up(10, 3, &x) && x == 12);
}

static void sizes_are_read_as_written(void **state)
{
    static const struct {
        const char *text;
        uint64_t size;
    } good[] = {
        { "0", 0 },
        { "1048576", 1048576 },
        { "512B", 512 },
        { "500MB", 500000000 },
        { "16GiB", 16ull << 30 },
        { "16gib", 16ull << 30 },
        { "1kB", 1000 },
        { "2TB", 2000000000000 },
        { "1TiB", 1ull << 40 },
        { "1.5GiB", 3ull << 29 },
        { "0.5KiB", 512 },
        { "0.001kB", 1 },
        { "9223372036854775807", INT64_MAX },
        { "1.0", 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        uint64_t size = 7;

        assert_true(size_parse(good[i].text, &size));
        assert_true(size == good[i].size);
    }
}

static void what_is_no_size_is_refused(void **state)
{
    static const char *const bad[] = {
        "",     "-1",    "+1",   " 1",     "1 ",     "1 GiB", "GiB",    ".5GiB",
        "1.",   "1.GiB", "1..5", "1.5.5",  "1Gi",    "1G",    "1GIB",   "1gIb",
        "0x10", "1e9",   "nan",  "inf",    "0.3B",   "1.5",   "1GiBx",  "9223372036854775808",
        "80%",  "8388608TiB", "99999999999999999999", "0.00000000000000000000001kB",
    };
    uint64_t size = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(size_parse(bad[i], &size));
    }
    assert_int_equal(size, 7);
}

static void percentages_are_of_the_whole(void **state)
{
    uint64_t size = 7;

    (void)state;
    assert_true(size_parse_of("80%", 1000, &size) && size == 800);
    assert_true(size_parse_of("12.5%", 1000, &size) && size == 125);
    assert_true(size_parse_of("0%", 1000, &size) && size == 0);
    assert_true(size_parse_of("100%", INT64_MAX, &size) && size == INT64_MAX);
    assert_true(size_parse_of("33.3%", 10, &size) && size == 3);
    assert_true(size_parse_of("64MiB", 1000, &size) && size == 64 << 20);
    size = 7;
    assert_false(size_parse_of("100.1%", 1000, &size));
    assert_false(size_parse_of("101%", 1000, &size));
    assert_false(size_parse_of("-1%", 1000, &size));
    assert_false(size_parse_of("%", 1000, &size));
    assert_false(size_parse_of("5%%", 1000, &size));
    assert_int_equal(size, 7);
}

static void sizes_are_shown_short_and_never_rounded_up(void **state)
{
    char text[SIZE_TEXT_MAX];

    (void)state;
    assert_string_equal(size_format(0, text), "0 B");
    assert_string_equal(size_format(1023, text), "1023 B");
    assert_string_equal(size_format(64 << 20, text), "64 MiB");
    assert_string_equal(size_format(3ull << 29, text), "1.50 GiB");
    assert_string_equal(size_format((1ull << 30) - 1, text), "1023.9 MiB");
    assert_string_equal(size_format((2ull << 20) + 1, text), "2.00 MiB");
    assert_string_equal(size_format(UINT64_MAX, text), "15.99 EiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_sum_that_fits_fits),
        cmocka_unit_test(rounding_up_never_wraps),
        cmocka_unit_test(sizes_are_read_as_written),
        cmocka_unit_test(what_is_no_size_is_refused),
        cmocka_unit_test(percentages_are_of_the_whole),
        cmocka_unit_test(sizes_are_shown_short_and_never_rounded_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
