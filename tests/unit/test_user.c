/*
 * test_user - counts and pace of a uid
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "user.h"

#define SECOND_NS 1000000000ll

static void a_user_lives_as_long_as_its_connections(void **state)
{
    struct user *users = NULL;
    struct user *first = user_get(&users, 1000);

    (void)state;
    assert_non_null(first);
    assert_ptr_equal(user_get(&users, 1000), first);
    struct user *other = user_get(&users, 1001);
    assert_ptr_not_equal(other, first);
    assert_int_equal(first->n_connections, 2);
    user_put(&users, first);
    user_put(&users, other);
    assert_ptr_equal(users, first);
    assert_null(users->next);
    user_put(&users, first);
    assert_null(users);
    user_put(&users, NULL);
}

static void root_has_room_and_others_up_to_the_limit(void **state)
{
    struct user root = {.uid = 0}, user = {.uid = 7};

    (void)state;
    assert_true(user_has_room(&root, SIZE_MAX, 3));
    assert_true(user_has_room(&user, 2, 3));
    assert_false(user_has_room(&user, 3, 3));
}

/* Messages taken at one moment. */
static unsigned burst(struct user *user, const struct user_limits *limits, int64_t now)
{
    unsigned n = 0;

    while (user_may_speak(user, now) && n < 100000) {
        user_spoke(user, limits, now);
        n++;
    }
    return n;
}

static void a_second_at_once_then_at_the_pace(void **state)
{
    const struct user_limits limits = {.messages_per_s = 1000};
    struct user user = {.uid = 7};
    int64_t now = 5 * SECOND_NS;

    (void)state;
    assert_int_equal(burst(&user, &limits, now), 1000);
    assert_int_equal(burst(&user, &limits, now), 0);
    assert_int_equal(burst(&user, &limits, now + SECOND_NS / 10), 100);
    assert_int_equal(burst(&user, &limits, now + 100 * SECOND_NS), 1000);
    user.uid = 0;
    assert_int_equal(burst(&user, &limits, now), 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_user_lives_as_long_as_its_connections),
        cmocka_unit_test(root_has_room_and_others_up_to_the_limit),
        cmocka_unit_test(a_second_at_once_then_at_the_pace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
