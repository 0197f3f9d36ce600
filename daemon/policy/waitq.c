/*
 * waitq - who waits for device memory, and whether a batch should
 *
 * max_chunks is a wish, not a bound: it is relaxed to the number of chunks that an
 * empty device would give, since nobody can wait for less than that. With
 *
 *     K = max_chunks, or rule 5's k at the equal share
 *     E = the chunks on the device when all clients have given everything back
 *
 * a batch waits while now there are more than max(K, E) chunks, or it cannot be had
 * at all. The device is first taken without what other programs hold, because they may
 * hold it for ever; only a batch that cannot be had so is measured against all of it,
 * and waits for them to go.
 */
#include "model.h"
#include "waitq.h"

void waitq_enter(struct waitq *queue, struct waiter *waiter)
{
    struct waiter *before = queue->last;

    if (waiter->waits) {
        return;
    }
    while (before != NULL && before->number > waiter->number) {
        before = before->prev;
    }
    waiter->waits = true;
    waiter->prev = before;
    waiter->next = before != NULL ? before->next : queue->first;
    *(before != NULL ? &before->next : &queue->first) = waiter;
    *(waiter->next != NULL ? &waiter->next->prev : &queue->last) = waiter;
    queue->n++;
}

void waitq_leave(struct waitq *queue, struct waiter *waiter)
{
    if (!waiter->waits) {
        return;
    }
    list_remove(queue->first, queue->last, waiter, prev, next);
    waiter->waits = false;
    queue->n--;
}

size_t waitq_position(const struct waitq *queue, const struct waiter *waiter)
{
    const struct waiter *at = queue->first;
    size_t position = 1;

    if (!waiter->waits) {
        return 0;
    }
    for (; at != waiter; at = at->next) {
        position++;
    }
    return position;
}

bool waitq_is_behind(const struct waitq *queue, uint64_t number)
{
    return queue->first != NULL && queue->first->number < number;
}

/* The statuses by which a plan says that memory lacks, of whatever kind. */
static bool is_shortage(int status)
{
    return status == CUBIEMEM_NO_MEMORY || status == CUBIEMEM_UNCHUNKABLE_TOO_LARGE ||
           status == CUBIEMEM_RUN_TOO_LARGE;
}

enum waitq_verdict waitq_judge(const struct policy *policy, struct policy_instance *trigger,
                               const struct waitq_ask *ask, uint64_t *max_chunks_p)
{
    uint64_t most = ask->max_chunks, least = 1;

    if (ask->status != CUBIEMEM_OK && !is_shortage(ask->status)) {
        return WAITQ_REFUSE;
    }
    if (most == 0) {
        most = policy_fair_chunks(policy, trigger);
    }
    *max_chunks_p = most;
    if (ask->status == CUBIEMEM_OK && ask->chunks <= most) {
        return WAITQ_TAKE;
    }
    if (policy_empty_chunks(policy, trigger, ask->capacity, &least) != CUBIEMEM_OK &&
        policy_empty_chunks(policy, trigger, policy->total, &least) != CUBIEMEM_OK) {
        return ask->status == CUBIEMEM_OK ? WAITQ_TAKE : WAITQ_REFUSE;
    }
    *max_chunks_p = most > least ? most : least;
    return ask->status == CUBIEMEM_OK && ask->chunks <= *max_chunks_p ? WAITQ_TAKE : WAITQ_WAIT;
}
