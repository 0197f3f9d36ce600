/*
 * test_placement - whose the labels of a list are, whatever lay in its memory before
 */
#include "placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct placements list_of(const char *label)
{
    struct placements list;

    memset(&list, 1, sizeof list); /* as the stack may be */
    assert_true(placements_init(&list, 1));
    list.items[0].label = strdup(label);
    assert_non_null(list.items[0].label);
    return list;
}

static void a_new_list_owns_its_labels(void **state)
{
    struct placements list = list_of("a");

    (void)state;
    assert_int_equal(list.n, 1);
    assert_false(list.described);
    placements_finish(&list, NULL);
}

/* What a merge and a removal hand out own theirs, too: nothing leaks. */
static void lists_that_come_of_others_own_their_labels(void **state)
{
    struct placements held = list_of("a"), fresh = list_of("a"), replaced, removed, copy;

    (void)state;
    memset(&replaced, 1, sizeof replaced);
    memset(&removed, 1, sizeof removed);
    assert_true(placements_describe(&held, &copy));
    assert_true(copy.described);
    placements_finish(&copy, NULL);
    assert_true(placements_merge(&held, &fresh, &replaced));
    assert_false(held.described);
    assert_false(replaced.described);
    assert_int_equal(replaced.n, 1);
    placements_finish(&replaced, NULL);
    assert_true(placements_remove(&held, NULL, 0, &removed));
    assert_false(removed.described);
    assert_int_equal(removed.n, 1);
    placements_finish(&removed, NULL);
    placements_finish(&held, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_list_owns_its_labels),
        cmocka_unit_test(lists_that_come_of_others_own_their_labels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
