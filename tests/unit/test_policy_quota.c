/*
 * test_policy_quota - shares of the budget: what is left for whom as instances
 * come, change and go, and where the lines are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../support/policy_world.h"

static int add_manual(struct policy *policy, policy_scope scope, const char *name,
                      double proportion, uint32_t *warnings_p)
{
    struct policy_registration registration = world_registration(scope, name);
    struct policy_instance *instance;

    registration.manual = true;
    registration.proportion = proportion;
    return policy_register(policy, &registration, &instance, warnings_p);
}

static void the_auto_pool_is_divided_by_process_then_by_member(void **state)
{
    struct policy *policy = world_create(1200, POLICY_ACTIVE);
    struct policy_instance *a = world_add(policy, 1, "a"), *b, *c;

    (void)state;
    assert_int_equal(world_cap(a), 1200);
    b = world_add(policy, 1, "b");
    assert_int_equal(world_cap(a), 600);
    c = world_add(policy, 2, "c");
    assert_int_equal(world_cap(a), 300);
    assert_int_equal(world_cap(b), 300);
    assert_int_equal(world_cap(c), 600);
    policy_unregister(policy, b);
    assert_int_equal(world_cap(a), 600);
    policy_unregister(policy, c);
    assert_int_equal(world_cap(a), 1200);
    world_check(policy);
    policy_destroy(policy);
}

/* Users 1 and 2; user 1 has processes 1 and 2, process 1 has two instances. */
static void caps_with(enum policy_auto_share share, const uint64_t expected[4])
{
    const struct policy_config config = { .total = 1200, .granularity = 1, .alignment = 1,
                                          .auto_share = share };
    static const char *const names[] = { "a", "b", "c", "d" };
    static const unsigned int processes[] = { 1, 1, 2, 3 }, uids[] = { 1, 1, 1, 2 };
    struct policy *policy = policy_create(&config);
    struct policy_instance *instances[4];
    uint32_t warnings;

    for (size_t i = 0; i < 4; i++) {
        struct policy_registration registration = world_registration(processes[i], names[i]);

        registration.identity.uid = uids[i];
        assert_int_equal(policy_register(policy, &registration, &instances[i], &warnings),
                         CUBIEMEM_OK);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(world_cap(instances[i]), expected[i]);
    }
    world_check(policy);
    policy_destroy(policy);
}

static void the_auto_pool_can_be_divided_by_user_or_by_instance(void **state)
{
    (void)state;
    caps_with(POLICY_SHARE_PROCESS, (const uint64_t[]){ 200, 200, 400, 400 });
    caps_with(POLICY_SHARE_USER, (const uint64_t[]){ 150, 150, 300, 600 });
    caps_with(POLICY_SHARE_INSTANCE, (const uint64_t[]){ 300, 300, 300, 300 });
}

static void the_whole_may_be_given_away_but_no_more(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    uint32_t warnings = 99;

    (void)state;
    assert_int_equal(add_manual(policy, 1, "a", 0.95, &warnings), CUBIEMEM_OK);
    assert_int_equal(warnings, 0);
    assert_int_equal(add_manual(policy, 1, "b", 0.05, &warnings), CUBIEMEM_OK);
    assert_int_equal(warnings, CUBIEMEM_WARN_AUTO_POOL_LOW);
    assert_int_equal(add_manual(policy, 1, "c", 1e-6, &warnings), CUBIEMEM_QUOTA_OVERCOMMITTED);
    assert_int_equal(add_manual(policy, 1, "c", 0, &warnings), CUBIEMEM_OK);
    assert_int_equal(add_manual(policy, 1, "c", 0, &warnings), CUBIEMEM_ALREADY_REGISTERED);
    assert_null(policy_find(policy, 2, "c"));
    world_check(policy);
    policy_destroy(policy);
}

static void who_joins_the_auto_pool_needs_five_percent(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    struct policy_registration automatic = world_registration(1, "auto");
    struct policy_instance *instance = NULL;
    uint32_t warnings;

    (void)state;
    assert_int_equal(add_manual(policy, 1, "a", 0.96, &warnings), CUBIEMEM_OK);
    assert_int_equal(policy_register(policy, &automatic, &instance, &warnings),
                     CUBIEMEM_AUTO_POOL_TOO_SMALL);
    assert_null(instance);
    assert_int_equal(
        policy_set_proportion(policy, policy_find(policy, 1, "a"), 0.95, &warnings), CUBIEMEM_OK);
    assert_int_equal(policy_register(policy, &automatic, &instance, &warnings), CUBIEMEM_OK);
    assert_int_equal(
        policy_set_proportion(policy, policy_find(policy, 1, "a"), 0.96, &warnings),
        CUBIEMEM_AUTO_POOL_TOO_SMALL);
    assert_int_equal(world_cap(policy_find(policy, 1, "a")), 950);
    /* Its own place in the pool does not stand in its way. */
    assert_int_equal(policy_set_proportion(policy, instance, 0.05, &warnings), CUBIEMEM_OK);
    assert_int_equal(policy_set_auto(policy, instance), CUBIEMEM_OK);
    world_check(policy);
    policy_destroy(policy);
}

static void what_is_no_proportion_is_refused(void **state)
{
    static const double bad[] = { -0.1, 1.0000000001, __builtin_inf(), -__builtin_inf() };
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    uint32_t warnings = 99;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(add_manual(policy, 1, "a", bad[i], &warnings), CUBIEMEM_BAD_PROPORTION);
    }
    assert_int_equal(add_manual(policy, 1, "a", __builtin_nan(""), &warnings),
                     CUBIEMEM_BAD_PROPORTION);
    assert_int_equal(warnings, 99);
    assert_null(policy_next_instance(policy, NULL));
    policy_destroy(policy);
}

static void a_user_cannot_reserve_more_than_its_ceiling(void **state)
{
    struct policy *policy = world_create(1000, POLICY_ACTIVE);
    struct policy_ceiling ceiling = { .kind = POLICY_CEILING_UID, .id = 1000, .limit = 500,
                                      .percent = -1 };
    struct policy_registration other = world_registration(9, "other");
    struct policy_instance *instance;
    uint32_t warnings = 0;

    (void)state;
    assert_int_equal(policy_set_ceiling(policy, &ceiling), CUBIEMEM_OK);
    assert_int_equal(add_manual(policy, 1, "a", 1.0, &warnings), CUBIEMEM_QUOTA_OVERCOMMITTED);
    assert_int_equal(add_manual(policy, 1, "a", 0.3, &warnings), CUBIEMEM_OK);
    assert_int_equal(add_manual(policy, 2, "b", 0.2, &warnings), CUBIEMEM_OK);
    assert_int_equal(add_manual(policy, 2, "c", 0.01, &warnings), CUBIEMEM_QUOTA_OVERCOMMITTED);
    other.identity.uid = 1001;
    other.manual = true;
    other.proportion = 0.45;
    assert_int_equal(policy_register(policy, &other, &instance, &warnings), CUBIEMEM_OK);
    /* Lowered: what is, stays; it may shrink, and not grow. */
    ceiling.limit = 100;
    assert_int_equal(policy_set_ceiling(policy, &ceiling), CUBIEMEM_OK);
    instance = policy_find(policy, 1, "a");
    assert_int_equal(policy_set_proportion(policy, instance, 0.31, &warnings),
                     CUBIEMEM_QUOTA_OVERCOMMITTED);
    assert_int_equal(policy_set_proportion(policy, instance, 0.25, &warnings), CUBIEMEM_OK);
    world_check(policy);
    policy_destroy(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_auto_pool_is_divided_by_process_then_by_member),
        cmocka_unit_test(the_auto_pool_can_be_divided_by_user_or_by_instance),
        cmocka_unit_test(the_whole_may_be_given_away_but_no_more),
        cmocka_unit_test(who_joins_the_auto_pool_needs_five_percent),
        cmocka_unit_test(what_is_no_proportion_is_refused),
        cmocka_unit_test(a_user_cannot_reserve_more_than_its_ceiling),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
