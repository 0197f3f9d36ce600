/*
 * grant - a plan is carried out: reserve, commit or abort (rules 8 and 10)
 *
 * From reserve on the plan's bytes count in caps and ceilings, and the group's
 * next plan has to wait. Committing needs no memory and cannot fail: records
 * were made with the plan. An instance that leaves in between is left out, and
 * nobody else notices.
 */
#include <assert.h>
#include <stdlib.h>

#include "model.h"

void policy_reserve(struct policy *policy, struct policy_plan *shown)
{
    struct plan *plan = container_of(shown, struct plan, shown);
    uint64_t first = policy->last_block;

    assert(!plan->reserved && plan->group->plan == NULL);
    plan->reserved = true;
    plan->group->plan = plan;
    for (size_t m = 0; m < shown->n_members; m++) {
        struct policy_plan_member *member = &shown->members[m];
        struct lot *lot = plan->members[m].lot;

        /* A plan numbers its blocks from 1; from here on they have names. */
        for (size_t i = 0; i < member->n_blocks; i++) {
            member->blocks[i].id += first;
            policy->last_block++;
        }
        for (size_t i = 0; lot != NULL && i < lot->n_arrays; i++) {
            lot->arrays[i].block_id += lot->arrays[i].block_id != 0 ? first : 0;
        }
        member->instance->in_plan = true;
        member->instance->reserved = plan->members[m].reserved;
        accounts_add(member->instance, plan->members[m].reserved);
    }
}

static void member_unreserve(struct policy_instance *instance)
{
    accounts_subtract(instance, instance->reserved);
    instance->reserved = 0;
    instance->in_plan = false;
}

static void forget_victim(struct policy_plan *shown, const struct policy_instance *instance)
{
    size_t kept = 0;

    for (size_t i = 0; i < shown->n_victims; i++) {
        if (shown->victims[i] != instance) {
            shown->victims[kept++] = shown->victims[i];
        }
    }
    shown->n_victims = kept;
}

bool policy_plan_forget_instance(struct policy *policy, struct policy_plan *shown,
                                 struct policy_instance *instance)
{
    struct plan *plan = container_of(shown, struct plan, shown);
    bool requesters = shown->cached_pair;

    (void)policy;
    forget_victim(shown, instance);
    for (size_t m = 0; m < shown->n_members; m++) {
        struct policy_plan_member *member = &shown->members[m];

        if (member->instance == instance) {
            if (plan->reserved) {
                member_unreserve(instance);
            }
            member->instance = NULL;
            member->n_dropped = 0;
        }
        requesters |= member->requester && member->instance != NULL;
    }
    return requesters;
}

/* Takes the plan out of the books as it was reserved. */
static void plan_unreserve(struct policy *policy, struct plan *plan)
{
    assert(plan->reserved);
    plan->reserved = false;
    plan->group->plan = NULL;
    for (size_t m = 0; m < plan->shown.n_members; m++) {
        if (plan->shown.members[m].instance != NULL) {
            member_unreserve(plan->shown.members[m].instance);
        }
    }
    stream_group_put(policy, plan->group); /* all of its members may have died */
    plan->group = NULL;
}

void policy_commit(struct policy *policy, struct policy_plan *shown)
{
    struct plan *plan = container_of(shown, struct plan, shown);
    uint64_t before = policy->clock;

    plan_unreserve(policy, plan);
    if (shown->cached_pair) {
        return;
    }
    for (size_t m = 0; m < shown->n_members; m++) {
        struct policy_instance *instance = shown->members[m].instance;

        if (instance == NULL) {
            continue;
        }
        if (shown->members[m].requester) {
            holdings_take(instance, plan->members[m].lot, &instance->request,
                          shown->grant);
            request_remove(instance);
        }
        instance->chunks = shown->partition.chunks;
        instance->stay->has_pair = true;
        instance->stay->pair = shown->partition;
    }
    /* Rule 6: what was granted cannot be taken before it was used. */
    for (size_t m = 0; m < shown->n_members; m++) {
        struct policy_instance *instance = shown->members[m].instance;

        if (instance != NULL && shown->members[m].requester && instance->owner->marked <= before) {
            owner_mark(policy, instance->owner);
        }
    }
}

void policy_abort(struct policy *policy, struct policy_plan *shown)
{
    plan_unreserve(policy, container_of(shown, struct plan, shown));
}
