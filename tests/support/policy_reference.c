/*
 * policy_reference - rules 5 to 7 once more, as plainly as they can be said
 */
#include "policy_reference.h"

#include <string.h>

static bytes128 up(bytes128 x, bytes128 m)
{
    return (x + m - 1) / m * m;
}

static bool chunkable(const struct array *a)
{
    return !a->unchunkable && a->axis >= 0 && (uint32_t)a->axis < a->rank && a->shape[a->axis] > 1;
}

static bytes128 bytes_of(const struct array *a, uint64_t n)
{
    static const uint64_t sizes[] = { 0, 8, 4, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1, 8, 16 };
    bytes128 bytes = sizes[a->dtype];

    for (uint32_t d = 0; d < a->rank; d++) {
        bytes *= chunkable(a) && d == (uint32_t)a->axis ? n : (uint64_t)a->shape[d];
    }
    return bytes;
}

/* Charges of one instance's request; n 0: of the arrays that cannot be cut. */
static bytes128 charge_of(const struct policy *policy, const struct policy_instance *instance,
                          uint64_t n)
{
    bytes128 blocks = 0, small = 0;

    for (size_t i = 0; i < instance->request.n; i++) {
        const struct array *a = &instance->request.arrays[i];
        bytes128 bytes = bytes_of(a, n);

        if (a->memory != CUBIEMEM_DEVICE || (n == 0 && chunkable(a))) {
            continue;
        }
        if (bytes >= policy->granularity) {
            blocks += up(bytes, policy->granularity);
        } else {
            small += up(bytes, policy->alignment);
        }
    }
    return blocks + up(small, policy->granularity);
}

static bool requests(const struct policy_instance *instance, const char *label)
{
    for (size_t i = 0; i < instance->request.n; i++) {
        if (strcmp(instance->request.arrays[i].label, label) == 0) {
            return true;
        }
    }
    return false;
}

/* Charges of the blocks none of whose arrays would stay. */
static bytes128 replaced_of(const struct policy_instance *instance)
{
    bytes128 replaced = 0;

    for (const struct block *b = instance->first_block; b != NULL; b = b->next) {
        bool stays = false;

        for (const struct held *h = instance->first_held; h != NULL; h = h->next) {
            stays |= h->block == b && !requests(instance, h->array->label);
        }
        replaced += stays ? 0 : b->shown.charge;
    }
    return replaced;
}

static bool owner_in_batch(const struct stream_group *group, const struct policy_instance *trigger,
                           const struct owner *owner)
{
    for (const struct policy_instance *i = group->first; i != NULL; i = i->next_member) {
        if (i->owner == owner && (i->has_request || i == trigger)) {
            return true;
        }
    }
    return false;
}

/* All that idle owners hold. */
static bytes128 idle_bytes(const struct policy *policy, const struct policy_instance *trigger)
{
    bytes128 idle = 0;

    for (const struct policy_instance *i = policy->first; i != NULL; i = i->next) {
        bool taken = !owner_in_batch(trigger->group, trigger, i->owner);

        for (const struct policy_instance *o = policy->first; o != NULL; o = o->next) {
            if (o->owner == i->owner && (o->working || !o->evictable || o->in_plan)) {
                taken = false;
            }
        }
        idle += taken ? i->allocated : 0;
    }
    return idle;
}

/* A batch with all that limits it. */
struct trial {
    const struct policy *policy;
    const struct stream_group *group;
    bytes128 room; /* A */
};

static bytes128 total(const struct trial *t, uint64_t n, const struct account *under,
                      bytes128 *replaced_p)
{
    bytes128 sum = 0, replaced = 0;

    for (const struct policy_instance *i = t->group->first; i != NULL; i = i->next_member) {
        if (i->has_request && (under == NULL || i->accounts[under->kind] == under)) {
            sum += charge_of(t->policy, i, n);
            replaced += replaced_p != NULL ? replaced_of(i) : 0;
        }
    }
    if (replaced_p != NULL) {
        *replaced_p = replaced;
    }
    return sum;
}

static bool under_ceilings(const struct trial *t, uint64_t n)
{
    bytes128 replaced;

    for (const struct account *a = t->policy->first_account; a != NULL; a = a->next) {
        bytes128 wanted = a->ceiling != NULL ? total(t, n, a, &replaced) : 0;

        if (wanted > 0 &&
            a->used - replaced + wanted > account_limit(t->policy, a)) {
            return false;
        }
    }
    return true;
}

static bool fits(const struct trial *t, uint64_t n)
{
    return total(t, n, NULL, NULL) <= t->room && under_ceilings(t, n);
}

/* L; 0: the requests disagree. */
static uint64_t runs_of(const struct stream_group *group)
{
    uint64_t runs = 0, most = 1;
    bool agree = true;

    for (int pass = 0; pass < 2; pass++) {
        for (const struct policy_instance *i = group->first; i != NULL; i = i->next_member) {
            for (size_t k = 0; i->has_request && k < i->request.n; k++) {
                const struct array *a = &i->request.arrays[k];
                uint64_t length = chunkable(a) ? (uint64_t)a->shape[a->axis] : 0;

                most = (uint64_t)a->total_runs > most ? (uint64_t)a->total_runs : most;
                runs = pass == 0 && length != 0 ? length : runs;
                agree &= pass == 0 || length == 0 || length == runs;
                agree &= pass == 0 || runs == 0 || a->total_runs == 1 ||
                         (uint64_t)a->total_runs == runs;
            }
        }
    }
    return !agree ? 0 : runs != 0 ? runs : most;
}

/* The length that peers bind to; 0: none; UINT64_MAX: several. */
static uint64_t bound_of(const struct stream_group *group, const struct policy_instance *trigger,
                         uint64_t runs)
{
    uint64_t bound = 0;

    for (const struct policy_instance *i = group->first; i != NULL; i = i->next_member) {
        bool holds = false;

        for (const struct held *h = i->first_held; h != NULL; h = h->next) {
            holds |= h->array->memory == CUBIEMEM_DEVICE;
        }
        if (!i->has_request && holds && owner_in_batch(group, trigger, i->owner) &&
            i->stay->has_pair && i->stay->pair.chunk_length <= runs) {
            if (bound != 0 && bound != i->stay->pair.chunk_length) {
                return UINT64_MAX;
            }
            bound = i->stay->pair.chunk_length;
        }
    }
    return bound;
}

static struct reference search(const struct trial *t, uint64_t runs)
{
    struct reference r = { .status = CUBIEMEM_OK };

    for (uint64_t n = runs; n >= 1; n--) {
        if (fits(t, n)) {
            r.length = n;
            r.wanted = total(t, n, NULL, &r.replaced);
            return r;
        }
    }
    r.status = fits(t, 0) ? CUBIEMEM_RUN_TOO_LARGE : CUBIEMEM_UNCHUNKABLE_TOO_LARGE;
    return r;
}

struct reference reference_allocate(const struct policy *policy,
                                    const struct policy_instance *trigger, uint64_t free_bytes)
{
    const struct stream_group *group = trigger->group;
    struct trial t = { .policy = policy, .group = group };
    struct reference r = { .status = CUBIEMEM_INVALID_REQUEST };
    uint64_t runs = runs_of(group), bound, n;
    bytes128 caps = 0, held = 0, h, wanted;

    bound = runs != 0 ? bound_of(group, trigger, runs) : 0;
    if (runs == 0 || bound == UINT64_MAX) {
        return r;
    }
    for (const struct policy_instance *i = group->first; i != NULL; i = i->next_member) {
        caps += quota_cap(i);
        held += i->allocated + i->reserved;
    }
    n = bound != 0 ? bound : runs;
    wanted = total(&t, n, NULL, &r.replaced);
    if (total(&t, runs, NULL, &r.replaced) > INT64_MAX) {
        r.status = CUBIEMEM_TOO_LARGE;
        return r;
    }
    h = caps + r.replaced > held ? caps + r.replaced - held : 0;
    t.room = free_bytes + r.replaced;
    if (wanted > t.room && (policy->mode == POLICY_PASSIVE || wanted <= h) &&
        under_ceilings(&t, n)) {
        /* As many as it takes; all, if they do not suffice. */
        bytes128 idle = idle_bytes(policy, trigger);

        t.room = t.room + idle >= wanted ? wanted : t.room + idle;
    }
    t.room = policy->mode == POLICY_ACTIVE && h < t.room ? h : t.room;
    if (bound != 0) {
        r.status = fits(&t, bound) ? CUBIEMEM_OK : CUBIEMEM_NO_MEMORY;
        r.length = bound;
        r.wanted = wanted;
        return r;
    }
    return search(&t, runs);
}

/* ------------------------------------------------------------------ digest */

static uint64_t digest_bytes(uint64_t hash, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3ull;
    }
    return hash;
}

static uint64_t digest_holdings(uint64_t hash, const struct policy_instance *i)
{
    for (const struct held *h = i->first_held; h != NULL; h = h->next) {
        hash = digest_bytes(hash, h->array->label, strlen(h->array->label));
        hash = digest_bytes(hash, h->array->shape, h->array->rank * sizeof(int64_t));
        hash = hash_mix(hash, h->array->nbytes);
        hash = hash_mix(hash, h->array->offset);
        hash = hash_mix(hash, h->array->block_id);
    }
    for (const struct block *b = i->first_block; b != NULL; b = b->next) {
        hash = hash_mix(hash, b->shown.id);
        hash = hash_mix(hash, b->shown.charge);
        hash = hash_mix(hash, b->shown.n_arrays);
    }
    return hash;
}

static uint64_t digest_request(uint64_t hash, const struct policy_instance *i)
{
    hash = hash_mix(hash, i->has_request);
    for (size_t k = 0; k < i->request.n; k++) {
        const struct array *a = &i->request.arrays[k];

        hash = digest_bytes(hash, a->label, strlen(a->label));
        hash = digest_bytes(hash, a->shape, a->rank * sizeof(int64_t));
        hash = hash_mix(hash, (uint64_t)a->total_runs);
    }
    return hash;
}

static uint64_t digest_pair(uint64_t hash, const struct stay *stay)
{
    hash = hash_mix(hash, stay->n_members);
    hash = hash_mix(hash, stay->has_pair);
    hash = hash_mix(hash, stay->pair.runs);
    hash = hash_mix(hash, stay->pair.chunks);
    return hash_mix(hash, stay->pair.chunk_length);
}

uint64_t reference_digest(const struct policy *policy)
{
    uint64_t hash = digest_bytes(0, &policy->manual, sizeof(policy->manual));

    hash = hash_mix(hash, policy->mode);
    hash = hash_mix(hash, policy->clock);
    hash = hash_mix(hash, policy->groups.n);
    hash = hash_mix(hash, policy->owners.n);
    hash = hash_mix(hash, policy->processes.n);
    hash = hash_mix(hash, policy->accounts.n);
    for (const struct policy_instance *i = policy->first; i != NULL; i = i->next) {
        double proportion = quota_proportion(i);

        hash = digest_bytes(hash, i->name, strlen(i->name));
        hash = digest_bytes(hash, i->group->name, strlen(i->group->name));
        hash = digest_bytes(hash, &proportion, sizeof(proportion));
        hash = hash_mix(hash, i->manual);
        hash = hash_mix(hash, i->working);
        hash = hash_mix(hash, i->time);
        hash = hash_mix(hash, i->reserved);
        hash = hash_mix(hash, i->chunks);
        hash = digest_pair(digest_request(digest_holdings(hash, i), i), i->stay);
    }
    for (const struct account *a = policy->first_account; a != NULL; a = a->next) {
        hash = hash_mix(hash, saturate(a->used));
        hash = hash_mix(hash, account_limit(policy, a));
    }
    for (const struct policy_instance *i = policy->first; i != NULL; i = i->next) {
        for (const struct policy_instance *q = i->group->first_queued; q != NULL;
             q = q->next_queued) {
            hash = hash_mix(hash, q->number);
        }
    }
    return hash;
}
