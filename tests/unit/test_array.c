/*
 * test_array - what is a good ArrayRequest, how many bytes it has, and which
 * fault of a bad one is named first (rules 4 and 5; CASES 25 and 26).
 */
#include "array.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "protocol_limits.h"

/* struct array owns its label; here nobody frees it. */
static char *borrowed(const char *label)
{
    return (char *)(uintptr_t)label;
}

static struct array array_of(const char *label, int64_t *shape, uint32_t rank, int dtype)
{
    return (struct array){ .label = borrowed(label),
                           .shape = shape,
                           .rank = rank,
                           .dtype = dtype,
                           .memory = CUBIEMEM_DEVICE,
                           .axis = 2,
                           .total_runs = 1 };
}

static void check(const struct array *arrays, size_t n, int status, size_t at)
{
    size_t culprit = 99999;
    const char *why = NULL;

    assert_int_equal(arrays_check(arrays, n, &culprit, &why), status);
    if (status == CUBIEMEM_OK) {
        assert_int_equal(culprit, 99999);
        assert_null(why);
    } else {
        assert_int_equal(culprit, at);
        assert_non_null(why);
    }
}

static void a_chunk_has_n_runs_in_place_of_its_axis(void **state)
{
    int64_t shape[] = { 10, 3, 7 };
    struct array array = array_of("y", shape, 3, CUBIEMEM_FLOAT32);
    uint64_t bytes;

    (void)state;
    assert_true(array_is_chunkable(&array));
    assert_true(array_bytes(&array, UINT64_MAX, &bytes) && bytes == 840);
    assert_true(array_bytes(&array, 3, &bytes) && bytes == 360);
    array.unchunkable = true;
    assert_true(array_bytes(&array, 3, &bytes) && bytes == 840);
    array.unchunkable = false;
    array.axis = 3;
    assert_false(array_is_chunkable(&array));
    array.axis = CUBIEMEM_AXIS_NONE;
    assert_false(array_is_chunkable(&array));
    array.axis = 2;
    shape[2] = 1;
    assert_false(array_is_chunkable(&array));
    array.rank = 0;
    assert_true(array_bytes(&array, UINT64_MAX, &bytes) && bytes == 4);
}

static void products_do_not_wrap(void **state)
{
    int64_t wraps_to_10[] = { 2, 13, 419, 691, 823, 2977518503 };
    int64_t just_too_large[] = { (1ll << 61) - 1 };
    int64_t largest[] = { INT64_MAX };
    int64_t huge_but_empty[] = { INT64_MAX, INT64_MAX, INT64_MAX, 0 };
    struct array array = array_of("a", wraps_to_10, 6, CUBIEMEM_UINT8);
    uint64_t bytes = 7;

    (void)state;
    assert_false(array_bytes(&array, UINT64_MAX, &bytes));
    check(&array, 1, CUBIEMEM_TOO_LARGE, 0);
    array = array_of("a", just_too_large, 1, CUBIEMEM_FLOAT64);
    assert_false(array_bytes(&array, UINT64_MAX, &bytes));
    check(&array, 1, CUBIEMEM_TOO_LARGE, 0);
    assert_int_equal(bytes, 7);
    array = array_of("a", largest, 1, CUBIEMEM_UINT8);
    assert_true(array_bytes(&array, UINT64_MAX, &bytes) && bytes == INT64_MAX);
    check(&array, 1, CUBIEMEM_OK, 0);
    array.dtype = CUBIEMEM_INT16;
    check(&array, 1, CUBIEMEM_TOO_LARGE, 0);
    array = array_of("a", huge_but_empty, 4, CUBIEMEM_FLOAT64);
    assert_true(array_bytes(&array, UINT64_MAX, &bytes) && bytes == 0);
    check(&array, 1, CUBIEMEM_OK, 0);
}

static void each_field_is_checked(void **state)
{
    int64_t shape[33] = { 4, 0, 5 };
    char too_long[LIMIT_LABEL + 2];
    const struct array good = array_of("a", shape, 3, CUBIEMEM_BOOL);
    struct array array = good;

    (void)state;
    check(&good, 1, CUBIEMEM_OK, 0);
    check(NULL, 0, CUBIEMEM_OK, 0);
    memset(too_long, 'x', sizeof(too_long) - 1);
    too_long[LIMIT_LABEL + 1] = '\0';
    array.label = too_long;
    check(&array, 1, CUBIEMEM_INVALID_REQUEST, 0);
    too_long[LIMIT_LABEL] = '\0';
    check(&array, 1, CUBIEMEM_OK, 0);
    array.label = borrowed("");
    check(&array, 1, CUBIEMEM_INVALID_REQUEST, 0);
    array = good;
    array.rank = 33;
    check(&array, 1, CUBIEMEM_INVALID_REQUEST, 0);
    array.rank = 32;
    check(&array, 1, CUBIEMEM_OK, 0);
    array = good;
    array.dtype = 15;
    check(&array, 1, CUBIEMEM_INVALID_REQUEST, 0);
    array = good;
    array.memory = 3;
    check(&array, 1, CUBIEMEM_INVALID_REQUEST, 0);
    array = good;
    array.axis = -1;
    check(&array, 1, CUBIEMEM_INVALID_REQUEST, 0);
    array.axis = CUBIEMEM_AXIS_NONE;
    check(&array, 1, CUBIEMEM_OK, 0);
    array = good;
    array.total_runs = 0;
    check(&array, 1, CUBIEMEM_INVALID_REQUEST, 0);
    array = good;
    shape[2] = -1;
    check(&array, 1, CUBIEMEM_INVALID_REQUEST, 0);
}

static void malformed_comes_before_too_large(void **state)
{
    int64_t large[] = { INT64_MAX }, small[] = { -1 };
    struct array arrays[] = { array_of("a", large, 1, CUBIEMEM_FLOAT64),
                              array_of("b", small, 1, CUBIEMEM_FLOAT64) };

    (void)state;
    check(arrays, 2, CUBIEMEM_INVALID_REQUEST, 1);
    small[0] = 1;
    check(arrays, 2, CUBIEMEM_TOO_LARGE, 0);
    arrays[1].label = borrowed("a");
    check(arrays, 2, CUBIEMEM_INVALID_REQUEST, 1);
}

static void a_request_has_at_most_4096_arrays(void **state)
{
    static struct array arrays[LIMIT_ARRAYS_PER_BATCH + 1];
    static char labels[LIMIT_ARRAYS_PER_BATCH + 1][8];

    (void)state;
    for (size_t i = 0; i <= LIMIT_ARRAYS_PER_BATCH; i++) {
        snprintf(labels[i], sizeof(labels[i]), "%zu", i);
        arrays[i] = array_of(labels[i], NULL, 0, CUBIEMEM_INT8);
    }
    check(arrays, LIMIT_ARRAYS_PER_BATCH + 1, CUBIEMEM_LIMIT, LIMIT_ARRAYS_PER_BATCH);
    check(arrays, LIMIT_ARRAYS_PER_BATCH, CUBIEMEM_OK, 0);
    arrays[4000].label = labels[17];
    arrays[4001].label = labels[17];
    check(arrays, LIMIT_ARRAYS_PER_BATCH, CUBIEMEM_INVALID_REQUEST, 4000);
}

static void copies_share_nothing(void **state)
{
    int64_t shape[] = { 2, 3 };
    char label[] = "a";
    struct array arrays[] = { array_of(label, shape, 2, CUBIEMEM_INT8),
                              array_of("scalar", NULL, 0, CUBIEMEM_INT8) };
    struct array *copy = arrays_copy(arrays, 2);

    (void)state;
    assert_non_null(copy);
    label[0] = 'z';
    shape[1] = 99;
    assert_string_equal(copy[0].label, "a");
    assert_int_equal(copy[0].shape[1], 3);
    assert_string_equal(copy[1].label, "scalar");
    free(copy);
    copy = arrays_copy(NULL, 0);
    assert_non_null(copy);
    free(copy);
    arrays_free(NULL, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_has_n_runs_in_place_of_its_axis),
        cmocka_unit_test(products_do_not_wrap),
        cmocka_unit_test(each_field_is_checked),
        cmocka_unit_test(malformed_comes_before_too_large),
        cmocka_unit_test(a_request_has_at_most_4096_arrays),
        cmocka_unit_test(copies_share_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
