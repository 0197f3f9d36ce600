/*
 * test_policy_ceiling - limits above the instances: shared by connections of one
 * name and user, lowered below what is held, raised again (CASES 13, 15, 19).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../support/policy_world.h"

static void set(struct policy *policy, enum policy_ceiling_kind kind, uint64_t limit,
                double percent)
{
    const struct policy_ceiling ceiling = { .kind = kind, .name = "solver",
                                            .id = kind == POLICY_CEILING_UID ? 1000 : 100,
                                            .limit = limit, .percent = percent };

    assert_int_equal(policy_set_ceiling(policy, &ceiling), CUBIEMEM_OK);
}

static void four_connections_share_one_ceiling(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *instances[4];
    struct policy_registration other = world_registration(9, "other");
    struct policy_instance *foreign;
    uint64_t length = 0;
    uint32_t warnings;

    (void)state;
    set(policy, POLICY_CEILING_NAME, 100, -1);
    for (policy_scope i = 0; i < 4; i++) {
        instances[i] = world_add(policy, i + 1, "s");
        world_queue(policy, instances[i], "x", 1, 40);
    }
    assert_int_equal(world_allocate(policy, instances[0], 1000, &length), CUBIEMEM_OK);
    assert_int_equal(world_allocate(policy, instances[1], 1000, &length), CUBIEMEM_OK);
    assert_int_equal(length, 40);
    assert_int_equal(world_allocate(policy, instances[2], 1000, &length), CUBIEMEM_OK);
    assert_int_equal(length, 20);
    assert_int_equal(world_allocate(policy, instances[3], 1000, &length), CUBIEMEM_RUN_TOO_LARGE);
    /* The same name of another user has a ceiling of its own. */
    other.identity.uid = 1001;
    assert_int_equal(policy_register(policy, &other, &foreign, &warnings), CUBIEMEM_OK);
    world_queue(policy, foreign, "x", 1, 100);
    assert_int_equal(world_allocate(policy, foreign, 1000, &length), CUBIEMEM_OK);
    assert_int_equal(length, 100);
    world_check(policy);
    policy_destroy(policy);
}

static void the_refusal_names_the_ceiling_and_its_room(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    struct policy_instance *a = world_add(policy, 1, "a");
    struct policy_refusal refusal;
    struct policy_plan *plan;

    (void)state;
    set(policy, POLICY_CEILING_GID, UINT64_MAX, 5); /* percent of the total */
    set(policy, POLICY_CEILING_UID, 40, -1);
    world_queue(policy, a, "x", 45, 10);
    assert_int_equal(policy_plan(policy, a, 1000, true, &plan, &refusal), CUBIEMEM_RUN_TOO_LARGE);
    assert_string_equal(refusal.limited_by, "uid 1000");
    assert_int_equal(refusal.largest, 40);
    assert_int_equal(refusal.asked, 450);
    assert_int_equal(refusal.held, 0);
    assert_int_equal(refusal.cap, 1000);
    assert_int_equal(refusal.free, 1000);
    assert_string_equal(refusal.instance, "a");
    assert_string_equal(refusal.label, "x");
    world_queue(policy, a, "x", 55, 10);
    set(policy, POLICY_CEILING_UID, UINT64_MAX, -1); /* gone */
    assert_int_equal(policy_plan(policy, a, 1000, true, &plan, &refusal), CUBIEMEM_RUN_TOO_LARGE);
    assert_string_equal(refusal.limited_by, "gid 100");
    assert_int_equal(refusal.largest, 50);
    policy_set_total(policy, 1200); /* 5 % of it is 60 */
    assert_int_equal(world_allocate(policy, a, 1000, NULL), CUBIEMEM_OK);
    world_check(policy);
    policy_destroy(policy);
}

static void lowered_below_what_is_held_nothing_is_taken_and_nothing_given(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    struct policy_instance *a = world_add(policy, 1, "a");
    uint64_t length = 0;

    (void)state;
    world_queue(policy, a, "x", 1, 300);
    assert_int_equal(world_allocate(policy, a, 1000, NULL), CUBIEMEM_OK);
    assert_false(policy_is_over_limit(policy, a));
    set(policy, POLICY_CEILING_UID, 100, -1);
    assert_true(policy_is_over_limit(policy, a));
    assert_int_equal(world_held(a), 300);
    world_queue(policy, a, "y", 1, 10);
    assert_int_equal(world_allocate(policy, a, 1000, NULL), CUBIEMEM_RUN_TOO_LARGE);
    /* In place of what it holds it may have what the ceiling allows. */
    world_queue(policy, a, "x", 1, 300);
    assert_int_equal(world_allocate(policy, a, 1000, &length), CUBIEMEM_OK);
    assert_int_equal(length, 100);
    assert_false(policy_is_over_limit(policy, a));
    set(policy, POLICY_CEILING_UID, 400, -1);
    world_queue(policy, a, "x", 1, 300);
    assert_int_equal(world_allocate(policy, a, 1000, &length), CUBIEMEM_OK);
    assert_int_equal(length, 300);
    world_check(policy);
    policy_destroy(policy);
}

static void of_two_at_the_same_moment_one_is_granted(void **state)
{
    struct policy *policy = world_create(1024, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "s"), *b = world_add(policy, 2, "s");
    struct policy_plan *plan;
    struct policy_refusal refusal;

    (void)state;
    set(policy, POLICY_CEILING_UID, 1024, -1);
    for (int round = 0; round < 1000; round++) {
        world_queue(policy, a, "x", 600, 1);
        world_queue(policy, b, "x", 600, 1);
        assert_int_equal(policy_plan(policy, a, 1024, true, &plan, &refusal), CUBIEMEM_OK);
        policy_reserve(policy, plan);
        {
            struct policy_plan *second = NULL;

            assert_int_equal(policy_plan(policy, b, 1024, true, &second, &refusal),
                             CUBIEMEM_UNCHUNKABLE_TOO_LARGE);
            assert_int_equal(refusal.largest, 424);
            assert_null(second);
        }
        policy_commit(policy, plan);
        policy_plan_destroy(plan);
        policy_release_all(policy, a);
        policy_unqueue(policy, b);
    }
    world_check(policy);
    policy_destroy(policy);
}

struct seen {
    size_t n;
    uint64_t used, limit;
};

static void see(const struct policy_ceiling_view *view, void *arg)
{
    struct seen *seen = arg;

    seen->n++;
    seen->used = view->used;
    seen->limit = view->limit;
}

static void ceilings_are_listed_where_somebody_stands_under_them(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *a;
    struct seen seen = { 0 };

    (void)state;
    set(policy, POLICY_CEILING_GID, UINT64_MAX, 12.5);
    policy_each_ceiling(policy, see, &seen);
    assert_int_equal(seen.n, 0);
    a = world_add(policy, 1, "a"); /* finds the ceiling that was there before */
    world_queue(policy, a, "x", 1, 70);
    assert_int_equal(world_allocate(policy, a, 1000, NULL), CUBIEMEM_OK);
    policy_each_ceiling(policy, see, &seen);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.used, 70);
    assert_int_equal(seen.limit, 125);
    policy_destroy(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_connections_share_one_ceiling),
        cmocka_unit_test(the_refusal_names_the_ceiling_and_its_room),
        cmocka_unit_test(lowered_below_what_is_held_nothing_is_taken_and_nothing_given),
        cmocka_unit_test(of_two_at_the_same_moment_one_is_granted),
        cmocka_unit_test(ceilings_are_listed_where_somebody_stands_under_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
