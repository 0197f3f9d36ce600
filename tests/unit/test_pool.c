/*
 * test_pool - cached segments by user and size
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "pool.h"
#include "segment.h"

#define ALICE 1000
#define BOB 1001

static struct segment *segment_of(uint64_t size)
{
    struct segment *segment = calloc(1, sizeof(*segment));
    assert_non_null(segment);
    segment->size = size;
    return segment;
}

static void free_list(struct segment *list)
{
    while (list != NULL) {
        struct segment *next = list->next;
        free(list);
        list = next;
    }
}

static void a_fitting_segment_goes_first_then_the_largest_below(void **state)
{
    (void)state;
    struct pool *pool = pool_create();
    struct segment *two = segment_of(2), *eight = segment_of(8), *other_eight = segment_of(8);
    assert_true(pool_put(pool, ALICE, two));
    assert_true(pool_put(pool, ALICE, eight));
    assert_true(pool_put(pool, ALICE, other_eight));
    assert_int_equal(pool_size(pool), 18);
    assert_ptr_equal(pool_take(pool, ALICE, 8), other_eight); /* last in, first out */
    assert_ptr_equal(pool_take(pool, ALICE, 9), eight);
    assert_ptr_equal(pool_take(pool, ALICE, 7), two);
    assert_null(pool_take(pool, ALICE, 100));
    assert_int_equal(pool_size(pool), 0);
    free(two);
    free(eight);
    free(other_eight);
    pool_destroy(pool);
}

static void nothing_passes_from_one_user_to_another(void **state)
{
    (void)state;
    struct pool *pool = pool_create();
    struct segment *segment = segment_of(4);
    assert_true(pool_put(pool, ALICE, segment));
    assert_null(pool_take(pool, BOB, 4));
    assert_ptr_equal(pool_take(pool, ALICE, 4), segment);
    free(segment);
    pool_destroy(pool);
}

static void others_are_let_go_first_and_no_more_than_needed(void **state)
{
    (void)state;
    struct pool *pool = pool_create();
    for (int i = 0; i < 4; i++) {
        assert_true(pool_put(pool, ALICE, segment_of(10)));
        assert_true(pool_put(pool, BOB, segment_of(6)));
    }
    struct segment *gone = pool_evict(pool, ALICE, 12); /* two of Bob's */
    assert_non_null(gone);
    assert_int_equal(gone->size, 6);
    assert_int_equal(gone->next->size, 6);
    assert_null(gone->next->next);
    free_list(gone);
    assert_int_equal(pool_count(pool), 6);
    gone = pool_evict(pool, ALICE, 13); /* the rest of Bob's, then one of her own */
    uint64_t size = 0;
    for (struct segment *segment = gone; segment != NULL; segment = segment->next) {
        size += segment->size;
    }
    assert_int_equal(size, 22);
    free_list(gone);
    free_list(pool_evict(pool, ALICE, UINT64_MAX));
    assert_int_equal(pool_size(pool), 0);
    pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fitting_segment_goes_first_then_the_largest_below),
        cmocka_unit_test(nothing_passes_from_one_user_to_another),
        cmocka_unit_test(others_are_let_go_first_and_no_more_than_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
