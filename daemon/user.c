/*
 * user - what one uid may have of the daemon at a time, see user.h
 *
 * The pace is kept with one time: each message moves it on by the interval between
 * two, from now at the earliest, and while it lies more than a second ahead nobody
 * of that uid is read.
 */
#include "user.h"

#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#include "protocol_limits.h"

#define SECOND_NS 1000000000ll

void user_limits_init(struct user_limits *limits)
{
    *limits = (struct user_limits){
        .sessions = LIMIT_USER_SESSIONS,
        .instances = LIMIT_USER_INSTANCES,
        .requests = LIMIT_USER_REQUESTS,
        .messages_per_s = LIMIT_USER_MESSAGES_PER_S,
    };
#ifdef CUBIEMEM_TEST_SEAMS
    const char *small = getenv("CUBIEMEM_TEST_USER_LIMITS");
    unsigned long long messages;
    if (small != NULL && sscanf(small, "%zu,%zu,%zu,%llu", &limits->sessions, &limits->instances,
                                &limits->requests, &messages) == 4) {
        limits->messages_per_s = messages;
    }
#endif
}

struct user *user_get(struct user **users, uid_t uid)
{
    struct user *user = *users;
    while (user != NULL && user->uid != uid) {
        user = user->next;
    }
    if (user == NULL) {
        user = calloc(1, sizeof(*user));
        if (user == NULL) {
            return NULL;
        }
        user->uid = uid;
        LL_PREPEND(*users, user);
    }
    user->n_connections++;
    return user;
}

void user_put(struct user **users, struct user *user)
{
    if (user != NULL && --user->n_connections == 0) {
        LL_DELETE(*users, user);
        free(user);
    }
}

bool user_has_room(const struct user *user, size_t n, size_t limit)
{
    return user->uid == 0 || n < limit;
}

bool user_may_speak(const struct user *user, int64_t now_ns)
{
    return user->uid == 0 || user->paid_until_ns - now_ns < SECOND_NS;
}

void user_spoke(struct user *user, const struct user_limits *limits, int64_t now_ns)
{
    if (user->paid_until_ns < now_ns) {
        user->paid_until_ns = now_ns;
    }
    user->paid_until_ns += SECOND_NS / (int64_t)limits->messages_per_s;
}
