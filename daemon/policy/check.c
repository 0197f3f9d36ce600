/*
 * check - every sum of the policy, worked out anew and compared
 *
 * For debug builds and for the tests, which call it after every step. Walks over
 * everything; slow on purpose, so that the rest may be fast.
 */
#include <math.h>
#include <string.h>

#include "model.h"

static const char *check_holdings(const struct policy_instance *instance)
{
    bytes128 charges = 0, pinned = 0;
    size_t n_held = 0, n_device = 0, n_in_blocks = 0, n_placed = 0;

    for (const struct block *b = instance->first_block; b != NULL; b = b->next) {
        if (b->shown.n_arrays == 0 || b->shown.charge == 0) {
            return "a block is held that nothing lies in";
        }
        if (b->shown.charge % instance->policy->granularity != 0) {
            return "a charge is not a multiple of the granularity";
        }
        charges += b->shown.charge;
        n_in_blocks += b->shown.n_arrays;
    }
    for (const struct held *h = instance->first_held; h != NULL; h = h->next) {
        if (holdings_find(instance, h->array->label, h->node.hash) != h) {
            return "an array is not found under its label";
        }
        if (h->block != NULL && h->array->nbytes > 0 &&
            (h->array->block_id != h->block->shown.id ||
             h->array->offset + h->array->nbytes > h->block->shown.charge)) {
            return "an array does not lie in its block";
        }
        n_held++;
        n_placed += h->block != NULL;
        n_device += h->array->memory == CUBIEMEM_DEVICE;
        pinned += h->array->memory == CUBIEMEM_PINNED ? h->array->nbytes : 0;
    }
    if (charges != instance->allocated) {
        return "an instance's charge is not the sum of its blocks";
    }
    if (pinned != instance->pinned) {
        return "an instance's pinned bytes are not the sum of its arrays";
    }
    if (n_in_blocks != n_placed || n_held != instance->labels.n ||
        n_device != instance->n_device) {
        return "the arrays of an instance are miscounted";
    }
    return NULL;
}

static const char *check_accounts(const struct policy *policy)
{
    for (const struct account *a = policy->first_account; a != NULL; a = a->next) {
        bytes128 used = 0;
        size_t n = 0;

        for (const struct policy_instance *i = policy->first; i != NULL; i = i->next) {
            if (i->accounts[a->kind] == a) {
                used += i->allocated + i->reserved;
                n++;
            }
        }
        if (used != a->used || n != a->n_instances) {
            return "what is used under a ceiling is not the sum of what is held";
        }
    }
    return NULL;
}

static const char *check_quota(const struct policy *policy)
{
    struct exact_sum manual = { { 0 } };
    double shares = 0;
    size_t n_auto = 0;

    for (const struct policy_instance *i = policy->first; i != NULL; i = i->next) {
        if (i->manual) {
            exact_sum_add(&manual, i->proportion);
        } else {
            shares += quota_proportion(i);
            n_auto++;
        }
    }
    if (memcmp(&manual, &policy->manual, sizeof(manual)) != 0) {
        return "the manual proportions do not add up to their sum";
    }
    if (policy->rest != fmax(0, 1 - exact_sum_value(&manual))) {
        return "the auto pool is not what the manual proportions leave";
    }
    if (n_auto != policy->n_auto || shares > policy->rest + 1e-12) {
        return "the shares of the auto pool are more than the whole";
    }
    if (n_auto > 0 && shares < policy->rest - 1e-9) {
        return "the shares of the auto pool are less than the whole";
    }
    return NULL;
}

static const char *check_membership(const struct policy_instance *instance)
{
    const struct stream_group *group = instance->group;
    size_t n_members = 0, n_queued = 0, n_stay = 0;

    for (const struct policy_instance *i = group->first; i != NULL; i = i->next_member) {
        n_members += i == instance;
        n_stay += i->stay == instance->stay;
    }
    for (const struct policy_instance *i = group->first_queued; i != NULL; i = i->next_queued) {
        n_queued += i == instance;
    }
    if (n_members != 1 || n_queued != (instance->has_request ? 1 : 0)) {
        return "an instance is not in its group as it should";
    }
    if (n_stay != instance->stay->n_members || instance->stay->owner != instance->owner) {
        return "an owner's members in a group are miscounted";
    }
    if (!instance->in_plan && instance->reserved != 0) {
        return "bytes are reserved and no plan is under way";
    }
    return NULL;
}

const char *policy_check(const struct policy *policy)
{
    const char *fault = check_quota(policy);
    size_t n = 0;

    for (const struct policy_instance *i = policy->first; fault == NULL && i != NULL;
         i = i->next) {
        fault = check_holdings(i);
        if (fault == NULL) {
            fault = check_membership(i);
        }
        n++;
    }
    if (fault == NULL && n != policy->names.n) {
        fault = "the instances are miscounted";
    }
    return fault != NULL ? fault : check_accounts(policy);
}
