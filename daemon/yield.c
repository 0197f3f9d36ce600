/*
 * yield - what a transaction replaces is given up before the new memory is made
 *
 * Where old and new do not fit beside each other, the clients are asked to unmap the
 * old blocks first. What comes back is kept for the transaction (earmarked), whoever
 * waits for memory: it was its own before.
 */
#include <stdlib.h>
#include <utlist.h>

#include "answer.h"
#include "connection.h"
#include "transaction.h"

/* Gives up, in the policy and with the client, the arrays in blocks that are
 * about to be replaced and not kept: their memory is needed first. */
static void yield_member(struct daemon *daemon, const struct policy_plan_member *member,
                         struct instance *instance)
{
    uint64_t *block_ids = calloc(member->n_dropped + 1, sizeof(*block_ids));
    size_t n = 0;
    if (block_ids == NULL) {
        connection_close(instance->session->connection, "out of host memory to ask for its blocks");
        return;
    }
    for (size_t i = 0; i < member->n_dropped; i++) {
        block_ids[n++] = ((const struct block *)member->dropped[i]->data)->id;
    }
    Cubiemem__Yield yield = CUBIEMEM__YIELD__INIT;
    yield.has_yield_id = yield.has_instance_id = true;
    yield.yield_id = ++daemon->last_yield_id;
    yield.instance_id = instance->id;
    yield.block_ids = block_ids;
    yield.n_block_ids = n;
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    message.yield = &yield;
    answer_event(instance->session, &message);
    free(block_ids);
}

bool yield_start(struct transaction *transaction)
{
    struct daemon *daemon = transaction->daemon;
    struct policy_plan *plan = transaction->plan;
    backing_undo(&transaction->backing, daemon, plan);
    bool any = false;
    for (size_t i = 0; i < plan->n_members; i++) {
        struct policy_plan_member *member = &plan->members[i];
        if (member->instance != NULL && member->n_dropped > 0) {
            yield_member(daemon, member, policy_instance_data(member->instance));
            any = true;
        }
    }
    policy_abort(daemon->policy, plan);
    transaction->plan = NULL;
    for (size_t i = 0; any && i < plan->n_members; i++) {
        struct policy_plan_member *member = &plan->members[i];
        for (size_t a = 0; member->n_dropped > 0 && a < member->n_arrays; a++) {
            policy_release_label(daemon->policy, member->instance, member->arrays[a].label);
        }
    }
    policy_plan_destroy(plan);
    while (daemon->gone != NULL) {
        struct block *block = daemon->gone;
        daemon->gone = block->next;
        block_end(block, BLOCK_OWED);
    }
    transaction->state = TRANSACTION_YIELDING;
    transaction->yielded |= any;
    return any;
}

/* Members of a shared group are of one user; whoever of it owes may be one. */
static bool may_owe_to(const struct session *session, const struct transaction *transaction)
{
    return session == transaction->session ||
           session->identity.uid == transaction->session->identity.uid;
}

bool yield_is_owed(const struct transaction *transaction)
{
    for (const struct session *session = transaction->daemon->sessions; session != NULL;
         session = session->next) {
        if (session->owed != NULL && may_owe_to(session, transaction)) {
            return true;
        }
    }
    return false;
}

void transactions_earmark_yielded(struct session *session, uint64_t size)
{
    struct transaction *transaction;
    DL_FOREACH(session->daemon->transactions, transaction)
    {
        if (transaction->state == TRANSACTION_YIELDING &&
            may_owe_to(session, transaction)) {
            transaction_earmark(transaction, size);
            return;
        }
    }
}
