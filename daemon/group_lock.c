/*
 * group_lock - which instances a transaction under way keeps others from touching
 *
 * Between reserving and committing nothing about the instances of a plan may change,
 * and no second Allocate may commit the same queue: so everything that names an
 * instance of such a stream group waits (dispatch parks it). There is no lock to be
 * held or forgotten: it is derived from the transactions.
 */
#include <string.h>
#include <utlist.h>

#include "transaction.h"

bool transaction_same_group(const struct instance *a, const struct instance *b)
{
    struct policy_instance_view left, right;
    policy_instance_read(a->policy, &left);
    policy_instance_read(b->policy, &right);
    if (left.shared != right.shared || strcmp(left.group, right.group) != 0) {
        return false;
    }
    return left.shared ? left.identity.uid == right.identity.uid : a->session == b->session;
}

/* An instance of the transaction's group. Whoever asked may be gone while the plan
 * still has members: they stay locked until it is undone. NULL: nobody is left. */
static const struct instance *member_of_group(const struct transaction *transaction)
{
    const struct policy_plan *plan = transaction->plan;
    if (transaction->trigger != NULL) {
        return transaction->trigger;
    }
    for (size_t i = 0; plan != NULL && i < plan->n_members; i++) {
        if (plan->members[i].instance != NULL) {
            return policy_instance_data(plan->members[i].instance);
        }
    }
    return NULL;
}

bool transaction_locks(const struct instance *instance, bool waiting_too)
{
    const struct transaction *transaction;
    DL_FOREACH(instance->session->daemon->transactions, transaction)
    {
        const struct instance *member = member_of_group(transaction);
        if ((transaction->state != TRANSACTION_WAITING || waiting_too) && member != NULL &&
            transaction_same_group(member, instance)) {
            return true;
        }
    }
    return false;
}

bool transaction_reserves(const struct instance *instance)
{
    const struct transaction *transaction;
    DL_FOREACH(instance->session->daemon->transactions, transaction)
    {
        const struct policy_plan *plan = transaction->plan;
        for (size_t i = 0; plan != NULL && i < plan->n_members; i++) {
            if (plan->members[i].instance == instance->policy && plan->members[i].requester) {
                return true;
            }
        }
    }
    return false;
}
