/*
 * transaction - one Allocate from the request to its answer, all or nothing
 *
 *     reading -> planned and reserved -> creating -> granted
 *        ^              |
 *        +-- evicting --+     (idle owners are asked for what they hold)
 *        +-- yielding --+     (what is replaced has to come back first)
 *        +-- waiting ---+     (for others to give back, see waiting.h)
 *
 * What the pool and the replaced blocks can back is granted at once. Otherwise
 * the device is read, the batch planned with the fresh figures, its bytes
 * promised, the missing segments made by the grant thread. A failure undoes all
 * of it. Transactions under way do not wait for each other, unless device memory is
 * short and somebody waits for it: who came later then gets by with what it gives up
 * itself, or waits behind. There is at most one of a stream group: messages that name
 * an instance of such a group are parked until it is over. One that waits has nothing
 * reserved and locks its group against another Allocate only.
 */
#ifndef DAEMON_TRANSACTION_H
#define DAEMON_TRANSACTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session.h"
#include "waiting.h"

enum transaction_state {
    TRANSACTION_READING,
    TRANSACTION_EVICTING,
    TRANSACTION_YIELDING,
    TRANSACTION_CREATING,
    TRANSACTION_WAITING,
};

/* Where one segment of a new block comes from. */
struct backing_part {
    struct block *block;     /* new; NULL: its instance is gone meanwhile */
    struct segment *segment; /* NULL: to be created, or made by a helper process */
    struct block *from;      /* held by this replaced block; NULL: cached or created */
    uint64_t size;
    enum cubiemem_handle_kind kind;
    bool missing; /* nothing was there for it: the grant thread or a helper makes it */
};

/* What stands behind a plan's new blocks. */
struct backing {
    struct backing_part *parts;
    size_t n_parts, room;
    struct block **blocks; /* new ones, of this transaction until it commits */
    size_t n_blocks, blocks_room;
    uint64_t taken;          /* bytes of the cached segments among them */
    uint64_t missing;        /* bytes of the parts that are to be created */
    uint64_t legacy_missing; /* bytes of those that helpers are to make */
};

/* One block that a helper process is asked for. */
struct legacy_want {
    struct transaction *transaction;
    size_t part; /* of its backing */
    struct legacy_want *next;
};

struct transaction {
    struct daemon *daemon;
    struct session *session; /* who asked; NULL once it is gone */
    struct instance *trigger;
    uint64_t request_id;
    enum transaction_state state;
    struct policy_plan *plan; /* reserved, or NULL */
    struct backing backing;
    struct grant_job job;
    uint64_t *job_sizes;
    bool job_running;
    struct legacy_want *legacy_wants; /* asked of helpers, not answered yet */
    int failure; /* of something under way; OK so far */
    CUresult cu_result;
    unsigned n_tries;
    bool yielded;       /* replaced arrays were given up before */
    bool may_evict;
    uint64_t earmarked; /* bytes that came back for it; promised */
    uint64_t own;       /* what of them it may plan with, whoever waits */
    struct wait wait;
    struct eviction_refusal *refusals; /* owners that did not give back */
    struct transaction *prev, *next; /* daemon.transactions */
};

/* Begins an Allocate; the answer goes out through answer.h, perhaps at once. */
void transaction_begin(struct session *session, struct instance *trigger, uint64_t request_id,
                       const struct wait_terms *terms);

/* Is one under way for the stream group of this instance? One that waits is, for what
 * would begin another or move its request (`waiting_too`). */
bool transaction_locks(const struct instance *instance, bool waiting_too);

/* Is its memory part of a plan whose bytes are being fetched? */
bool transaction_reserves(const struct instance *instance);
bool transaction_same_group(const struct instance *a, const struct instance *b);
/* Bytes that came back for this transaction are kept from others. */
void transaction_earmark(struct transaction *transaction, uint64_t size);

/* The session, or the instance, is about to end. */
void transactions_forget_session(struct daemon *daemon, struct session *session);
void transactions_forget_instance(struct daemon *daemon, const struct instance *instance);
/* False: no Allocate of this instance waits. */
bool transaction_cancel(struct instance *instance);
/* It waits: is it to go on? */
void transaction_reconsider(struct transaction *transaction);

/* Memory came back, or an owing session gave back: look again. */
void transactions_wake(struct daemon *daemon);

/* A job's reading goes into the books. */
void daemon_read_device(struct daemon *daemon, const struct grant_job *job);

/* creation.c */
/* Promises and makes what the backing misses; transaction_created() is called at the
 * end, from the loop. HOST_MEMORY: nothing was begun. */
int creation_start(struct transaction *transaction);
void transaction_created(struct transaction *transaction);

/* yield.c */
/* Undoes the plan and asks for what it replaces. False: it replaces nothing. */
bool yield_start(struct transaction *transaction);
/* Does another member of the group work in what it would be asked for? The whole group
 * would stand still for as long. */
bool yield_would_wait_for_work(const struct transaction *transaction);
bool yield_is_owed(const struct transaction *transaction);
/* These have come back: kept for the one that asked for them. */
void transactions_earmark_yielded(struct daemon *daemon, struct segment *list);

/* backing.c */
/* Finds what there is behind the plan's new blocks and lists what is missing.
 * Cached segments that it takes count as lent. HOST_MEMORY or OK. */
int backing_prepare(struct backing *backing, struct daemon *daemon, struct policy_plan *plan);
/* Takes back what prepare and the creation did. */
void backing_undo(struct backing *backing, struct daemon *daemon, struct policy_plan *plan);
/* The parts become their blocks' segments, held by their sessions. */
void backing_apply(struct backing *backing);
/* Leaves out what was meant for an instance that is going. Parts keep their
 * places, since somebody may be making some. */
void backing_forget_instance(struct backing *backing, struct daemon *daemon,
                             struct instance *instance);
/* Is this part to be made by a helper process? */
static inline bool backing_part_is_legacy(const struct backing_part *part)
{
    return part->kind == CUBIEMEM_HANDLE_LEGACY;
}
void backing_finish(struct backing *backing);

#endif
