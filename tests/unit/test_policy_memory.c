/*
 * test_policy_memory - the k-th allocation of host memory fails, for every k:
 * each operation answers HOST_MEMORY and leaves everything as it was, until k is
 * past its last allocation. Skipped under sanitizers, which own malloc.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../support/policy_reference.h"
#include "../support/policy_world.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SKIPPED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SKIPPED 1
#endif
#endif

#ifdef SKIPPED

int main(void)
{
    printf("skipped: the sanitizer has the allocator\n");
    return 77;
}

#else

static size_t until_failure; /* 0: none */

static int fails(void)
{
    return until_failure > 0 && --until_failure == 0;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);

/* Seen by libc too, whose strdup() is to fail as well. */
__attribute__((visibility("default"))) void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

/* What is tried again and again on the same policy. */
typedef int attempt_fn(struct policy *policy, struct policy_instance *instance);

/* The number of allocations that the attempt makes. */
static size_t try_all(attempt_fn *attempt, struct policy *policy, struct policy_instance *instance)
{
    for (size_t k = 1;; k++) {
        uint64_t before = reference_digest(policy);
        int status;

        until_failure = k;
        status = attempt(policy, instance);
        if (until_failure > 0) { /* not reached */
            until_failure = 0;
            assert_int_equal(status, CUBIEMEM_OK);
            world_check(policy);
            return k - 1;
        }
        world_check(policy);
        if (status != CUBIEMEM_OK) { /* a table that could not grow is no failure */
            assert_int_equal(status, CUBIEMEM_HOST_MEMORY);
            assert_true(reference_digest(policy) == before);
        } else {
            return k;
        }
    }
}

static int attempt_register(struct policy *policy, struct policy_instance *instance)
{
    struct policy_registration registration = world_registration(7, "new");
    struct policy_instance *made;
    uint32_t warnings;

    (void)instance;
    registration.group = "another";
    registration.identity.uid = 1007;
    registration.identity.gid = 107;
    registration.identity.client = "another";
    return policy_register(policy, &registration, &made, &warnings);
}

static int attempt_queue(struct policy *policy, struct policy_instance *instance)
{
    static char labels[][2] = { "x", "y" };
    int64_t shape[] = { 3, 10 };
    const struct array arrays[] = {
        { .label = labels[0], .shape = shape, .rank = 2, .dtype = CUBIEMEM_INT8,
          .memory = CUBIEMEM_DEVICE, .axis = 1, .total_runs = 1 },
        { .label = labels[1], .shape = shape, .rank = 2, .dtype = CUBIEMEM_INT8,
          .memory = CUBIEMEM_DEVICE, .axis = 1, .total_runs = 1 },
    };
    size_t culprit;
    const char *why;

    return policy_queue(policy, instance, arrays, 2, &culprit, &why);
}

static int attempt_plan(struct policy *policy, struct policy_instance *instance)
{
    struct policy_refusal refusal;
    struct policy_plan *plan;
    int status = policy_plan(policy, instance, 5, true, &plan, &refusal);

    if (status == CUBIEMEM_OK) {
        assert_int_equal(plan->n_victims, 1);
        policy_plan_destroy(plan);
    }
    return status;
}

static int attempt_notice(struct policy *policy, struct policy_instance *instance)
{
    struct policy_refusal refusal;
    struct policy_plan *plan;
    int status = policy_plan(policy, instance, 5, true, &plan, &refusal);

    if (status == CUBIEMEM_OK) {
        policy_plan_destroy(plan);
    }
    return status;
}

static int attempt_change_group(struct policy *policy, struct policy_instance *instance)
{
    return policy_change_group(policy, instance, "elsewhere", false);
}

static int attempt_set_ceiling(struct policy *policy, struct policy_instance *instance)
{
    const struct policy_ceiling ceiling = { .kind = POLICY_CEILING_NAME, .name = "solver",
                                            .limit = 900, .percent = -1 };

    (void)instance;
    return policy_set_ceiling(policy, &ceiling);
}

static void every_operation_survives_a_shortage(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "a"), *idle = world_add(policy, 2, "idle");

    (void)state;
    assert_true(try_all(attempt_notice, policy, a) >= 1);
    world_queue(policy, idle, "x", 100, 1);
    assert_int_equal(world_allocate(policy, idle, 1000, NULL), CUBIEMEM_OK);
    policy_end_work(policy, idle);
    assert_true(try_all(attempt_register, policy, NULL) >= 8);
    assert_true(try_all(attempt_queue, policy, a) >= 2);
    assert_true(try_all(attempt_plan, policy, a) >= 5);
    assert_true(try_all(attempt_change_group, policy, a) >= 2);
    assert_true(try_all(attempt_set_ceiling, policy, a) >= 2);
    policy_destroy(policy);
}

/* A commit takes no memory at all. */
static void a_commit_cannot_fail(void **state)
{
    struct policy *policy = world_create(1000, POLICY_PASSIVE);
    struct policy_instance *a = world_add(policy, 1, "a");
    struct policy_refusal refusal;
    struct policy_plan *plan;

    (void)state;
    world_queue(policy, a, "x", 10, 10);
    assert_int_equal(policy_plan(policy, a, 1000, true, &plan, &refusal), CUBIEMEM_OK);
    until_failure = 1;
    policy_reserve(policy, plan);
    policy_commit(policy, plan);
    assert_int_equal(until_failure, 1);
    until_failure = 0;
    policy_plan_destroy(plan);
    world_check(policy);
    policy_destroy(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_survives_a_shortage),
        cmocka_unit_test(a_commit_cannot_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
