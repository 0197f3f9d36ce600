/*
 * evict - who has to go when the device is short, and the marks that protect
 *
 * Rule 6: an owner is idle if it is not in the batch, all its instances are
 * evictable, none is marked as working, and it holds device bytes; here also,
 * none is in a plan under way, whose bytes are being fetched. Oldest first, each
 * whole. One clock for all, advanced by begin_work and by each grant. To choose
 * walks over all owners: it happens only when memory lacks.
 */
#include <stdlib.h>

#include "model.h"

struct candidate {
    struct owner *owner;
    uint64_t age;    /* the smallest time of its instances */
    uint64_t number; /* of its earliest instance */
    bytes128 held;
    size_t n_instances;
};

static bool candidate_of(struct owner *owner, uint64_t batch, struct candidate *candidate_p)
{
    struct candidate candidate = { .owner = owner, .age = UINT64_MAX };

    if (owner->batch == batch || owner->first == NULL) {
        return false;
    }
    candidate.number = owner->first->number;
    for (const struct policy_instance *i = owner->first; i != NULL; i = i->next_owned) {
        if (!i->evictable || i->working || i->in_plan) {
            return false;
        }
        candidate.held += i->allocated;
        candidate.n_instances++;
        if (i->time < candidate.age) {
            candidate.age = i->time;
        }
    }
    if (candidate.held == 0) {
        return false;
    }
    *candidate_p = candidate;
    return true;
}

static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *left = a, *right = b;

    if (left->age != right->age) {
        return left->age < right->age ? -1 : 1;
    }
    return left->number < right->number ? -1 : left->number > right->number;
}

/* The instances of candidates[0 .. n), each owner's in order of registration. */
static struct policy_instance **instances_of(const struct candidate *candidates, size_t n,
                                             size_t *n_instances_p)
{
    struct policy_instance **instances;
    size_t n_instances = 0, k = 0;

    for (size_t i = 0; i < n; i++) {
        n_instances += candidates[i].n_instances;
    }
    instances = calloc(n_instances > 0 ? n_instances : 1, sizeof(struct policy_instance *));
    if (instances == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        for (struct policy_instance *v = candidates[i].owner->first; v != NULL;
             v = v->next_owned) {
            instances[k++] = v;
        }
    }
    *n_instances_p = n_instances;
    return instances;
}

bool evict_choose(const struct policy *policy, uint64_t batch, bytes128 wanted,
                  struct policy_instance ***victims_p, size_t *n_p, bytes128 *released_p)
{
    struct candidate *candidates;
    struct policy_instance **victims = NULL;
    size_t n = 0, n_taken = 0, n_victims = 0;
    bytes128 released = 0;

    candidates = calloc(policy->owners.n > 0 ? policy->owners.n : 1, sizeof(*candidates));
    if (candidates == NULL) {
        return false;
    }
    for (struct owner *o = policy->first_owner; o != NULL; o = o->next) {
        n += candidate_of(o, batch, &candidates[n]);
    }
    qsort(candidates, n, sizeof(*candidates), compare_candidates);
    while (n_taken < n && released < wanted) {
        released += candidates[n_taken++].held;
    }
    if (n_taken > 0) {
        victims = instances_of(candidates, n_taken, &n_victims);
        if (victims == NULL) {
            free(candidates);
            return false;
        }
    }
    free(candidates);
    *victims_p = victims;
    *n_p = n_victims;
    *released_p = released;
    return true;
}

void owner_mark(struct policy *policy, struct owner *owner)
{
    policy->clock++;
    owner->marked = policy->clock;
    for (struct policy_instance *i = owner->first; i != NULL; i = i->next_owned) {
        i->working = true;
        i->time = policy->clock;
    }
}

void policy_begin_work(struct policy *policy, struct policy_instance *instance)
{
    owner_mark(policy, instance->owner);
}

void policy_end_work(struct policy *policy, struct policy_instance *instance)
{
    (void)policy;
    for (struct policy_instance *i = instance->owner->first; i != NULL; i = i->next_owned) {
        i->working = false;
    }
}

void policy_note_work(struct policy *policy, struct policy_instance *instance, bool working,
                      uint64_t last_begin)
{
    uint64_t time = last_begin < policy->clock ? last_begin : policy->clock;

    for (struct policy_instance *i = instance->owner->first; i != NULL; i = i->next_owned) {
        i->working = working;
        if (time > i->time) {
            i->time = time;
        }
    }
}

void policy_set_clock(struct policy *policy, uint64_t time)
{
    if (time > policy->clock) {
        policy->clock = time;
    }
}

void policy_evict(struct policy *policy, struct policy_instance *instance)
{
    (void)policy;
    holdings_drop_all(instance);
}
