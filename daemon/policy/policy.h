/*
 * policy - who may hold how much memory of one device: the modules' one header
 *
 * Quotas, queued array requests, the split of a batch that does not fit, the
 * choice of what to evict and the order of who waits: plain C over plain
 * structs. No I/O, no clock, no threads, no driver. The specification is
 * tests/data/vectors/README.md; "rule N" in these files is a rule of it.
 *
 * An allocation has three steps, because memory has to be fetched in between:
 *
 *     policy_plan()    pure: partition, blocks, victims; or why not
 *     policy_reserve() the plan's bytes count from now on
 *     policy_commit()  the plan becomes what its instances hold; or
 *     policy_abort()   everything is as it was
 *
 * Between reserve and commit the caller changes nothing about the instances of
 * the plan, except that they may be unregistered (policy_plan_forget_instance
 * first). Every operation that fails leaves everything as it was.
 *
 * Ownership: strings and requests that go in are copied. A struct that comes
 * out by `const` pointer belongs to the policy and is valid until the next
 * call that changes anything.
 */
#ifndef POLICY_H
#define POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "array.h"
#include "cubiemem.h"

struct policy;
struct policy_instance;

enum policy_mode { POLICY_PASSIVE, POLICY_ACTIVE };
/* How the rest 1 - M is divided among the auto pool: equally among processes,
 * then their members (the specification); among users, their processes, their
 * members; or among members. */
enum policy_auto_share { POLICY_SHARE_PROCESS, POLICY_SHARE_USER, POLICY_SHARE_INSTANCE };

struct policy_config {
    uint64_t total;       /* bytes; in the daemon: the budget */
    uint64_t granularity; /* of a block, bytes, at least 1 */
    uint64_t alignment;   /* of an array in a block, bytes, at least 1 */
    enum policy_mode mode;
    enum policy_auto_share auto_share;
};

struct policy *policy_create(const struct policy_config *config);
/* With all instances; plans that are reserved are aborted before. */
void policy_destroy(struct policy *policy);

/* Names are scoped: the same owner, group or instance name in two scopes is
 * two of them. A scope is a session, or, for a shared group, a user. */
typedef uint64_t policy_scope;

/* Who an instance belongs to. */
struct policy_identity {
    policy_scope scope;   /* of instance, owner and group names: the session */
    uint64_t process;     /* equal for instances of one process; a key the caller makes */
    uint32_t uid, gid;
    const char *client;   /* name of the program, for ceilings by name; may be NULL */
};

struct policy_registration {
    struct policy_identity identity;
    const char *name;
    const char *group;       /* NULL: "default" */
    bool shared;             /* the group is common to all scopes of the same uid */
    const char *owner;       /* NULL: the name */
    bool manual;
    double proportion;       /* if manual */
    bool evictable;
};

/* ------------------------------------------------------------- instances */

/* Return: OK (with warnings), ALREADY_REGISTERED, BAD_PROPORTION,
 * QUOTA_OVERCOMMITTED, AUTO_POOL_TOO_SMALL, HOST_MEMORY. */
int policy_register(struct policy *policy, const struct policy_registration *registration,
                    struct policy_instance **instance_p, uint32_t *warnings_p);
/* Rule 2, release: out of pool, group and queue; its blocks are gone. */
void policy_unregister(struct policy *policy, struct policy_instance *instance);
struct policy_instance *policy_find(struct policy *policy, policy_scope scope, const char *name);

int policy_set_proportion(struct policy *policy, struct policy_instance *instance,
                          double proportion, uint32_t *warnings_p);
int policy_set_auto(struct policy *policy, struct policy_instance *instance);
void policy_set_mode(struct policy *policy, enum policy_mode mode);
void policy_set_total(struct policy *policy, uint64_t total);
int policy_change_group(struct policy *policy, struct policy_instance *instance,
                        const char *group, bool shared);

/* What can be read of an instance. Caps and proportions are current after
 * every operation. */
struct policy_instance_view {
    const char *name, *group, *owner;
    struct policy_identity identity;
    bool shared, manual, evictable, working, has_request;
    double proportion;
    uint64_t cap;        /* bytes */
    uint64_t allocated;  /* charged bytes of its blocks */
    uint64_t reserved;   /* net bytes of a plan under way */
    uint64_t pinned;     /* bytes of its pinned arrays */
    size_t n_arrays;     /* held, device and pinned */
    size_t n_queued;     /* arrays of its queued request */
    uint64_t chunks;     /* of its last batch, 0 before */
};
void policy_instance_read(const struct policy_instance *instance,
                          struct policy_instance_view *view_p);
/* The caller's own pointer, NULL at first. */
void policy_instance_set_data(struct policy_instance *instance, void *data);
void *policy_instance_data(const struct policy_instance *instance);

/* In order of registration; NULL at the end. first: previous = NULL. */
struct policy_instance *policy_next_instance(const struct policy *policy,
                                             const struct policy_instance *previous);

/* ------------------------------------------------------ arrays and blocks */

/* One unit of charge (rule 5) that an instance holds. */
struct policy_block {
    uint64_t id;     /* never 0, never used twice */
    uint64_t charge; /* bytes, a multiple of the granularity */
    size_t n_arrays; /* that lie in it */
    void *data;      /* the caller's: what is behind it */
};

struct policy_array {
    const char *label;
    uint64_t block_id; /* 0: pinned, or beside no array that has bytes */
    uint64_t offset;   /* bytes from the block's start, aligned */
    uint64_t nbytes;   /* of one chunk, not rounded */
    int dtype, memory;
    bool zeroed; /* asked to be */
    uint32_t rank;
    const int64_t *shape; /* of one chunk */
    uint64_t grant;       /* policy_plan::grant of the plan that placed it */
};

struct policy_block *policy_next_block(const struct policy_instance *instance,
                                       const struct policy_block *previous);
const struct policy_array *policy_find_array(const struct policy_instance *instance,
                                             const char *label);

/* Called for each block that is about to go, by any operation, with the
 * instance that held it. */
typedef void policy_block_gone_fn(struct policy_instance *instance,
                                  struct policy_block *block, void *arg);
void policy_set_block_gone(struct policy *policy, policy_block_gone_fn *fn, void *arg);

/* Rule 1's `free`: labels that are not held are fine. */
void policy_release_label(struct policy *policy, struct policy_instance *instance,
                          const char *label);
void policy_release_all(struct policy *policy, struct policy_instance *instance);
/* What plans of higher numbers placed stays. */
void policy_release_until(struct policy *policy, struct policy_instance *instance,
                          uint64_t grant);

/* ----------------------------------------------------------- work marks */

/* begin_work advances the policy's clock and marks the owner; end_work keeps
 * the time. The owner is named by one of its instances. */
void policy_begin_work(struct policy *policy, struct policy_instance *instance);
void policy_end_work(struct policy *policy, struct policy_instance *instance);

/*
 * The same as read elsewhere (the daemon: an owner's work word). The mark is set
 * or cleared; last_begin, if later than what is known, becomes the owner's time,
 * but never lies ahead of the clock.
 */
void policy_note_work(struct policy *policy, struct policy_instance *instance, bool working,
                      uint64_t last_begin);
/* The clock goes on to this time; it never goes back. */
void policy_set_clock(struct policy *policy, uint64_t time);

/* ---------------------------------------------------------------- batches */

/* Rule 4: check, copy, replace the instance's earlier request, keep its place
 * in the queue. culprit_p, why_p as in arrays_check(). BUSY while a plan with
 * the earlier request is reserved; so is policy_change_group(). */
int policy_queue(struct policy *policy, struct policy_instance *instance,
                 const struct array *arrays, size_t n, size_t *culprit_p, const char **why_p);
/* Takes the queued request back; nothing if there is none. */
void policy_unqueue(struct policy *policy, struct policy_instance *instance);

struct policy_partition {
    uint64_t runs, chunks, chunk_length, tail_length;
};

/* One new block of a plan and the arrays that will lie in it. */
struct policy_plan_block {
    uint64_t id;
    uint64_t charge;
    bool zeroed; /* an array in it asked to be */
    void *data; /* the caller's, handed on to the policy_block at commit */
};

/* What one instance gets by a plan. */
struct policy_plan_member {
    struct policy_instance *instance; /* NULL once forgotten */
    bool requester;                   /* false: a peer, notified without arrays */
    struct policy_plan_block *blocks; /* new blocks */
    size_t n_blocks;
    const struct policy_array *arrays; /* device and pinned; block_id among blocks */
    size_t n_arrays;
    /* Blocks that it holds now and that all arrays will have left. */
    struct policy_block **dropped;
    size_t n_dropped;
};

struct policy_plan {
    struct policy_partition partition;
    uint64_t grant; /* the caller's number for it, before it is committed */
    uint32_t warnings;
    bool cached_pair; /* rule 10.1: nothing was queued, only notices */
    uint64_t asked;   /* total(L), bytes */
    uint64_t wanted;  /* charges of the new blocks, bytes */
    uint64_t replaced; /* R: charges of the dropped ones */
    /* members[0 .. n) in the order of their ready events: requesters in queue
     * order, then peers. */
    struct policy_plan_member *members;
    size_t n_members;
    /* Instances to be evicted before, whole owners, oldest owner first. */
    struct policy_instance **victims;
    size_t n_victims;
    uint64_t victims_release; /* bytes */
};

/* Why a batch was refused, in bytes; for messages. */
struct policy_refusal {
    uint64_t asked;   /* total(L) */
    uint64_t held;    /* by the group's members */
    uint64_t cap;     /* sum of the group's caps */
    uint64_t free;
    uint64_t largest; /* what would fit in one chunk; UINT64_MAX: not known */
    char limited_by[300]; /* "cap", "device", "name x", "uid 1000", "gid 1000"; or "" */
    const char *instance; /* the first at fault, or NULL */
    const char *label;    /* the array at fault, or NULL */
    const char *why;      /* static text, or NULL */
    uint32_t warnings;
};

/*
 * Rules 6 to 8 and 10: what an allocate of `trigger` would do with `free` bytes
 * of device memory. Changes nothing. `may_evict` false: no victims are taken.
 * Block ids count from 1 within the plan until it is reserved. Ceilings hold in
 * both modes. An owner with an instance in a reserved plan is no victim.
 *
 * Return: OK and a plan (policy_plan_destroy), or INVALID_REQUEST, TOO_LARGE,
 * NO_MEMORY, UNCHUNKABLE_TOO_LARGE, RUN_TOO_LARGE, HOST_MEMORY, LIMIT (all
 * requests together have too many arrays), or BUSY while another plan of the
 * group is reserved, with *refusal_p.
 */
int policy_plan(const struct policy *policy, struct policy_instance *trigger, uint64_t free,
                bool may_evict, struct policy_plan **plan_p, struct policy_refusal *refusal_p);
void policy_plan_destroy(struct policy_plan *plan); /* before reserve, or after commit/abort */

/* Into how many chunks the batch would be cut on a device of `size` bytes of which
 * nobody holds any; caps and ceilings are as they are. The statuses of policy_plan(). */
int policy_empty_chunks(const struct policy *policy, struct policy_instance *trigger,
                        uint64_t size, uint64_t *chunks_p);
/* Rule 5's k with A = the equal share, trunc(total / processes that have instances);
 * where not even one run fits into that, as many chunks as there are runs. */
uint64_t policy_fair_chunks(const struct policy *policy, struct policy_instance *trigger);

/* The plan's net bytes count in caps and ceilings from now on. A plan is
 * reserved at once after it was made, with nothing changed in between. */
void policy_reserve(struct policy *policy, struct policy_plan *plan);
/* An instance of the plan, or a victim of it, is about to be unregistered: it is
 * left out. False if no requester is left. policy_unregister() does this itself
 * for members of a reserved plan. */
bool policy_plan_forget_instance(struct policy *policy, struct policy_plan *plan,
                                 struct policy_instance *instance);
/* Rule 10.4 to 10.7 and rule 8. The victims must have been evicted. */
void policy_commit(struct policy *policy, struct policy_plan *plan);
void policy_abort(struct policy *policy, struct policy_plan *plan);

/* Rule 6's eviction of one instance (the caller does all of an owner). */
void policy_evict(struct policy *policy, struct policy_instance *instance);

/* `available` (rule 6) for the instance's group, and what the instance's ceilings leave. */
uint64_t policy_available(const struct policy *policy, struct policy_instance *instance,
                          uint64_t free, uint32_t *warnings_p);
/* The same for a group by name, which need not be known: nobody has caps in it. */
uint64_t policy_available_in(const struct policy *policy, policy_scope scope, uint32_t uid,
                             const char *group, bool shared, uint64_t free,
                             uint32_t *warnings_p);

/* Sum of the caps of the instance's group, bytes. */
uint64_t policy_group_cap(const struct policy_instance *instance);

/* --------------------------------------------------------------- ceilings */

/* Limits in bytes above the instances. A request must fit under every ceiling
 * that stands above its instance; instances of one client name and user share
 * the name's. */
enum policy_ceiling_kind { POLICY_CEILING_NAME, POLICY_CEILING_UID, POLICY_CEILING_GID };
struct policy_ceiling {
    enum policy_ceiling_kind kind;
    const char *name; /* kind NAME */
    uint32_t id;      /* kind UID, GID */
    uint64_t limit;   /* bytes; UINT64_MAX: none */
    double percent;   /* >= 0: limit is this share of the total, and follows it */
};
/* Set, change or (limit UINT64_MAX and percent < 0) remove. Never takes memory away. */
int policy_set_ceiling(struct policy *policy, const struct policy_ceiling *ceiling);

struct policy_ceiling_view {
    struct policy_ceiling ceiling;
    uint32_t uid;      /* kind NAME: whose; names are counted per user */
    uint64_t limit;    /* bytes, now */
    uint64_t used;     /* charged and reserved below it */
};
/* Calls fn for every ceiling that somebody stands under. */
void policy_each_ceiling(const struct policy *policy,
                         void (*fn)(const struct policy_ceiling_view *, void *), void *arg);
/* Is this instance under a ceiling that is passed, or (active mode) above its
 * cap while its group is above the sum of its caps? */
bool policy_is_over_limit(const struct policy *policy, const struct policy_instance *instance);

/* Debug builds and tests: every sum agrees with what it sums. NULL if so, else
 * a static text. */
const char *policy_check(const struct policy *policy);

#endif
