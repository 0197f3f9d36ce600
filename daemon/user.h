/*
 * user - what one uid may have of the daemon at a time
 *
 * Counts the connections, sessions, instances and requests of a uid and paces its
 * messages, so that one user can neither use up the daemon's descriptors and memory
 * nor keep its loop for itself. Root is not limited but by the protocol. Counting only:
 * who refuses, and with which words, is the caller's business.
 */
#ifndef DAEMON_USER_H
#define DAEMON_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct user_limits {
    size_t sessions, instances, requests;
    uint64_t messages_per_s; /* and as many at once */
};

struct user {
    uid_t uid;
    size_t n_connections; /* also those that have not said Hello */
    size_t n_sessions;    /* without tools */
    size_t n_instances;
    size_t n_requests; /* under way and parked */
    int64_t paid_until_ns; /* its messages so far, at the allowed pace, last until then */
    struct user *next; /* daemon.users */
};

void user_limits_init(struct user_limits *limits);

/* The uid's user for one more connection; NULL: no host memory. */
struct user *user_get(struct user **users, uid_t uid);
/* A connection less; the last one's takes it away. NULL is fine. */
void user_put(struct user **users, struct user *user);

/* Is there room for one more? For root always. */
bool user_has_room(const struct user *user, size_t n, size_t limit);

/* May it be read from now? If so and a message comes: user_spoke(). */
bool user_may_speak(const struct user *user, int64_t now_ns);
void user_spoke(struct user *user, const struct user_limits *limits, int64_t now_ns);

#endif
