/*
 * test_policy_exact_sum - sums that a loop of additions gets wrong, sums that are
 * taken apart again in another order, and the ties of the one rounding.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exact_sum.h"

static void assert_sum(const struct exact_sum *sum, double expected)
{
    double value = exact_sum_value(sum);

    assert_memory_equal(&value, &expected, sizeof(value));
}

static void ten_tenths_are_one(void **state)
{
    struct exact_sum sum = { { 0 } };
    double naive = 0;

    (void)state;
    for (int i = 0; i < 10; i++) {
        exact_sum_add(&sum, 0.1);
        naive += 0.1;
    }
    assert_true(naive != 1.0);
    assert_sum(&sum, 1.0);
}

static void nothing_is_lost_beside_a_large_number(void **state)
{
    struct exact_sum sum = { { 0 } };

    (void)state;
    exact_sum_add(&sum, 1.0);
    exact_sum_add(&sum, 1e-300);
    exact_sum_add(&sum, 0x1p-1074);
    assert_sum(&sum, 1.0);
    exact_sum_subtract(&sum, 1.0);
    assert_sum(&sum, 1e-300);
    exact_sum_subtract(&sum, 1e-300);
    assert_sum(&sum, 0x1p-1074);
    exact_sum_subtract(&sum, 0x1p-1074);
    assert_sum(&sum, 0.0);
}

static void ties_go_to_even_and_a_grain_breaks_them(void **state)
{
    struct exact_sum sum = { { 0 } };

    (void)state;
    exact_sum_add(&sum, 1.0);
    exact_sum_add(&sum, 0x1p-53); /* half a unit: to the even 1.0 */
    assert_sum(&sum, 1.0);
    exact_sum_add(&sum, 0x1p-1074);
    assert_sum(&sum, 1.0 + 0x1p-52);
    exact_sum_subtract(&sum, 0x1p-1074);
    exact_sum_add(&sum, 0x1p-52); /* one and a half: to the even 2 units */
    assert_sum(&sum, 1.0 + 0x1p-51);
}

static void rounding_up_may_carry_into_the_next_power(void **state)
{
    struct exact_sum sum = { { 0 } };

    (void)state;
    exact_sum_add(&sum, 1.0);
    exact_sum_add(&sum, 1.0 - 0x1p-53);
    exact_sum_add(&sum, 0x1p-54);
    assert_sum(&sum, 2.0);
}

static void subnormal_numbers_are_exact(void **state)
{
    struct exact_sum sum = { { 0 } };

    (void)state;
    exact_sum_add(&sum, 0x1p-1022 - 0x1p-1074);
    assert_sum(&sum, 0x1p-1022 - 0x1p-1074);
    exact_sum_add(&sum, 0x1p-1074);
    assert_sum(&sum, 0x1p-1022);
    exact_sum_add(&sum, 0x1.8p-1050);
    exact_sum_subtract(&sum, 0x1p-1022);
    assert_sum(&sum, 0x1.8p-1050);
}

static void many_come_and_go_and_leave_nothing(void **state)
{
    static double values[10000];
    struct exact_sum sum = { { 0 } }, empty = { { 0 } };
    uint64_t random = 1;

    (void)state;
    for (size_t i = 0; i < 10000; i++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        values[i] = (double)(random >> 11) * 0x1p-53;
        values[i] = i % 3 == 0 ? values[i] * 0x1p-400 : values[i];
        exact_sum_add(&sum, values[i]);
    }
    for (size_t i = 0; i < 10000; i++) { /* in another order */
        exact_sum_subtract(&sum, values[(i * 7919) % 10000]);
    }
    assert_memory_equal(&sum, &empty, sizeof(sum));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_tenths_are_one),
        cmocka_unit_test(nothing_is_lost_beside_a_large_number),
        cmocka_unit_test(ties_go_to_even_and_a_grain_breaks_them),
        cmocka_unit_test(rounding_up_may_carry_into_the_next_power),
        cmocka_unit_test(subnormal_numbers_are_exact),
        cmocka_unit_test(many_come_and_go_and_leave_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
