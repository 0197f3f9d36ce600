/*
 * model - the structs behind policy.h, for the files of the policy and its tests
 *
 * Who points to whom:
 *
 *     policy -> instance (in order of registration)
 *               instance -> owner    unit of eviction
 *                        -> group    its members, its queue, a plan under way
 *                        -> stay     its owner in its group: the cached pair
 *                        -> process -> user    the division of the auto pool
 *                        -> account  one for each kind of ceiling
 *                        -> held arrays -> blocks
 *
 * All but instances are counted by those who point to them and go with the
 * last. Sums of bytes are 128 bits wide: they may pass 2^63 (rule 5).
 */
#ifndef POLICY_MODEL_H
#define POLICY_MODEL_H

#include "exact_sum.h"
#include "policy.h"
#include "table.h"

typedef unsigned __int128 bytes128; /* a sum of sizes; exact */

struct owner {
    struct table_node node; /* policy::owners */
    struct owner *previous, *next; /* policy::first_owner */
    policy_scope scope;
    struct policy_instance *first, *last; /* in order of registration */
    uint64_t batch; /* policy_scratch::batch of the batch it is in */
    uint64_t marked; /* policy::clock of the grant that marked it */
    char name[];
};

struct stream_group {
    struct table_node node; /* policy::groups */
    bool shared;
    policy_scope scope; /* the session; of a shared group the uid */
    struct table stays;
    struct policy_instance *first, *last;             /* members, in order of joining */
    struct policy_instance *first_queued, *last_queued;
    struct plan *plan; /* reserved, neither committed nor aborted; or NULL */
    char name[];
};

/* An owner's presence in a group, and the chunk pair cached for it (rule 8). */
struct stay {
    struct table_node node; /* stream_group::stays */
    struct owner *owner;
    size_t n_members;
    bool has_pair;
    struct policy_partition pair;
};

struct user {
    struct table_node node; /* policy::users */
    uint32_t uid;
    size_t n_instances;
    size_t n_auto_processes;  /* with auto members */
    struct exact_sum manual;  /* of its instances' proportions */
};

struct process {
    struct table_node node; /* policy::processes */
    uint64_t key;
    struct user *user;
    size_t n_instances, n_auto;
};

/* A limit as the administrator set it. */
struct ceiling {
    struct ceiling *next; /* policy::ceilings */
    struct policy_ceiling rule; /* .name owned */
};

/* What is held under one ceiling, or would be if there were one. */
struct account {
    struct table_node node; /* policy::accounts */
    struct account *previous, *next; /* policy::first_account */
    enum policy_ceiling_kind kind;
    uint32_t id;  /* uid or gid; of a name's: the uid */
    size_t n_instances;
    bytes128 used; /* charged and reserved */
    const struct ceiling *ceiling; /* or NULL */
    uint64_t batch; /* as owner::batch */
    char name[];
};
#define N_ACCOUNTS 3u

/* What an instance was given by one commit, in one piece of host memory:
 * records of its arrays and blocks, with labels and shapes. It goes when the
 * last of them has gone and the plan with it. */
struct lot {
    size_t n_users; /* arrays and blocks held, and the plan */
    struct held *held;
    struct block *blocks;
    struct policy_array *arrays; /* what held[i] shows */
    struct policy_plan_block *plan_blocks;
    size_t n_arrays, n_blocks;
    bytes128 charge; /* of all blocks */
    uint64_t pinned; /* bytes; saturates */
};

struct block {
    struct policy_block shown;
    struct block *previous, *next; /* policy_instance::first_block */
    struct lot *lot;
    uint64_t batch; /* as owner::batch; with it: */
    size_t n_replaced; /* of its arrays, by that batch */
};

struct held {
    struct table_node node; /* policy_instance::labels */
    struct held *previous, *next; /* policy_instance::first_held */
    struct policy_array *array;
    struct block *block; /* NULL: pinned, or empty beside nothing */
    struct lot *lot;
};

struct request {
    struct array *arrays;
    uint64_t *hashes; /* of the labels */
    size_t n;
};

struct policy_instance {
    struct table_node node; /* policy::names */
    struct policy *policy;
    struct policy_instance *previous, *next;             /* policy */
    struct policy_instance *previous_owned, *next_owned; /* owner */
    struct policy_instance *previous_member, *next_member; /* stream_group */
    struct policy_instance *previous_queued, *next_queued; /* stream_group, if has_request */
    uint64_t number; /* order of registration */
    struct policy_identity identity; /* .client owned */
    char *name;
    struct owner *owner;
    struct stream_group *group;
    struct stay *stay;
    struct process *process;
    struct account *accounts[N_ACCOUNTS]; /* by kind; NULL: no name */
    void *data;

    /* quota */
    bool manual, evictable;
    double proportion; /* if manual */

    /* work */
    bool working;
    uint64_t time; /* policy::clock of its last mark; 0: never */

    /* request, batch */
    bool has_request;
    struct request request;
    bool in_plan;      /* of group->plan */
    uint64_t reserved; /* net bytes of it */
    uint64_t chunks;

    /* holdings */
    struct table labels;
    struct held *first_held, *last_held;
    struct block *first_block, *last_block;
    bytes128 allocated, pinned;
    size_t n_device; /* device arrays held, empty ones too */
};

/* Numbers that a pure plan uses up; no state. */
struct policy_scratch {
    uint64_t batch;
};

struct policy {
    uint64_t total, granularity, alignment;
    enum policy_mode mode;
    enum policy_auto_share auto_share;
    uint64_t clock;
    uint64_t last_number, last_block;
    struct policy_scratch *scratch;
    policy_block_gone_fn *block_gone;
    void *block_gone_arg;

    /* registry */
    struct table names, owners, groups, users, processes, accounts;
    struct policy_instance *first, *last;
    struct owner *first_owner, *last_owner;
    struct account *first_account, *last_account;
    struct ceiling *ceilings;

    /* auto pool */
    struct exact_sum manual;
    double rest; /* 1 - M, kept current */
    size_t n_auto, n_auto_processes, n_auto_users;
};

/* ------------------------------------------------------------------- lists */

/* Doubly linked lists by the names of their fields; ends kept by the holder. */
#define list_append(first, last, item, previous_of, next_of)                                       \
    do {                                                                                           \
        (item)->previous_of = (last);                                                              \
        (item)->next_of = NULL;                                                                    \
        *((last) != NULL ? &(last)->next_of : &(first)) = (item);                                  \
        (last) = (item);                                                                           \
    } while (0)
#define list_remove(first, last, item, previous_of, next_of)                                       \
    do {                                                                                           \
        *((item)->previous_of != NULL ? &(item)->previous_of->next_of : &(first)) =                \
            (item)->next_of;                                                                       \
        *((item)->next_of != NULL ? &(item)->next_of->previous_of : &(last)) =                     \
            (item)->previous_of;                                                                   \
        (item)->previous_of = NULL;                                                                \
        (item)->next_of = NULL;                                                                    \
    } while (0)

static inline uint64_t saturate(bytes128 bytes)
{
    return bytes > UINT64_MAX ? UINT64_MAX : (uint64_t)bytes;
}

/* ------------------------------------------------------------------- quota */

/* Return: OK, BAD_PROPORTION, QUOTA_OVERCOMMITTED, AUTO_POOL_TOO_SMALL.
 * `instance` NULL: one that is not in any pool yet, of `uid`. */
int quota_check_manual(const struct policy *policy, const struct policy_instance *instance,
                       uint32_t uid, double proportion, uint32_t *warnings_p);
int quota_check_auto(const struct policy *policy, const struct policy_instance *instance);
/* Into the pool that instance->manual says, and out of it. */
void quota_enter(struct policy *policy, struct policy_instance *instance);
void quota_leave(struct policy *policy, struct policy_instance *instance);
double quota_proportion(const struct policy_instance *instance);
uint64_t quota_cap(const struct policy_instance *instance);

/* ------------------------------------------------------------ stream_group */

/* NULL: not known (find), no host memory (get). */
struct stream_group *stream_group_find(const struct policy *policy, policy_scope scope,
                                       uint32_t uid, const char *name, bool shared);
struct stream_group *stream_group_get(struct policy *policy, policy_scope scope, uint32_t uid,
                                      const char *name, bool shared);
/* Takes it away if nobody is in it and no plan of it is reserved. */
void stream_group_put(struct policy *policy, struct stream_group *group);
struct stay *stay_get(struct stream_group *group, struct owner *owner);
void stay_put(struct stream_group *group, struct stay *stay);
/* The instance's group and stay are set; at the end of the members. */
void stream_group_join(struct policy_instance *instance);
void stream_group_leave(struct policy_instance *instance);
void stream_group_sums(const struct stream_group *group, bytes128 *caps_p, bytes128 *held_p);

/* ---------------------------------------------------------------- ceilings */

struct account *account_get(struct policy *policy, enum policy_ceiling_kind kind, uint32_t id,
                            const char *name);
void account_put(struct policy *policy, struct account *account);
/* All accounts of the instance. */
void accounts_add(struct policy_instance *instance, bytes128 bytes);
void accounts_subtract(struct policy_instance *instance, bytes128 bytes);
/* UINT64_MAX: none. */
uint64_t ceiling_limit(const struct policy *policy, const struct ceiling *ceiling);
uint64_t account_limit(const struct policy *policy, const struct account *account);
void ceilings_free(struct policy *policy);
/* "uid 1000" */
void account_describe(const struct account *account, char *text, size_t size);

/* ---------------------------------------------------------------- holdings */

struct held *holdings_find(const struct policy_instance *instance, const char *label,
                           uint64_t hash);
void holdings_drop(struct policy_instance *instance, struct held *held);
void holdings_drop_all(struct policy_instance *instance);
/* The lot's arrays replace those of their labels. */
void holdings_take(struct policy_instance *instance, struct lot *lot,
                   const struct request *request, uint64_t grant);
void lot_release(struct lot *lot); /* one use of it */

/* ------------------------------------------------------------------- evict */

/* Idle owners that are no owners of batch `batch`, oldest first, until they
 * release `wanted` bytes or none is left. NULL and *n_p = 0 if there is none.
 * False: no host memory. */
bool evict_choose(const struct policy *policy, uint64_t batch, bytes128 wanted,
                  struct policy_instance ***victims_p, size_t *n_p, bytes128 *released_p);
void owner_mark(struct policy *policy, struct owner *owner);

/* -------------------------------------------------------------------- plan */

struct plan {
    struct policy_plan shown;
    struct stream_group *group;
    bool reserved;
    struct plan_member {
        struct lot *lot; /* requesters */
        struct policy_block **dropped;
        uint64_t reserved; /* bytes to be booked between reserve and commit */
    } members[]; /* beside shown.members */
};

void request_free(struct request *request);
void request_remove(struct policy_instance *instance);

#endif
