/*
 * eviction - asking an idle owner to give everything back
 *
 * The policy chooses by what the work words say; the client's library decides
 * (DESIGN 3.8): it answers Invalidate with the memory, or with busy. Nobody waits
 * longer than the eviction timeout for an answer; one that comes later is still
 * taken. What comes back is earmarked for the transaction that asked.
 */
#ifndef DAEMON_EVICTION_H
#define DAEMON_EVICTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon.h"

struct evict_order;
struct session;
struct transaction;

/* One owner that was asked and has not answered. */
struct eviction {
    uint64_t id;
    struct session *session;
    uint32_t owner_slot;
    struct transaction *transaction; /* that waits; NULL: nobody does any more */
    struct evict_order *order;       /* an administrator's that waits, or NULL */
    int64_t asked_ns;
    struct eviction *prev, *next; /* daemon.evictions */
};

/* An owner that answered busy, or not at all, to a transaction. */
struct eviction_refusal {
    uint64_t session_id;
    uint32_t owner_slot;
    int64_t at_ns;
    struct eviction_refusal *next; /* transaction.refusals */
};

/* The marks of everybody's work words, as the policy should see them for this
 * transaction: who refused it counts as working. */
void evictions_note_marks(struct daemon *daemon, const struct transaction *transaction);

/* Asks the owners of these instances. False if nobody could be asked. */
bool evictions_ask(struct transaction *transaction, struct policy_instance *const *victims,
                   size_t n);

/* Asks one owner on an administrator's order, which hears of the outcome. False: it is
 * being asked for another order, or host memory is short. */
bool eviction_order(struct session *session, uint32_t owner_slot, struct evict_order *order);

/* False: nothing of that id was asked of this session, or it is too late to be true. */
bool eviction_answered(struct session *session, uint64_t id, bool busy);

/* Does the transaction wait for an answer: to it, or of a member of its group? */
bool evictions_pending(const struct transaction *transaction);

void evictions_forget_session(struct daemon *daemon, struct session *session);
void evictions_forget_transaction(struct transaction *transaction);

#endif
