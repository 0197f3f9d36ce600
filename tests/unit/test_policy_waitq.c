/*
 * test_policy_waitq - who is served when, and which batches wait at all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../support/policy_world.h"
#include "waitq.h"

static void waiters_stand_by_their_numbers(void **state)
{
    struct waitq queue = { 0 };
    struct waiter waiters[5];
    static const size_t order[5] = { 2, 0, 4, 3, 1 };

    (void)state;
    assert_false(waitq_is_behind(&queue, 1));
    for (size_t i = 0; i < 5; i++) {
        waiters[i] = (struct waiter){ .number = 10 * (i + 1) };
        assert_int_equal(waitq_position(&queue, &waiters[i]), 0);
    }
    for (size_t i = 0; i < 5; i++) {
        waitq_enter(&queue, &waiters[order[i]]);
        waitq_enter(&queue, &waiters[order[i]]); /* it stands there already */
    }
    assert_int_equal(queue.n, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(waitq_position(&queue, &waiters[i]), i + 1);
    }
    assert_false(waitq_is_behind(&queue, 9));
    assert_false(waitq_is_behind(&queue, 10)); /* itself */
    assert_true(waitq_is_behind(&queue, 11));
    waitq_leave(&queue, &waiters[0]);
    waitq_leave(&queue, &waiters[0]);
    waitq_leave(&queue, &waiters[4]);
    waitq_leave(&queue, &waiters[2]);
    assert_int_equal(queue.n, 2);
    assert_ptr_equal(queue.first, &waiters[1]);
    assert_ptr_equal(queue.last, &waiters[3]);
    assert_false(waitq_is_behind(&queue, 15)); /* who was before it has gone */
    waitq_enter(&queue, &waiters[2]);
    assert_int_equal(waitq_position(&queue, &waiters[2]), 2);
    for (size_t i = 0; i < 5; i++) {
        waitq_leave(&queue, &waiters[i]);
    }
    assert_null(queue.first);
    assert_null(queue.last);
    assert_int_equal(queue.n, 0);
}

/* What is decided with so much free. */
static enum waitq_verdict judge(struct policy *policy, struct policy_instance *trigger,
                                uint64_t free_bytes, uint64_t max_chunks, uint64_t capacity,
                                uint64_t *ends_p)
{
    struct policy_refusal refusal = { 0 };
    struct policy_plan *plan = NULL;
    struct waitq_ask ask = { .max_chunks = max_chunks, .capacity = capacity };
    enum waitq_verdict verdict;

    ask.status = policy_plan(policy, trigger, free_bytes, false, &plan, &refusal);
    ask.chunks = plan != NULL ? plan->partition.chunks : 0;
    policy_plan_destroy(plan);
    verdict = waitq_judge(policy, trigger, &ask, ends_p);
    world_check(policy);
    return verdict;
}

static void the_default_is_what_an_equal_share_needs(void **state)
{
    struct policy *policy = world_create(1001, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "a");
    uint64_t ends = 0;

    (void)state;
    world_queue(policy, a, "x", 10, 90);
    assert_int_equal(policy_fair_chunks(policy, a), 1); /* 900 of 1001 */
    world_add(policy, 2, "b");
    world_add(policy, 2, "c"); /* of the same process */
    assert_int_equal(policy_fair_chunks(policy, a), 2); /* of 500: 50 runs, then 40 */
    world_add(policy, 3, "d");
    assert_int_equal(policy_fair_chunks(policy, a), 3); /* of 333: 33 runs */
    assert_int_equal(judge(policy, a, 300, 0, 1001, &ends), WAITQ_TAKE); /* 30, 30, 30 */
    assert_int_equal(ends, 3);
    assert_int_equal(judge(policy, a, 299, 0, 1001, &ends), WAITQ_WAIT); /* 4 chunks */
    assert_int_equal(judge(policy, a, 9, 0, 1001, &ends), WAITQ_WAIT);   /* not a run fits */
    assert_int_equal(judge(policy, a, 299, 4, 1001, &ends), WAITQ_TAKE);
    assert_int_equal(judge(policy, a, 300, 2, 1001, &ends), WAITQ_WAIT);
    assert_int_equal(judge(policy, a, 450, 2, 1001, &ends), WAITQ_TAKE);
    policy_destroy(policy);
}

static void one_run_above_the_share_takes_any_number_of_chunks(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "a");
    uint64_t ends = 0;

    (void)state;
    for (policy_scope scope = 2; scope <= 10; scope++) {
        world_add(policy, scope, "b");
    }
    world_queue(policy, a, "x", 150, 4); /* the share is 100 */
    assert_int_equal(policy_fair_chunks(policy, a), 4);
    assert_int_equal(judge(policy, a, 149, 0, 1000, &ends), WAITQ_WAIT);
    assert_int_equal(judge(policy, a, 150, 0, 1000, &ends), WAITQ_TAKE);
    assert_int_equal(ends, 4);
    policy_destroy(policy);
}

static void nobody_waits_for_what_an_empty_device_has_not(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "a"), *b = world_add(policy, 1, "b");
    uint64_t ends = 0;

    (void)state;
    /* Its own arrays and others' are not in the way of an empty device. */
    world_queue(policy, b, "held", 1, 800);
    assert_int_equal(world_allocate(policy, b, 1000, NULL), CUBIEMEM_OK);
    world_queue(policy, a, "x", 1000, 1);
    assert_int_equal(judge(policy, a, 200, 0, 1000, &ends), WAITQ_WAIT);
    world_queue(policy, a, "x", 1001, 1);
    assert_int_equal(judge(policy, a, 200, 0, 1000, &ends), WAITQ_REFUSE);
    /* 3 chunks are the fewest there can be, whatever is wished for. */
    world_queue(policy, a, "x", 10, 300);
    assert_int_equal(judge(policy, a, 999, 1, 1000, &ends), WAITQ_WAIT);
    assert_int_equal(ends, 3);
    assert_int_equal(judge(policy, a, 1000, 1, 1000, &ends), WAITQ_TAKE);
    /* Other programs hold 400: 5 chunks are the fewest without them. */
    assert_int_equal(judge(policy, a, 600, 1, 600, &ends), WAITQ_TAKE);
    assert_int_equal(judge(policy, a, 599, 1, 600, &ends), WAITQ_WAIT);
    assert_int_equal(ends, 5);
    /* What cannot be had at all while they are there waits for them to go. */
    world_queue(policy, a, "x", 700, 1);
    assert_int_equal(judge(policy, a, 600, 1, 600, &ends), WAITQ_WAIT);
    policy_destroy(policy);
}

static void nobody_waits_for_a_cap_or_a_ceiling(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    struct policy_instance *a = world_add(policy, 1, "a");
    struct policy_ceiling ceiling = {
        .kind = POLICY_CEILING_NAME, .name = "solver", .limit = 50, .percent = -1
    };
    uint64_t ends = 0;

    (void)state;
    world_add(policy, 2, "b"); /* half is the cap */
    world_queue(policy, a, "x", 10, 100);
    assert_int_equal(judge(policy, a, 1000, 1, 1000, &ends), WAITQ_TAKE); /* 2 chunks */
    assert_int_equal(judge(policy, a, 499, 1, 1000, &ends), WAITQ_WAIT);  /* the device's fault */
    world_queue(policy, a, "x", 501, 1);
    assert_int_equal(judge(policy, a, 0, 1, 1000, &ends), WAITQ_REFUSE);
    world_queue(policy, a, "x", 500, 1);
    assert_int_equal(judge(policy, a, 0, 1, 1000, &ends), WAITQ_WAIT);
    assert_int_equal(policy_set_ceiling(policy, &ceiling), CUBIEMEM_OK);
    assert_int_equal(judge(policy, a, 0, 1, 1000, &ends), WAITQ_REFUSE);
    world_queue(policy, a, "x", 10, 100);
    assert_int_equal(judge(policy, a, 500, 1, 1000, &ends), WAITQ_TAKE); /* 20 chunks */
    policy_destroy(policy);
}

static void a_bound_length_is_no_reason_to_wait(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_registration registration = world_registration(1, "b");
    struct policy_instance *a = world_add(policy, 1, "a"), *b;
    uint32_t warnings;
    uint64_t ends = 0, length = 0;

    (void)state;
    registration.owner = "a";
    assert_int_equal(policy_register(policy, &registration, &b, &warnings), CUBIEMEM_OK);
    world_queue(policy, b, "x", 1, 100);
    assert_int_equal(world_allocate(policy, b, 10, &length), CUBIEMEM_OK);
    assert_int_equal(length, 10);
    world_queue(policy, a, "y", 1, 100); /* its peer binds it to 10 chunks */
    assert_int_equal(judge(policy, a, 500, 1, 1000, &ends), WAITQ_TAKE);
    assert_int_equal(judge(policy, a, 9, 1, 1000, &ends), WAITQ_WAIT);
    policy_destroy(policy);
}

static void what_is_wrong_is_refused(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "a"), *b = world_add(policy, 1, "b");
    uint64_t ends = 0;

    (void)state;
    assert_int_equal(judge(policy, a, 0, 0, 1000, &ends), WAITQ_TAKE); /* nothing is queued */
    world_queue(policy, a, "x", 1, 100);
    world_queue(policy, b, "x", 1, 99);
    assert_int_equal(judge(policy, a, 0, 0, 1000, &ends), WAITQ_REFUSE);
    policy_destroy(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiters_stand_by_their_numbers),
        cmocka_unit_test(the_default_is_what_an_equal_share_needs),
        cmocka_unit_test(one_run_above_the_share_takes_any_number_of_chunks),
        cmocka_unit_test(nobody_waits_for_what_an_empty_device_has_not),
        cmocka_unit_test(nobody_waits_for_a_cap_or_a_ceiling),
        cmocka_unit_test(a_bound_length_is_no_reason_to_wait),
        cmocka_unit_test(what_is_wrong_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
