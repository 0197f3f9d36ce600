/*
 * waitq - who waits for device memory, and whether a batch should
 *
 * First come first served: waiters stand in the order in which their requests came,
 * which is that of their numbers, whenever it was found that they have to wait. Who
 * came later than a waiter may plan with nothing but what it gives up itself
 * (waitq_is_behind); so what comes back collects for the first one.
 *
 * A batch waits only for physical memory: what caps, ceilings or the device's size
 * stand in the way of is answered at once. Pure, like all of the policy: times are
 * the caller's.
 */
#ifndef POLICY_WAITQ_H
#define POLICY_WAITQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy.h"

/* Part of whoever waits. */
struct waiter {
    uint64_t number; /* order of arrival; no two are equal */
    bool waits;      /* it stands in the queue */
    struct waiter *prev, *next; /* waitq::first */
};

struct waitq {
    struct waiter *first, *last; /* by number */
    size_t n;
};

/* Takes its place by its number. Nothing happens if it has one. */
void waitq_enter(struct waitq *queue, struct waiter *waiter);
/* Nothing happens if it does not stand there. */
void waitq_leave(struct waitq *queue, struct waiter *waiter);
/* 1 is first; 0: it does not wait. */
size_t waitq_position(const struct waitq *queue, const struct waiter *waiter);
/* Does somebody wait who came before this number? */
bool waitq_is_behind(const struct waitq *queue, uint64_t number);

/* What a request that may wait has asked for, and how it stands. */
struct waitq_ask {
    uint64_t max_chunks; /* 0: what the equal share needs, policy_fair_chunks() */
    uint64_t capacity;   /* bytes of the device that are not other programs' */
    int status;          /* of the plan with what is there now */
    uint64_t chunks;     /* of that plan, if OK */
};
enum waitq_verdict {
    WAITQ_TAKE,   /* it is cut into few enough chunks, or no wait would change that */
    WAITQ_WAIT,   /* physical memory lacks */
    WAITQ_REFUSE, /* even an empty device could not serve it */
};
/* *max_chunks_p: the number of chunks at which the wait ends. */
enum waitq_verdict waitq_judge(const struct policy *policy, struct policy_instance *trigger,
                               const struct waitq_ask *ask, uint64_t *max_chunks_p);

#endif
