/*
 * test_policy_grant - a batch from plan to commit, and what may come between:
 * aborts, deaths, other batches, evictions, shared groups.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../support/policy_world.h"
#include "protocol_limits.h"

static struct policy_plan *plan(struct policy *policy, struct policy_instance *trigger,
                                uint64_t free_bytes)
{
    struct policy_refusal refusal;
    struct policy_plan *made = NULL;

    assert_int_equal(policy_plan(policy, trigger, free_bytes, true, &made, &refusal), CUBIEMEM_OK);
    return made;
}

static void an_abort_leaves_everything_as_it_was(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    struct policy_instance *a = world_add(policy, 1, "a");
    struct policy_instance_view view;
    struct policy_plan *made;

    (void)state;
    world_queue(policy, a, "x", 1, 100);
    assert_int_equal(world_allocate(policy, a, 1000, NULL), CUBIEMEM_OK);
    world_queue(policy, a, "x", 1, 150);
    made = plan(policy, a, 1000);
    assert_int_equal(made->wanted, 150);
    assert_int_equal(made->replaced, 100);
    assert_int_equal(made->members[0].n_dropped, 1);
    policy_reserve(policy, made);
    policy_instance_read(a, &view);
    assert_int_equal(view.allocated, 100);
    assert_int_equal(view.reserved, 50); /* what is beyond the old block */
    world_check(policy);
    policy_abort(policy, made);
    policy_plan_destroy(made);
    policy_instance_read(a, &view);
    assert_int_equal(view.reserved, 0);
    assert_true(view.has_request);
    assert_int_equal(policy_find_array(a, "x")->nbytes, 100);
    world_check(policy);
    policy_destroy(policy);
}

struct gone {
    size_t n;
    uint64_t charge, id;
    void *data;
};

static void count_gone(struct policy_instance *instance, struct policy_block *block, void *arg)
{
    struct gone *gone = arg;

    (void)instance;
    gone->n++;
    gone->charge = block->charge;
    gone->id = block->id;
    gone->data = block->data;
}

static void what_the_caller_put_behind_a_block_comes_back_with_it(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    struct policy_instance *a = world_add(policy, 1, "a");
    struct policy_block *block;
    struct policy_plan *made;
    struct gone gone = { 0 };
    uint64_t first_id;
    int thing;

    (void)state;
    policy_set_block_gone(policy, count_gone, &gone);
    world_queue(policy, a, "x", 1, 100);
    made = plan(policy, a, 1000);
    policy_reserve(policy, made);
    first_id = made->members[0].blocks[0].id;
    assert_true(first_id != 0);
    assert_true(made->members[0].arrays[0].block_id == first_id);
    made->members[0].blocks[0].data = &thing;
    policy_commit(policy, made);
    policy_plan_destroy(made);
    block = policy_next_block(a, NULL);
    assert_ptr_equal(block->data, &thing);
    assert_int_equal(block->id, first_id);
    assert_null(policy_next_block(a, block));
    assert_int_equal(gone.n, 0);
    world_queue(policy, a, "x", 1, 50); /* replaces it */
    assert_int_equal(world_allocate(policy, a, 1000, NULL), CUBIEMEM_OK);
    assert_int_equal(gone.n, 1);
    assert_int_equal(gone.charge, 100);
    assert_ptr_equal(gone.data, &thing);
    assert_true(policy_next_block(a, NULL)->id != first_id);
    policy_unregister(policy, a);
    assert_int_equal(gone.n, 2);
    assert_int_equal(gone.charge, 50);
    policy_destroy(policy);
}

static struct policy_instance *add_shared(struct policy *policy, policy_scope scope)
{
    struct policy_registration registration = world_registration(scope, "s");
    struct policy_instance *instance = NULL;
    uint32_t warnings;

    registration.shared = true;
    assert_int_equal(policy_register(policy, &registration, &instance, &warnings), CUBIEMEM_OK);
    return instance;
}

static void a_member_of_a_shared_group_that_dies_is_left_out(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    struct policy_instance *a = add_shared(policy, 1), *b = add_shared(policy, 2);
    struct policy_instance *c = add_shared(policy, 3);
    struct policy_plan *made;

    (void)state;
    world_queue(policy, a, "x", 1, 100);
    world_queue(policy, b, "x", 2, 100);
    made = plan(policy, c, 150);
    assert_int_equal(made->partition.chunk_length, 50);
    assert_int_equal(made->partition.chunks, 2);
    assert_int_equal(made->n_members, 3);
    assert_ptr_equal(made->members[2].instance, c); /* the trigger, without a request */
    assert_false(made->members[2].requester);
    policy_reserve(policy, made);
    policy_unregister(policy, a); /* nobody said that it would */
    assert_null(made->members[0].instance);
    assert_true(policy_plan_forget_instance(policy, made, c));
    policy_unregister(policy, c);
    world_check(policy);
    policy_commit(policy, made);
    policy_plan_destroy(made);
    assert_int_equal(world_held(b), 100);
    assert_int_equal(policy_find_array(b, "x")->shape[1], 50);
    world_check(policy);
    policy_destroy(policy);
}

static void nobody_is_left_and_nothing_happens(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    struct policy_instance *a = world_add(policy, 1, "a");
    struct policy_plan *made;

    (void)state;
    world_queue(policy, a, "x", 1, 100);
    made = plan(policy, a, 1000);
    policy_reserve(policy, made);
    assert_false(policy_plan_forget_instance(policy, made, a));
    policy_unregister(policy, a);
    policy_abort(policy, made);
    policy_plan_destroy(made);
    world_check(policy);
    policy_destroy(policy);
}

static void a_group_has_one_batch_under_way(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    struct policy_instance *a = add_shared(policy, 1), *b = add_shared(policy, 2);
    struct policy_plan *made, *second = NULL;
    struct policy_refusal refusal;
    size_t culprit;
    const char *why = NULL;

    (void)state;
    world_queue(policy, a, "x", 1, 100);
    made = plan(policy, a, 1000);
    policy_reserve(policy, made);
    world_queue(policy, b, "y", 1, 100); /* is in no plan: the next one's */
    assert_int_equal(policy_plan(policy, b, 1000, true, &second, &refusal), CUBIEMEM_BUSY);
    assert_non_null(refusal.why);
    assert_int_equal(policy_queue(policy, a, NULL, 0, &culprit, &why), CUBIEMEM_BUSY);
    assert_int_equal(policy_change_group(policy, a, "elsewhere", false), CUBIEMEM_BUSY);
    policy_commit(policy, made);
    policy_plan_destroy(made);
    assert_int_equal(world_held(a), 100);
    assert_int_equal(world_held(b), 0);
    assert_int_equal(world_allocate(policy, b, 900, NULL), CUBIEMEM_OK);
    assert_int_equal(world_held(b), 100);
    policy_destroy(policy);
}

static void the_oldest_idle_owner_goes_first(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "a"), *b = world_add(policy, 2, "b");
    struct policy_instance *c = world_add(policy, 3, "c");
    struct policy_plan *made;

    (void)state;
    world_queue(policy, a, "x", 1, 300);
    world_queue(policy, b, "x", 1, 300);
    world_queue(policy, c, "x", 400, 1);
    assert_int_equal(world_allocate(policy, a, 1000, NULL), CUBIEMEM_OK);
    assert_int_equal(world_allocate(policy, b, 700, NULL), CUBIEMEM_OK);
    policy_end_work(policy, b);
    policy_begin_work(policy, a); /* now b is the older one, and idle */
    made = plan(policy, c, 200);
    assert_int_equal(made->n_victims, 1);
    assert_ptr_equal(made->victims[0], b);
    assert_int_equal(made->victims_release, 300);
    policy_plan_destroy(made);
    policy_end_work(policy, a);
    policy_begin_work(policy, b);
    policy_end_work(policy, b); /* the time stays: a is older now */
    made = plan(policy, c, 200);
    assert_ptr_equal(made->victims[0], a);
    policy_plan_destroy(made);
    made = plan(policy, c, 50); /* both */
    assert_int_equal(made->n_victims, 2);
    assert_ptr_equal(made->victims[0], a);
    policy_plan_destroy(made);
    world_check(policy);
    policy_destroy(policy);
}

static void a_grant_not_yet_used_is_never_taken(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "a"), *b = world_add(policy, 2, "b");

    (void)state;
    world_queue(policy, a, "x", 600, 1);
    world_queue(policy, b, "x", 600, 1);
    assert_int_equal(world_allocate(policy, a, 1000, NULL), CUBIEMEM_OK);
    assert_int_equal(world_allocate(policy, b, 400, NULL), CUBIEMEM_UNCHUNKABLE_TOO_LARGE);
    assert_int_equal(world_held(a), 600);
    policy_end_work(policy, a);
    assert_int_equal(world_allocate(policy, b, 400, NULL), CUBIEMEM_OK);
    assert_int_equal(world_held(a), 0);
    policy_destroy(policy);
}

static void who_is_being_granted_something_is_no_victim(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "a"), *b = world_add(policy, 2, "b");
    struct policy_plan *made, *second = NULL;
    struct policy_refusal refusal;

    (void)state;
    world_queue(policy, a, "x", 600, 1);
    assert_int_equal(world_allocate(policy, a, 1000, NULL), CUBIEMEM_OK);
    policy_end_work(policy, a);
    world_queue(policy, a, "y", 100, 1);
    world_queue(policy, b, "x", 500, 1);
    made = plan(policy, a, 400);
    policy_reserve(policy, made);
    assert_int_equal(policy_plan(policy, b, 300, true, &second, &refusal),
                     CUBIEMEM_UNCHUNKABLE_TOO_LARGE);
    assert_string_equal(refusal.limited_by, "device");
    policy_commit(policy, made);
    policy_plan_destroy(made);
    policy_destroy(policy);
}

static void a_cap_never_evicts(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    struct policy_instance *a = world_add(policy, 1, "a"), *b = world_add(policy, 2, "b");
    struct policy_plan *made;

    (void)state;
    world_queue(policy, a, "x", 1, 400);
    assert_int_equal(world_allocate(policy, a, 1000, NULL), CUBIEMEM_OK);
    policy_end_work(policy, a);
    world_queue(policy, b, "x", 1, 600); /* its cap is 500 */
    made = plan(policy, b, 450);
    assert_int_equal(made->n_victims, 0);
    assert_int_equal(made->partition.chunk_length, 450);
    policy_plan_destroy(made);
    world_queue(policy, b, "x", 1, 500);
    made = plan(policy, b, 450);
    assert_int_equal(made->n_victims, 1);
    assert_int_equal(made->partition.chunks, 1);
    policy_plan_destroy(made);
    made = NULL;
    policy_destroy(policy);
}

static void without_leave_to_evict_the_batch_is_cut(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "a"), *b = world_add(policy, 2, "b");
    struct policy_refusal refusal;
    struct policy_plan *made = NULL;

    (void)state;
    world_queue(policy, a, "x", 1, 800);
    assert_int_equal(world_allocate(policy, a, 1000, NULL), CUBIEMEM_OK);
    policy_end_work(policy, a);
    world_queue(policy, b, "x", 1, 800);
    assert_int_equal(policy_plan(policy, b, 200, false, &made, &refusal), CUBIEMEM_OK);
    assert_int_equal(made->n_victims, 0);
    assert_int_equal(made->partition.chunks, 4);
    policy_plan_destroy(made);
    policy_destroy(policy);
}

static void notices_repeat_the_cached_pair(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "a");
    struct policy_plan *made;

    (void)state;
    made = plan(policy, a, 0);
    assert_true(made->cached_pair);
    assert_int_equal(made->n_members, 0);
    policy_plan_destroy(made);
    world_queue(policy, a, "x", 1, 7);
    assert_int_equal(world_allocate(policy, a, 3, NULL), CUBIEMEM_OK);
    made = plan(policy, a, 0);
    assert_true(made->cached_pair);
    assert_int_equal(made->n_members, 1);
    assert_int_equal(made->partition.chunks, 3);
    assert_int_equal(made->partition.tail_length, 1);
    policy_reserve(policy, made);
    policy_commit(policy, made);
    policy_plan_destroy(made);
    world_check(policy);
    policy_destroy(policy);
}

static void a_batch_has_at_most_4096_arrays(void **state)
{
    static char labels[LIMIT_ARRAYS_PER_BATCH][8];
    static struct array arrays[LIMIT_ARRAYS_PER_BATCH];
    struct policy *policy = world_create(1 << 20, POLICY_ACTIVE);
    struct policy_instance *a = world_add(policy, 1, "a"), *b = world_add(policy, 1, "b");
    struct policy_refusal refusal;
    struct policy_plan *made = NULL;
    size_t culprit;
    const char *why;

    (void)state;
    for (size_t i = 0; i < LIMIT_ARRAYS_PER_BATCH; i++) {
        snprintf(labels[i], sizeof(labels[i]), "%zu", i);
        arrays[i] = (struct array){ .label = labels[i], .dtype = CUBIEMEM_INT8,
                                    .memory = CUBIEMEM_DEVICE, .total_runs = 1 };
    }
    assert_int_equal(policy_queue(policy, a, arrays, LIMIT_ARRAYS_PER_BATCH, &culprit, &why),
                     CUBIEMEM_OK);
    world_queue(policy, b, "one more", 1, 1);
    assert_int_equal(policy_plan(policy, a, 1 << 20, true, &made, &refusal), CUBIEMEM_LIMIT);
    assert_non_null(refusal.why);
    policy_unqueue(policy, b);
    assert_int_equal(world_allocate(policy, a, 1 << 20, NULL), CUBIEMEM_OK);
    assert_int_equal(world_held(a), LIMIT_ARRAYS_PER_BATCH);
    policy_release_label(policy, a, "17");
    policy_release_label(policy, a, "17"); /* is not held: fine */
    assert_int_equal(world_held(a), LIMIT_ARRAYS_PER_BATCH - 1);
    world_check(policy);
    policy_destroy(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_abort_leaves_everything_as_it_was),
        cmocka_unit_test(what_the_caller_put_behind_a_block_comes_back_with_it),
        cmocka_unit_test(a_member_of_a_shared_group_that_dies_is_left_out),
        cmocka_unit_test(nobody_is_left_and_nothing_happens),
        cmocka_unit_test(a_group_has_one_batch_under_way),
        cmocka_unit_test(the_oldest_idle_owner_goes_first),
        cmocka_unit_test(a_grant_not_yet_used_is_never_taken),
        cmocka_unit_test(who_is_being_granted_something_is_no_victim),
        cmocka_unit_test(a_cap_never_evicts),
        cmocka_unit_test(without_leave_to_evict_the_batch_is_cut),
        cmocka_unit_test(notices_repeat_the_cached_pair),
        cmocka_unit_test(a_batch_has_at_most_4096_arrays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
