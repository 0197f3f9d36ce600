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

/* Each segment knows who waits for it: what else its session, or another of the same
 * user, owes is not this transaction's to wait for. */
static void mark_yielded(const struct block *block, const struct transaction *transaction)
{
    for (struct segment *segment = block->segments; segment != NULL; segment = segment->next) {
        segment->yielded_to = transaction->wait.waiter.number;
    }
}

bool yield_would_wait_for_work(const struct transaction *transaction)
{
    const struct policy_plan *plan = transaction->plan;
    for (size_t i = 0; i < plan->n_members; i++) {
        const struct policy_plan_member *member = &plan->members[i];
        if (member->instance != NULL && member->n_dropped > 0) {
            const struct instance *instance = policy_instance_data(member->instance);
            if (instance->session != transaction->session &&
                control_pages_show_work(instance->session->pages)) {
                return true;
            }
        }
    }
    return false;
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
        mark_yielded(block, transaction);
        block_end(block, BLOCK_OWED);
    }
    transaction->state = TRANSACTION_YIELDING;
    transaction->yielded |= any;
    return any;
}

bool yield_is_owed(const struct transaction *transaction)
{
    for (const struct session *session = transaction->daemon->sessions; session != NULL;
         session = session->next) {
        for (const struct segment *s = session->owed; s != NULL; s = s->next) {
            if (s->yielded_to == transaction->wait.waiter.number) {
                return true;
            }
        }
    }
    return false;
}

void transactions_earmark_yielded(struct daemon *daemon, struct segment *list)
{
    struct transaction *transaction;
    for (struct segment *segment = list; segment != NULL; segment = segment->next) {
        DL_FOREACH(daemon->transactions, transaction)
        {
            if (transaction->state == TRANSACTION_YIELDING && segment->legacy_key == 0 &&
                transaction->wait.waiter.number == segment->yielded_to) {
                transaction_earmark(transaction, segment->size);
            }
        }
        segment->yielded_to = 0;
    }
}
