/*
 * waiting - a transaction that waits for device memory
 *
 * What the policy's queue (policy/waitq.h) leaves to the daemon: time-outs, what the
 * waiting client and `status` are told, and looking again when something may have
 * changed. It decides nothing: transaction.c plans, and comes back here if it is to
 * wait. A waiting transaction has nothing reserved and does not lock its group.
 */
#ifndef DAEMON_WAITING_H
#define DAEMON_WAITING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "waitq.h"

struct daemon;
struct transaction;

/* What an Allocate said of it. */
struct wait_terms {
    int64_t timeout_ns;  /* 0: it does not wait */
    uint64_t max_chunks; /* 0: the policy's */
};

/* A transaction's part. */
struct wait {
    struct waiter waiter; /* daemon.waitq; numbers are given to all transactions */
    struct wait_terms terms;
    int64_t deadline_ns;
    int64_t since_ns;    /* when it began to wait; 0: it never did */
    uint64_t asked;      /* bytes in one chunk, by the last plan */
    uint64_t max_chunks; /* at which the wait ends, by the last plan */
    bool cancelled;
    size_t told_position; /* by the last event */
    uint64_t told_holders;
    int64_t told_ns;
};

/* Every transaction: its number and its terms. */
void waiting_init(struct transaction *transaction, const struct wait_terms *terms);
/* Has it time left? */
bool waiting_may(const struct transaction *transaction);
/* Into the queue and out of it; both may be called in any state. */
void waiting_enter(struct transaction *transaction);
void waiting_leave(struct transaction *transaction);
/* Does somebody wait who came before it? */
bool waiting_is_behind(const struct transaction *transaction);

#define WAITING_MAX_HOLDERS 16u
struct waiting_view {
    size_t position; /* 1 is first */
    char reason[200];
    uint64_t holders[WAITING_MAX_HOLDERS]; /* clients, the largest first */
    size_t n_holders;
};
void waiting_read(const struct transaction *transaction, struct waiting_view *view_p);
/* The transaction of the queue's next waiter; NULL: the first, or no more. */
struct transaction *waiting_next(const struct daemon *daemon, const struct transaction *previous);

/* Something that they wait for may be there: they are looked at from the loop. */
void waiting_wake(struct daemon *daemon);
/* The look: from the loop alone, because it may grant. */
void waiting_serve(struct daemon *daemon);

#endif
