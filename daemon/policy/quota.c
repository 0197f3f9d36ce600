/*
 * quota - each instance's share of the budget (rule 2)
 *
 * Manual proportions p are summed exactly and rounded once: M. What they leave,
 * 1 - M, is the auto pool. A change is checked first, with M as it would be, and
 * applied only then. Shares are worked out when they are read, from counts that
 * registering and leaving keep up to date: so neither walks over anybody, though
 * both change the share of every member of the auto pool. cap = trunc(p * total).
 * Ceilings bound what a user's proportions may add up to; what is held under
 * them is ceiling.c's.
 */
#include <math.h>

#include "model.h"

/* Less than this left, and the auto pool is too small; float noise apart. */
#define AUTO_POOL_LEAST (0.05 - 1e-9)
#define WHOLE (1 + 1e-9)
#define NOISE 1e-9

/* The uid's manual proportions, with `proportion` in place of the instance's
 * own, times the total must stay below the uid's ceiling. A change that does
 * not add to them is fine: it cannot make matters worse. */
static bool user_would_pass_ceiling(const struct policy *policy,
                                    const struct policy_instance *instance, uint32_t uid,
                                    double proportion)
{
    double own = instance != NULL && instance->manual ? instance->proportion : 0;
    uint64_t hash = hash_mix(uid, 1);
    struct exact_sum sum = { { 0 } };
    uint64_t limit = UINT64_MAX;

    for (const struct ceiling *c = policy->ceilings; c != NULL; c = c->next) {
        if (c->rule.kind == POLICY_CEILING_UID && c->rule.id == uid) {
            limit = ceiling_limit(policy, c);
        }
    }
    if (limit == UINT64_MAX || proportion <= own) {
        return false;
    }
    for (struct table_node *n = table_first(&policy->users, hash); n != NULL; n = table_next(n)) {
        const struct user *user = container_of(n, struct user, node);

        if (user->uid == uid) {
            sum = user->manual;
        }
    }
    exact_sum_subtract(&sum, own);
    exact_sum_add(&sum, proportion);
    return (exact_sum_value(&sum) - NOISE) * (double)policy->total > (double)limit;
}

int quota_check_manual(const struct policy *policy, const struct policy_instance *instance,
                       uint32_t uid, double proportion, uint32_t *warnings_p)
{
    struct exact_sum sum = policy->manual;
    size_t n_others = policy->n_auto;
    double m;

    if (!(proportion >= 0 && proportion <= 1)) { /* NaN too */
        return CUBIEMEM_BAD_PROPORTION;
    }
    if (instance != NULL && instance->manual) {
        exact_sum_subtract(&sum, instance->proportion);
    } else if (instance != NULL) {
        n_others--;
    }
    exact_sum_add(&sum, proportion);
    m = exact_sum_value(&sum);
    if (m > WHOLE || user_would_pass_ceiling(policy, instance, uid, proportion)) {
        return CUBIEMEM_QUOTA_OVERCOMMITTED;
    }
    if (1 - m < AUTO_POOL_LEAST) {
        if (n_others > 0) {
            return CUBIEMEM_AUTO_POOL_TOO_SMALL;
        }
        *warnings_p |= CUBIEMEM_WARN_AUTO_POOL_LOW;
    }
    return CUBIEMEM_OK;
}

int quota_check_auto(const struct policy *policy, const struct policy_instance *instance)
{
    struct exact_sum sum = policy->manual;

    if (instance != NULL && instance->manual) {
        exact_sum_subtract(&sum, instance->proportion);
    }
    return 1 - exact_sum_value(&sum) < AUTO_POOL_LEAST ? CUBIEMEM_AUTO_POOL_TOO_SMALL
                                                       : CUBIEMEM_OK;
}

static void quota_rest_update(struct policy *policy)
{
    policy->rest = fmax(0, 1 - exact_sum_value(&policy->manual));
}

void quota_enter(struct policy *policy, struct policy_instance *instance)
{
    struct process *process = instance->process;
    struct user *user = process->user;

    if (instance->manual) {
        exact_sum_add(&policy->manual, instance->proportion);
        exact_sum_add(&user->manual, instance->proportion);
        quota_rest_update(policy);
        return;
    }
    policy->n_auto++;
    if (process->n_auto++ == 0) {
        policy->n_auto_processes++;
        if (user->n_auto_processes++ == 0) {
            policy->n_auto_users++;
        }
    }
}

void quota_leave(struct policy *policy, struct policy_instance *instance)
{
    struct process *process = instance->process;
    struct user *user = process->user;

    if (instance->manual) {
        exact_sum_subtract(&policy->manual, instance->proportion);
        exact_sum_subtract(&user->manual, instance->proportion);
        quota_rest_update(policy);
        return;
    }
    policy->n_auto--;
    if (--process->n_auto == 0) {
        policy->n_auto_processes--;
        if (--user->n_auto_processes == 0) {
            policy->n_auto_users--;
        }
    }
}

double quota_proportion(const struct policy_instance *instance)
{
    const struct policy *policy = instance->policy;
    const struct process *process = instance->process;

    if (instance->manual) {
        return instance->proportion;
    }
    switch (policy->auto_share) {
    case POLICY_SHARE_USER:
        return policy->rest / (double)policy->n_auto_users /
               (double)process->user->n_auto_processes / (double)process->n_auto;
    case POLICY_SHARE_INSTANCE:
        return policy->rest / (double)policy->n_auto;
    case POLICY_SHARE_PROCESS:
    default:
        return policy->rest / (double)policy->n_auto_processes / (double)process->n_auto;
    }
}

uint64_t quota_cap(const struct policy_instance *instance)
{
    double cap = quota_proportion(instance) * (double)instance->policy->total;

    /* A total near 2^64 may round up to it. */
    return cap >= 0x1p64 ? UINT64_MAX : (uint64_t)cap;
}

int policy_set_proportion(struct policy *policy, struct policy_instance *instance,
                          double proportion, uint32_t *warnings_p)
{
    uint32_t warnings = 0;
    int status = quota_check_manual(policy, instance, instance->identity.uid, proportion,
                                    &warnings);

    if (status != CUBIEMEM_OK) {
        return status;
    }
    quota_leave(policy, instance);
    instance->manual = true;
    instance->proportion = proportion;
    quota_enter(policy, instance);
    *warnings_p = warnings;
    return CUBIEMEM_OK;
}

int policy_set_auto(struct policy *policy, struct policy_instance *instance)
{
    int status;

    if (!instance->manual) {
        return CUBIEMEM_OK;
    }
    status = quota_check_auto(policy, instance);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    quota_leave(policy, instance);
    instance->manual = false;
    instance->proportion = 0;
    quota_enter(policy, instance);
    return CUBIEMEM_OK;
}

void policy_set_mode(struct policy *policy, enum policy_mode mode)
{
    policy->mode = mode;
}

void policy_set_total(struct policy *policy, uint64_t total)
{
    policy->total = total;
}
