/*
 * policy_walk - sequences of operations on the policy, made from bytes, with what
 * must hold after every one
 *
 * Instance names are unique in a walk, as in scenarios. Bytes lent are counted
 * from outside: added when a grant names new blocks, taken away when the policy
 * says that a block has gone.
 */
#include "policy_walk.h"

#include <stdlib.h>
#include <string.h>

#include "policy_reference.h"
#include "walk_step.h"

struct walk {
    struct policy *policy;
    struct walk_device device;
    struct policy_instance *instances[WALK_INSTANCES];
    bytes128 lent;
    struct walk_result result;
};

static void walk_fault(struct walk *walk, const char *fault)
{
    if (walk->result.fault == NULL) {
        walk->result.fault = fault;
    }
}

static void block_gone(struct policy_instance *instance, struct policy_block *block, void *arg)
{
    struct walk *walk = arg;

    (void)instance;
    walk->lent -= block->charge;
}

static struct policy_instance **walk_slot(struct walk *walk, const struct walk_step *step)
{
    return &walk->instances[step->instance[0] - 'a'];
}

static int walk_register(struct walk *walk, const struct walk_step *step)
{
    struct policy_instance **slot = walk_slot(walk, step);
    uint32_t warnings = 0, uid = !walk->device.only_scenario && step->process == 2;
    const struct policy_registration registration = {
        .identity = { .scope = step->process + 1, .process = step->process + 1, .uid = uid,
                      .gid = step->process % 2, .client = step->process != 1 ? "solver" : NULL },
        .name = step->instance,
        .group = step->group,
        .shared = step->shared,
        .owner = step->owner,
        .manual = step->manual,
        .proportion = step->proportion,
        .evictable = step->evictable,
    };

    if (*slot != NULL) {
        return CUBIEMEM_ALREADY_REGISTERED;
    }
    return policy_register(walk->policy, &registration, slot, &warnings);
}

/* ------------------------------------------------------------------ grants */

/* Nobody who must stay may be among the victims. */
static void check_victims(struct walk *walk, const struct policy_plan *plan)
{
    bytes128 released = 0;

    for (size_t v = 0; v < plan->n_victims; v++) {
        const struct policy_instance *victim = plan->victims[v];

        released += victim->allocated;
        if (victim->working || !victim->evictable) {
            walk_fault(walk, "an instance at work, or one not evictable, was to be evicted");
        }
        for (size_t m = 0; m < plan->n_members; m++) {
            if (plan->members[m].instance->owner == victim->owner) {
                walk_fault(walk, "an owner of the batch was to be evicted");
            }
        }
    }
    if (released != plan->victims_release) {
        walk_fault(walk, "the victims do not hold what they were to release");
    }
}

static void check_plan(struct walk *walk, const struct policy_plan *plan,
                       const struct reference *reference)
{
    bytes128 charges = 0;

    check_victims(walk, plan);
    for (size_t m = 0; m < plan->n_members; m++) {
        for (size_t b = 0; b < plan->members[m].n_blocks; b++) {
            charges += plan->members[m].blocks[b].charge;
        }
    }
    if (plan->cached_pair) {
        return;
    }
    if (charges != plan->wanted || charges != reference->wanted) {
        walk_fault(walk, "the blocks of a plan are not total(n)");
    }
    if (plan->replaced != reference->replaced) {
        walk_fault(walk, "a plan replaces other bytes than rule 6 says");
    }
    if (plan->partition.chunk_length != reference->length) {
        walk_fault(walk, "the chunk length is not the largest that fits");
    }
    if (charges > walk->device.free + (bytes128)plan->replaced + plan->victims_release) {
        walk_fault(walk, "a plan takes more than the device has");
    }
    walk->result.n_chunked += plan->partition.chunks > 1;
    walk->result.n_evictions += plan->n_victims > 0;
}

/* After the grant: caps and ceilings hold for whoever got something. A member that
 * died in between took its cap along. */
static void check_limits(struct walk *walk, const struct policy_plan *plan, bool all_alive)
{
    for (size_t m = 0; m < plan->n_members; m++) {
        const struct policy_instance *instance = plan->members[m].instance;
        bytes128 caps, held;

        if (instance == NULL || plan->members[m].n_blocks == 0) {
            continue;
        }
        stream_group_sums(instance->group, &caps, &held);
        if (all_alive && walk->policy->mode == POLICY_ACTIVE && held > caps) {
            walk_fault(walk, "a grant passed the caps of its group");
        }
        for (size_t i = 0; i < N_ACCOUNTS; i++) {
            const struct account *account = instance->accounts[i];

            if (account != NULL && account->used > account_limit(walk->policy, account)) {
                walk_fault(walk, "a grant passed a ceiling");
            }
        }
    }
}

static void check_held(struct walk *walk, const struct policy_plan *plan)
{
    for (size_t m = 0; m < plan->n_members; m++) {
        const struct policy_plan_member *member = &plan->members[m];

        for (size_t a = 0; member->instance != NULL && a < member->n_arrays; a++) {
            const struct policy_array *array = &member->arrays[a];

            if (policy_find_array(member->instance, array->label) != array) {
                walk_fault(walk, "a granted array is not held");
            }
            for (size_t b = 0; b < a; b++) {
                const struct policy_array *other = &member->arrays[b];

                if (array->block_id != 0 && array->block_id == other->block_id &&
                    array->offset < other->offset + other->nbytes &&
                    other->offset < array->offset + array->nbytes) {
                    walk_fault(walk, "two arrays overlap");
                }
            }
        }
    }
}

/* The member that dies in between, if it may. */
static void walk_kill(struct walk *walk, const struct walk_step *step, struct policy_plan *plan)
{
    size_t m = plan->n_members > 0 ? step->pick % plan->n_members : 0;
    struct policy_instance *dead;

    if (plan->n_members == 0) {
        return;
    }
    dead = plan->members[m].instance;
    if ((step->pick & 128) != 0) {
        policy_plan_forget_instance(walk->policy, plan, dead);
    }
    walk->instances[dead->name[0] - 'a'] = NULL;
    policy_unregister(walk->policy, dead);
}

static void walk_commit(struct walk *walk, const struct walk_step *step, struct policy_plan *plan)
{
    const char *fault;

    for (size_t v = 0; v < plan->n_victims; v++) {
        policy_evict(walk->policy, plan->victims[v]);
    }
    if (step->kind == WALK_FORGET) {
        walk_kill(walk, step, plan);
    }
    fault = policy_check(walk->policy);
    if (fault != NULL) {
        walk_fault(walk, fault);
    }
    for (size_t m = 0; m < plan->n_members; m++) {
        for (size_t b = 0; plan->members[m].instance != NULL && b < plan->members[m].n_blocks;
             b++) {
            walk->lent += plan->members[m].blocks[b].charge;
        }
    }
    policy_commit(walk->policy, plan);
    check_held(walk, plan);
    check_limits(walk, plan, step->kind != WALK_FORGET);
    walk->result.n_granted += !plan->cached_pair;
}

static int walk_allocate(struct walk *walk, const struct walk_step *step)
{
    struct policy_instance *trigger = *walk_slot(walk, step);
    struct reference reference = { .status = CUBIEMEM_OK };
    struct policy_refusal refusal;
    struct policy_plan *plan = NULL;
    int status;

    if (trigger == NULL) {
        return CUBIEMEM_NOT_REGISTERED;
    }
    if (trigger->group->first_queued != NULL) {
        reference = reference_allocate(walk->policy, trigger, walk->device.free);
    }
    status = policy_plan(walk->policy, trigger, walk->device.free, true, &plan, &refusal);
    if (status != reference.status) {
        walk_fault(walk, "an allocate was answered otherwise than by the reference");
    }
    if (status != CUBIEMEM_OK) {
        walk->result.n_refused++;
        return status;
    }
    check_plan(walk, plan, &reference);
    policy_reserve(walk->policy, plan);
    if (step->kind == WALK_ABORT) {
        policy_abort(walk->policy, plan);
        walk->result.n_aborted++;
        status = CUBIEMEM_CANCELLED; /* so everything must be as it was */
    } else {
        walk_commit(walk, step, plan);
    }
    policy_plan_destroy(plan);
    return status;
}

/* ------------------------------------------------------------------- steps */

static int walk_process_step(struct walk *walk, const struct walk_step *step)
{
    const char *owner = step->owner != NULL ? step->owner : step->instance;
    bool done = false;

    for (struct policy_instance *i = walk->policy->first; i != NULL; i = i->next) {
        if (i->identity.scope != step->process + 1) {
            continue;
        }
        switch (step->kind) {
        case WALK_FREE:
            policy_release_label(walk->policy, i, step->label);
            break;
        case WALK_BEGIN_WORK:
        case WALK_END_WORK:
            if (!done && strcmp(i->owner->name, owner) == 0) {
                done = true;
                (step->kind == WALK_BEGIN_WORK ? policy_begin_work : policy_end_work)(walk->policy,
                                                                                      i);
            }
            break;
        default:
            policy_release_all(walk->policy, i);
            break;
        }
    }
    return CUBIEMEM_OK;
}

static int walk_available(struct walk *walk, const struct walk_step *step)
{
    uint32_t warnings = 0;
    uint64_t bytes = policy_available_in(walk->policy, step->process + 1, 0, step->group,
                                         step->shared, walk->device.free, &warnings);

    if (bytes > walk->device.free) {
        walk_fault(walk, "more is available than is free");
    }
    return CUBIEMEM_OK;
}

static int walk_instance_step(struct walk *walk, const struct walk_step *step)
{
    struct policy_instance **slot = walk_slot(walk, step);
    uint32_t warnings;
    const char *why;
    size_t culprit;

    if (*slot == NULL) {
        return CUBIEMEM_NOT_REGISTERED;
    }
    switch (step->kind) {
    case WALK_SET_PROPORTION:
        return policy_set_proportion(walk->policy, *slot, step->proportion, &warnings);
    case WALK_SET_AUTO:
        return policy_set_auto(walk->policy, *slot);
    case WALK_QUEUE:
        return policy_queue(walk->policy, *slot, step->arrays, step->n_arrays, &culprit, &why);
    case WALK_CHANGE_GROUP:
        return policy_change_group(walk->policy, *slot, step->group, step->shared);
    case WALK_FREE:
        policy_release_label(walk->policy, *slot, step->label);
        return CUBIEMEM_OK;
    default: /* WALK_RELEASE */
        policy_unregister(walk->policy, *slot);
        *slot = NULL;
        return CUBIEMEM_OK;
    }
}

static int walk_run_step(struct walk *walk, const struct walk_step *step)
{
    switch (step->kind) {
    case WALK_REGISTER:
        return walk_register(walk, step);
    case WALK_SET_MODE:
        policy_set_mode(walk->policy, step->mode);
        return CUBIEMEM_OK;
    case WALK_SET_MEMORY:
        walk->device.free = step->free;
        return CUBIEMEM_OK;
    case WALK_SET_CEILING:
        return policy_set_ceiling(walk->policy, &step->ceiling);
    case WALK_AVAILABLE:
        return walk_available(walk, step);
    case WALK_ALLOCATE:
    case WALK_ABORT:
    case WALK_FORGET:
        return walk_allocate(walk, step);
    case WALK_BEGIN_WORK:
    case WALK_END_WORK:
    case WALK_FREE_ALL:
    case WALK_INVALIDATE_ALL:
        return walk_process_step(walk, step);
    default:
        return step->kind == WALK_FREE && step->manual ? walk_process_step(walk, step)
                                                       : walk_instance_step(walk, step);
    }
}

static void walk_step(struct walk *walk, const uint8_t *bytes)
{
    uint64_t before = reference_digest(walk->policy);
    struct walk_step step;
    bytes128 charged = 0;
    const char *fault;
    int status;

    walk_step_read(bytes, &walk->device, &step);
    status = walk_run_step(walk, &step);
    if (status != CUBIEMEM_OK && reference_digest(walk->policy) != before) {
        walk_fault(walk, "an operation failed and changed something");
    }
    fault = policy_check(walk->policy);
    if (fault != NULL) {
        walk_fault(walk, fault);
    }
    for (const struct policy_instance *i = walk->policy->first; i != NULL; i = i->next) {
        charged += i->allocated;
    }
    if (charged != walk->lent) {
        walk_fault(walk, "charges are not the blocks lent");
    }
}

struct walk_result policy_walk(const uint8_t *bytes, size_t size)
{
    struct walk walk = { 0 };
    struct policy_config config = { .auto_share = POLICY_SHARE_PROCESS };

    if (size < WALK_HEADER) {
        return walk.result;
    }
    walk_device_read(bytes, &walk.device);
    config.total = walk.device.total;
    config.granularity = walk.device.granularity;
    config.alignment = walk.device.alignment;
    config.mode = walk.device.mode;
    if (!walk.device.only_scenario) {
        config.auto_share = (enum policy_auto_share)(bytes[2] / 4 % 3);
    }
    walk.policy = policy_create(&config);
    if (walk.policy == NULL) {
        return walk.result;
    }
    policy_set_block_gone(walk.policy, block_gone, &walk);
    for (size_t at = WALK_HEADER; at + WALK_STEP <= size && walk.result.fault == NULL;
         at += WALK_STEP) {
        walk_step(&walk, &bytes[at]);
        walk.result.step++;
    }
    policy_destroy(walk.policy);
    if (walk.result.fault == NULL && walk.lent != 0) {
        walk.result.fault = "blocks are lent and nobody is left";
    }
    return walk.result;
}

size_t policy_walk_shrink(uint8_t *bytes, size_t size)
{
    uint8_t *trial = malloc(size);
    size_t n = (size - WALK_HEADER) / WALK_STEP;

    if (trial == NULL) {
        return size;
    }
    n = policy_walk(bytes, size).step;
    for (size_t piece = n / 2; piece >= 1; piece = piece > 1 ? piece / 2 : 0) {
        for (size_t at = 0; at + piece <= n;) {
            size_t rest = (n - at - piece) * WALK_STEP;
            size_t head = WALK_HEADER + at * WALK_STEP;

            memcpy(trial, bytes, head);
            memcpy(trial + head, bytes + head + piece * WALK_STEP, rest);
            if (policy_walk(trial, head + rest).fault != NULL) {
                memcpy(bytes, trial, head + rest);
                n -= piece;
            } else {
                at += piece;
            }
        }
    }
    free(trial);
    return WALK_HEADER + n * WALK_STEP;
}

void policy_walk_print(const uint8_t *bytes, size_t size, FILE *out)
{
    struct walk_device device;
    struct walk_step step;

    walk_device_read(bytes, &device);
    fputs("{\"name\":\"walk\",", out);
    walk_device_print(&device, out);
    fputs(",\"steps\":[", out);
    for (size_t at = WALK_HEADER; at + WALK_STEP <= size; at += WALK_STEP) {
        walk_step_read(&bytes[at], &device, &step);
        fputs(at == WALK_HEADER ? "\n  " : ",\n  ", out);
        walk_step_print(&step, out);
    }
    fputs("]}\n", out);
}
