/*
 * plan - what an allocate would do, or why it cannot (rules 6, 7, 8 and 10)
 *
 * Pure: gathers the batch, measures it against the caps, the ceilings and the
 * device, chooses victims on a physical shortage, finds the chunk length and
 * writes all of it down for grant.c to carry out. A cap or a ceiling never
 * evicts: victims are taken only for a batch that fits under both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lot.h"

/* What one planning knows beside the batch. */
struct planning {
    struct batch batch;
    uint64_t free;
    bool empty;     /* `free` is a whole device: nothing of it is held, R neither */
    bool capped;    /* A is the caps' room, not the device's */
    bytes128 asked; /* total(L) */
    uint64_t length; /* n */
    uint32_t warnings;
    struct policy_instance **victims;
    size_t n_victims;
    bytes128 released;
};

static struct plan *plan_create(struct stream_group *group, size_t n_members)
{
    struct plan *plan = calloc(1, sizeof(*plan) + n_members * (sizeof(plan->members[0]) +
                                                               sizeof(struct policy_plan_member)));

    if (plan != NULL) {
        plan->group = group;
        plan->shown.members = (struct policy_plan_member *)(void *)&plan->members[n_members];
    }
    return plan;
}

static struct policy_partition partition_of(uint64_t runs, uint64_t length)
{
    uint64_t chunks = (runs - 1) / length + 1;

    return (struct policy_partition){
        .runs = runs,
        .chunks = chunks,
        .chunk_length = length,
        .tail_length = runs - (chunks - 1) * length,
    };
}

/* Rule 10.1: nothing is queued; the owner's members hear of the cached pair. */
static int plan_cached_pair(struct policy_instance *trigger, struct policy_plan **plan_p)
{
    const struct stay *stay = trigger->stay;
    struct plan *plan = plan_create(trigger->group, stay->has_pair ? stay->n_members : 0);

    if (plan == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    plan->shown.cached_pair = true;
    if (stay->has_pair) {
        plan->shown.partition = partition_of(stay->pair.runs, stay->pair.chunk_length);
        for (struct policy_instance *i = trigger->group->first; i != NULL; i = i->next_member) {
            if (i->stay == stay) {
                plan->shown.members[plan->shown.n_members++].instance = i;
            }
        }
    }
    *plan_p = &plan->shown;
    return CUBIEMEM_OK;
}

/* Are all ceilings wide enough for n? Their rooms are all but the first. */
static bool fits_under_ceilings(const struct batch *batch, uint64_t n)
{
    for (size_t i = 1; i < batch->n_rooms; i++) {
        if (chunk_total(&batch->chunk, n, batch->rooms[i].account) > batch->rooms[i].bytes) {
            return false;
        }
    }
    return true;
}

/* Rule 6: H, the victims, and A. */
static int planning_find_room(struct planning *p, bool may_evict)
{
    struct batch *batch = &p->batch;
    bool active = batch->policy->mode == POLICY_ACTIVE;
    uint64_t n = batch->bound != 0 ? batch->bound : batch->runs;
    bytes128 wanted = batch->bound != 0 ? chunk_total(&batch->chunk, n, NULL) : p->asked;
    bytes128 free_bytes = p->free + (p->empty ? 0 : batch->replaced);
    bytes128 h = 0;

    if (active) {
        bytes128 most = batch->caps + batch->replaced;

        h = most > batch->held ? most - batch->held : 0;
        if (20 * h < batch->caps || batch->caps == 0) {
            p->warnings |= CUBIEMEM_WARN_GROUP_NEARLY_FULL;
        }
    }
    if (may_evict && wanted > free_bytes && (!active || wanted <= h) &&
        fits_under_ceilings(batch, n)) {
        if (!evict_choose(batch->policy, batch->id, wanted - free_bytes, &p->victims,
                          &p->n_victims, &p->released)) {
            return CUBIEMEM_HOST_MEMORY;
        }
        free_bytes += p->released;
    }
    p->capped = active && h < free_bytes;
    batch->rooms[0].bytes = p->capped ? h : free_bytes;
    return CUBIEMEM_OK;
}

/* The refusal's figures as far as they are known, and who limits it. */
static int planning_refuse(const struct planning *p, int status, const struct room *room,
                           struct policy_refusal *refusal)
{
    refusal->largest = saturate(room->bytes);
    if (room->account != NULL) {
        account_describe(room->account, refusal->limited_by, sizeof(refusal->limited_by));
    } else {
        snprintf(refusal->limited_by, sizeof(refusal->limited_by), "%s",
                 p->capped ? "cap" : "device");
    }
    return status;
}

/* Rules 5, 7 and 8: n, or which array is too large for what. */
static int planning_find_length(struct planning *p, struct policy_refusal *refusal)
{
    const struct batch *batch = &p->batch;
    bytes128 a = batch->rooms[0].bytes;
    const struct room *misfit =
        batch_misfit(batch, batch->bound != 0 ? batch->bound : batch->runs);

    p->length = batch->bound != 0 ? batch->bound : batch->runs;
    if (misfit == NULL) {
        return CUBIEMEM_OK;
    }
    if (batch->bound != 0) {
        batch_blame(batch, batch->bound, misfit->account, refusal);
        refusal->why = "peers hold arrays of this chunk length; release them to cut it anew";
        return planning_refuse(p, CUBIEMEM_NO_MEMORY, misfit, refusal);
    }
    if (p->asked > a && p->free > 0 && p->asked > (bytes128)20 * p->free) {
        p->warnings |= CUBIEMEM_WARN_OVERSUBSCRIBED_20X;
    }
    misfit = batch_misfit(batch, 0);
    if (misfit != NULL) {
        batch_blame(batch, 0, misfit->account, refusal);
        return planning_refuse(p, CUBIEMEM_UNCHUNKABLE_TOO_LARGE, misfit, refusal);
    }
    misfit = batch_misfit(batch, 1);
    if (misfit != NULL) {
        batch_blame(batch, 1, misfit->account, refusal);
        return planning_refuse(p, CUBIEMEM_RUN_TOO_LARGE, misfit, refusal);
    }
    for (size_t i = 0; i < batch->n_rooms; i++) {
        const struct room *room = &batch->rooms[i];

        p->length = chunk_largest(&batch->chunk, p->length, room->bytes, room->account);
    }
    return CUBIEMEM_OK;
}

static bool plan_add_requester(struct plan *plan, const struct batch *batch,
                               const struct chunk_member *from, uint64_t n, uint64_t *next_id)
{
    struct policy_plan_member *member = &plan->shown.members[plan->shown.n_members];
    struct plan_member *hidden = &plan->members[plan->shown.n_members];
    struct lot *lot = lot_create(batch, from, n, next_id, &member->dropped);

    if (lot == NULL) {
        return false;
    }
    member->instance = (struct policy_instance *)(uintptr_t)from->instance;
    member->requester = true;
    member->blocks = lot->plan_blocks;
    member->n_blocks = lot->n_blocks;
    member->arrays = lot->arrays;
    member->n_arrays = lot->n_arrays;
    member->n_dropped = from->n_dropped;
    hidden->lot = lot;
    /* Until the commit the old blocks count, so only what is beyond them. */
    hidden->reserved = lot->charge > from->replaced ? saturate(lot->charge - from->replaced) : 0;
    plan->shown.wanted += (uint64_t)lot->charge;
    plan->shown.replaced += saturate(from->replaced);
    plan->shown.n_members++;
    return true;
}

/* Everything the commit will need; the victims pass to the plan. */
static struct plan *plan_write(struct planning *p)
{
    const struct batch *batch = &p->batch;
    struct plan *plan = plan_create(batch->group, batch->chunk.n_members + batch->n_peers);
    uint64_t next_id = 0;

    if (plan == NULL) {
        return NULL;
    }
    for (size_t m = 0; m < batch->chunk.n_members; m++) {
        if (!plan_add_requester(plan, batch, &batch->chunk.members[m], p->length, &next_id)) {
            policy_plan_destroy(&plan->shown);
            return NULL;
        }
    }
    for (struct policy_instance *i = batch->group->first; i != NULL && batch->n_peers > 0;
         i = i->next_member) {
        if (batch_is_peer(batch, i)) {
            plan->shown.members[plan->shown.n_members++].instance = i;
        }
    }
    plan->shown.partition = partition_of(batch->runs, p->length);
    plan->shown.warnings = p->warnings;
    plan->shown.asked = saturate(p->asked);
    plan->shown.victims = p->victims;
    plan->shown.n_victims = p->n_victims;
    plan->shown.victims_release = saturate(p->released);
    p->victims = NULL;
    return plan;
}

/* From the batch to its chunk length and victims. */
static int planning_run(struct planning *p, bool may_evict, struct policy_refusal *refusal)
{
    struct batch *batch = &p->batch;
    int status;

    p->asked = chunk_total(&batch->chunk, batch->runs, NULL);
    refusal->asked = saturate(p->asked);
    refusal->cap = saturate(batch->caps);
    refusal->held = saturate(batch->held);
    if (p->asked > INT64_MAX) {
        batch_blame(batch, batch->runs, NULL, refusal);
        refusal->why = "the batch is larger than 2^63-1 bytes";
        return CUBIEMEM_TOO_LARGE;
    }
    status = planning_find_room(p, may_evict);
    return status == CUBIEMEM_OK ? planning_find_length(p, refusal) : status;
}

int policy_plan(const struct policy *policy, struct policy_instance *trigger, uint64_t free_bytes,
                bool may_evict, struct policy_plan **plan_p, struct policy_refusal *refusal_p)
{
    struct planning p = { .free = free_bytes };
    struct policy_refusal refusal;
    struct plan *plan = NULL;
    int status;

    if (trigger->group->plan == NULL && trigger->group->first_queued == NULL) {
        status = plan_cached_pair(trigger, plan_p);
        if (status == CUBIEMEM_OK) {
            return CUBIEMEM_OK;
        }
    }
    memset(&refusal, 0, sizeof(refusal));
    refusal.free = free_bytes;
    refusal.largest = UINT64_MAX;
    if (trigger->group->plan != NULL) {
        refusal.why = "another batch of the group is being granted";
        status = CUBIEMEM_BUSY;
    } else if (trigger->group->first_queued == NULL) {
        status = CUBIEMEM_HOST_MEMORY;
    } else {
        status = batch_gather(policy, trigger, &p.batch, &refusal);
        if (status == CUBIEMEM_OK) {
            status = planning_run(&p, may_evict, &refusal);
        }
        if (status == CUBIEMEM_OK) {
            plan = plan_write(&p);
            status = plan != NULL ? CUBIEMEM_OK : CUBIEMEM_HOST_MEMORY;
        }
    }
    batch_finish(&p.batch);
    free(p.victims);
    if (status != CUBIEMEM_OK) {
        refusal.warnings = p.warnings;
        *refusal_p = refusal;
        return status;
    }
    *plan_p = &plan->shown;
    return CUBIEMEM_OK;
}

int policy_empty_chunks(const struct policy *policy, struct policy_instance *trigger,
                        uint64_t size, uint64_t *chunks_p)
{
    struct planning p = { .free = size, .empty = true };
    struct policy_refusal refusal;
    int status;

    if (trigger->group->first_queued == NULL) {
        *chunks_p = 1; /* rule 10.1: always granted */
        return CUBIEMEM_OK;
    }
    memset(&refusal, 0, sizeof(refusal));
    status = batch_gather(policy, trigger, &p.batch, &refusal);
    if (status == CUBIEMEM_OK) {
        status = planning_run(&p, false, &refusal);
    }
    if (status == CUBIEMEM_OK) {
        *chunks_p = partition_of(p.batch.runs, p.length).chunks;
    }
    batch_finish(&p.batch);
    return status;
}

uint64_t policy_fair_chunks(const struct policy *policy, struct policy_instance *trigger)
{
    uint64_t share = policy->total / (policy->processes.n > 0 ? policy->processes.n : 1);
    uint64_t chunks = 1;
    struct policy_refusal refusal;
    struct batch batch = { 0 };

    if (trigger->group->first_queued == NULL ||
        batch_gather(policy, trigger, &batch, &refusal) != CUBIEMEM_OK) {
        return 1; /* planning it says why */
    }
    if (chunk_total(&batch.chunk, 1, NULL) > share) {
        chunks = batch.runs;
    } else if (chunk_total(&batch.chunk, batch.runs, NULL) > share) {
        chunks = partition_of(batch.runs, chunk_largest(&batch.chunk, batch.runs, share, NULL))
                     .chunks;
    }
    batch_finish(&batch);
    return chunks;
}

void policy_plan_destroy(struct policy_plan *shown)
{
    struct plan *plan;

    if (shown == NULL) {
        return;
    }
    plan = container_of(shown, struct plan, shown);
    for (size_t m = 0; m < shown->n_members; m++) {
        lot_release(plan->members[m].lot);
    }
    free(shown->victims);
    free(plan);
}
