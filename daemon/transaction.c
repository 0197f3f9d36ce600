/*
 * transaction - one Allocate from the request to its answer, see transaction.h
 */
#include "transaction.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "answer.h"
#include "dispatch.h"
#include "eviction.h"
#include "log.h"
#include "seam.h"

#define MAX_TRIES 4

static void transaction_plan(struct transaction *transaction);
static void wait_for_memory(struct transaction *transaction);

/* ------------------------------------------------------------- earmarks */

void transaction_earmark(struct transaction *transaction, uint64_t size)
{
    books_promise(&transaction->daemon->books, size);
    transaction->earmarked += size;
}

/* What came back is its own to plan with. */
static void unearmark(struct transaction *transaction)
{
    books_unpromise(&transaction->daemon->books, transaction->earmarked);
    transaction->earmarked = 0;
}

/* -------------------------------------------------------------- the ends */

static void transaction_destroy(struct transaction *transaction)
{
    struct daemon *daemon = transaction->daemon;
    assert(!transaction->job_running && transaction->legacy_wants == NULL);
    DL_DELETE(daemon->transactions, transaction);
    waiting_leave(transaction);
    unearmark(transaction);
    evictions_forget_transaction(transaction);
    if (transaction->plan != NULL) {
        policy_plan_destroy(transaction->plan);
    }
    free(transaction->job.release);
    free(transaction->job.created);
    free(transaction->job_sizes);
    free(transaction);
    dispatch_unpark(daemon);
    waiting_wake(daemon);
}

/* A plan that was made and not reserved. */
static void drop_plan(struct transaction *transaction)
{
    policy_plan_destroy(transaction->plan);
    transaction->plan = NULL;
}

/* Everything that a plan did is undone; the transaction itself goes on. */
static void unplan(struct transaction *transaction)
{
    if (transaction->plan != NULL) {
        backing_undo(&transaction->backing, transaction->daemon, transaction->plan);
        policy_abort(transaction->daemon->policy, transaction->plan);
        policy_plan_destroy(transaction->plan);
        transaction->plan = NULL;
    }
}

static void refuse(struct transaction *transaction, int status, struct policy_refusal *refusal)
{
    unplan(transaction);
    descriptors_short(transaction->daemon, status);
    if (transaction->session != NULL) {
        struct policy_refusal none = {.free = UINT64_MAX, .largest = UINT64_MAX,
                                      .asked = UINT64_MAX, .held = UINT64_MAX,
                                      .cap = UINT64_MAX};
        answer_refusal(transaction->session, transaction->request_id, status,
                       transaction->cu_result, refusal != NULL ? refusal : &none,
                       transaction->yielded
                           ? "the arrays that were to be replaced had been given up before"
                           : NULL);
    }
    transaction_destroy(transaction);
}

/* New numbers for the owners of the batch; their work words learn them. */
static void number_grant(const struct policy_plan *plan, uint64_t grant)
{
    for (size_t i = 0; i < plan->n_members; i++) {
        if (plan->members[i].requester && plan->members[i].instance != NULL) {
            struct instance *instance = policy_instance_data(plan->members[i].instance);
            struct control_owner *owner =
                control_page_owner(instance->session->pages, instance->owner_slot);
            atomic_store(&owner->granted, grant);
            instance->warnings = plan->warnings;
        }
    }
}

/* The blocks that the commit let go: what was kept lives on as the new block,
 * of the others the client owes what no new block took. */
static void settle_gone(struct daemon *daemon)
{
    while (daemon->gone != NULL) {
        struct block *block = daemon->gone;
        daemon->gone = block->next;
        block->next = NULL;
        if (block->kept) {
            block->kept = false;
        } else {
            block_end(block, BLOCK_OWED);
        }
    }
}

static void grant(struct transaction *transaction)
{
    struct daemon *daemon = transaction->daemon;
    struct policy_plan *plan = transaction->plan;
    uint64_t number = daemon->last_grant + 1;
    struct answer_batch *batch;
    int status = answer_grant_encode(transaction, number, &batch);
    if (status != CUBIEMEM_OK) {
        refuse(transaction, status, NULL);
        return;
    }
    SEAM("grant");
    daemon->last_grant = number;
    backing_apply(&transaction->backing);
    backing_finish(&transaction->backing);
    number_grant(plan, number);
    plan->grant = number;
    policy_set_clock(daemon->policy, (uint64_t)now_ns());
    policy_commit(daemon->policy, plan);
    settle_gone(daemon);
    answer_grant_send(batch);
    log_debug("client %" PRIu64 ": granted %" PRIu64 " bytes in %" PRIu64 " chunks of %" PRIu64
              " runs",
              transaction->session->id, plan->wanted, plan->partition.chunks,
              plan->partition.chunk_length);
    transaction_destroy(transaction);
}

/* --------------------------------------------------------------- creating */

void transaction_created(struct transaction *transaction)
{
    if (transaction->job_running || transaction->legacy_wants != NULL) {
        return;
    }
    if (transaction->session == NULL) {
        refuse(transaction, CUBIEMEM_CANCELLED, NULL);
        return;
    }
    if (transaction->failure == CUBIEMEM_OK) {
        grant(transaction);
        return;
    }
    int failure = transaction->failure;
    transaction->failure = CUBIEMEM_OK;
    if (failure == CUBIEMEM_NO_MEMORY && ++transaction->n_tries < MAX_TRIES) {
        /* Somebody outside took what was free: plan with what there is now. */
        unplan(transaction);
        transaction_plan(transaction);
        return;
    }
    if (failure == CUBIEMEM_NO_MEMORY && waiting_may(transaction)) {
        unplan(transaction);
        wait_for_memory(transaction);
        return;
    }
    refuse(transaction, failure, NULL);
}

/* --------------------------------------------------------------- planning */

/* Did the device's memory, not a quota, stand in the way? */
static bool is_short(int status, const struct policy_plan *plan)
{
    return status == CUBIEMEM_OK ? plan->partition.chunks > 1
                                 : status == CUBIEMEM_NO_MEMORY ||
                                       status == CUBIEMEM_UNCHUNKABLE_TOO_LARGE ||
                                       status == CUBIEMEM_RUN_TOO_LARGE;
}

/* What it may plan with: behind somebody who waits, only what came back for it. */
static uint64_t its_free(const struct transaction *transaction)
{
    uint64_t free_size = books_free(&transaction->daemon->books);
    return waiting_is_behind(transaction) && transaction->own < free_size ? transaction->own
                                                                          : free_size;
}

/* The plan with the books as they are; without victims if that is enough, since
 * to choose them costs a look at everybody's work words. */
static int make_plan(struct transaction *transaction, struct policy_refusal *refusal_p)
{
    struct daemon *daemon = transaction->daemon;
    uint64_t free_size = its_free(transaction);
    struct policy_instance *trigger = transaction->trigger->policy;
    int status = policy_plan(daemon->policy, trigger, free_size, false, &transaction->plan,
                             refusal_p);
    if (!transaction->may_evict || waiting_is_behind(transaction) ||
        !is_short(status, transaction->plan)) {
        return status;
    }
    drop_plan(transaction);
    evictions_note_marks(daemon, transaction);
    return policy_plan(daemon->policy, trigger, free_size, true, &transaction->plan, refusal_p);
}

/* True: owners were asked; the answers wake the transaction to plan anew. */
static bool start_evictions(struct transaction *transaction)
{
    struct policy_plan *plan = transaction->plan;
    if (plan->n_victims == 0) {
        return false;
    }
    if (!evictions_ask(transaction, plan->victims, plan->n_victims)) {
        transaction->may_evict = false;
    }
    drop_plan(transaction);
    transaction->state = TRANSACTION_EVICTING;
    if (waiting_may(transaction)) {
        waiting_enter(transaction);
    }
    return true;
}

/* ---------------------------------------------------------------- waiting */

/* How the plan that was just made stands with what it waits for. */
static enum waitq_verdict judge(struct transaction *transaction, int status,
                                const struct policy_refusal *refusal)
{
    const struct daemon *daemon = transaction->daemon;
    const struct policy_plan *plan = transaction->plan;
    struct wait *wait = &transaction->wait;
    struct waitq_ask ask = {.max_chunks = wait->terms.max_chunks,
                            .capacity = books_capacity(&daemon->books),
                            .status = status,
                            .chunks = status == CUBIEMEM_OK ? plan->partition.chunks : 0};
    wait->asked = status == CUBIEMEM_OK ? plan->asked : refusal->asked;
    return waitq_judge(daemon->policy, transaction->trigger->policy, &ask, &wait->max_chunks);
}

static void wait_for_memory(struct transaction *transaction)
{
    drop_plan(transaction);
    transaction->own = 0;
    transaction->n_tries = 0;
    transaction->state = TRANSACTION_WAITING;
    waiting_enter(transaction);
    dispatch_unpark(transaction->daemon); /* a Release may be what it waits for */
}

/* A refusal after a wait, or behind others who wait, is for want of memory alone,
 * unless even an empty device could not serve the batch. */
static void refuse_short(struct transaction *transaction, int status,
                         struct policy_refusal *refusal)
{
    bool waited = transaction->wait.since_ns != 0;
    if ((waited || waiting_is_behind(transaction)) &&
        judge(transaction, status, refusal) == WAITQ_WAIT) {
        status = CUBIEMEM_NO_MEMORY;
        refusal->why = waited ? "device memory lacked until the time to wait was over"
                              : "others wait for device memory and come first; this request was "
                                "not to wait";
    }
    refuse(transaction, status, refusal);
}

/* What is replaced was counted on, but comes back later: the cached segments that
 * were taken in its stead may be promised to others, or be for who waits before it. */
static bool takes_promised(const struct transaction *transaction)
{
    uint64_t taken = transaction->backing.taken;
    return taken > 0 && (books_are_overdrawn(&transaction->daemon->books) ||
                         (waiting_is_behind(transaction) && taken > transaction->own));
}

/* Old and new do not fit beside each other. */
static void yield_or_wait(struct transaction *transaction, struct policy_refusal *refusal)
{
    bool is_worked_in = yield_would_wait_for_work(transaction);
    *refusal = (struct policy_refusal){.asked = transaction->plan->asked,
                                       .free = its_free(transaction),
                                       .held = UINT64_MAX,
                                       .cap = UINT64_MAX,
                                       .largest = UINT64_MAX};
    if (!is_worked_in && yield_start(transaction)) {
        transactions_wake(transaction->daemon);
        return;
    }
    unplan(transaction);
    if (waiting_may(transaction)) {
        wait_for_memory(transaction);
    } else {
        refusal->why = is_worked_in ? "another member of the group works in what would be replaced"
                                    : NULL;
        refuse(transaction, CUBIEMEM_NO_MEMORY, refusal);
    }
}

/* A plan without victims is carried out: granted at once, or created for. */
static void fetch(struct transaction *transaction, struct policy_refusal *refusal)
{
    struct daemon *daemon = transaction->daemon;
    policy_reserve(daemon->policy, transaction->plan);
    int status = backing_prepare(&transaction->backing, daemon, transaction->plan);
    if (status != CUBIEMEM_OK) {
        policy_abort(daemon->policy, transaction->plan);
        policy_plan_destroy(transaction->plan);
        transaction->plan = NULL;
        refuse(transaction, status, NULL);
        return;
    }
    uint64_t missing = transaction->backing.missing + transaction->backing.legacy_missing;
    bool is_covered = !takes_promised(transaction);
    if (missing == 0 && is_covered) {
        grant(transaction);
    } else if (missing <= its_free(transaction) && is_covered) {
        waiting_leave(transaction); /* it has what it waited for */
        transaction->state = TRANSACTION_CREATING;
        status = creation_start(transaction);
        if (status != CUBIEMEM_OK) {
            refuse(transaction, status, NULL);
        }
    } else {
        yield_or_wait(transaction, refusal);
    }
}

/* What a member of the group holds is in question: nothing can be said before the
 * answer is there, but that the time to wait is over. */
static void plan_when_answered(struct transaction *transaction)
{
    struct policy_refusal refusal = {.why = "an owner of its group was asked for its arrays and "
                                            "has not answered",
                                     .asked = UINT64_MAX};
    if (waiting_may(transaction)) {
        wait_for_memory(transaction);
    } else if (transaction->wait.since_ns != 0) {
        refuse(transaction, CUBIEMEM_NO_MEMORY, &refusal);
    } else {
        transaction->state = TRANSACTION_EVICTING;
    }
}

/* Plans with the books as they are, and goes on from there. */
static void transaction_plan(struct transaction *transaction)
{
    struct daemon *daemon = transaction->daemon;
    transaction->own = transaction->earmarked;
    unearmark(transaction);
    if (transaction->wait.cancelled) {
        refuse(transaction, CUBIEMEM_CANCELLED, NULL);
        return;
    }
    if (evictions_pending(transaction)) {
        plan_when_answered(transaction);
        return;
    }
    struct policy_refusal refusal = {0};
    int status = make_plan(transaction, &refusal);
    if (waiting_may(transaction) && judge(transaction, status, &refusal) == WAITQ_WAIT) {
        wait_for_memory(transaction);
    } else if (status != CUBIEMEM_OK) {
        refuse_short(transaction, status, &refusal);
    } else if (start_evictions(transaction)) {
        transactions_wake(daemon);
    } else {
        fetch(transaction, &refusal);
    }
}

/* Has somebody who came before not yet been found to wait? Its reading is under way,
 * and those of all who come later come after it. */
static bool is_undecided_before(const struct transaction *transaction)
{
    const struct transaction *t = transaction->daemon->transactions;
    while (t != transaction && (t->state != TRANSACTION_READING || !waiting_may(t))) {
        t = t->next;
    }
    return t != transaction;
}

/* More chunks than it wants to have without waiting for fewer. */
static bool is_cut_too_fine(const struct transaction *transaction,
                            const struct policy_plan *plan)
{
    const struct wait *wait = &transaction->wait;
    uint64_t most = wait->terms.max_chunks;
    if (plan->partition.chunks <= 1 || !waiting_may(transaction)) {
        return false;
    }
    return plan->partition.chunks >
           (most > 0 ? most : policy_fair_chunks(transaction->daemon->policy,
                                                 transaction->trigger->policy));
}

/* The batch as it is now, if nothing has to be fetched for it. */
static bool grant_from_hand(struct transaction *transaction)
{
    struct daemon *daemon = transaction->daemon;
    struct policy_refusal refusal = {0};
    if (!daemon->books.device_known || evictions_pending(transaction) ||
        make_plan(transaction, &refusal) != CUBIEMEM_OK) {
        return false;
    }
    struct policy_plan *plan = transaction->plan;
    bool needs_more = plan->wanted > plan->replaced;
    if (plan->n_victims > 0 || plan->wanted > plan->replaced + pool_size(daemon->pool) ||
        (needs_more && (plan->partition.chunks > 1 || is_undecided_before(transaction))) ||
        is_cut_too_fine(transaction, plan)) {
        drop_plan(transaction); /* a fresh reading may change it */
        return false;
    }
    policy_reserve(daemon->policy, plan);
    int status = backing_prepare(&transaction->backing, daemon, plan);
    if (status == CUBIEMEM_OK && !takes_promised(transaction) &&
        transaction->backing.missing + transaction->backing.legacy_missing == 0) {
        grant(transaction);
        return true;
    }
    if (status == CUBIEMEM_OK) {
        backing_undo(&transaction->backing, daemon, plan);
    }
    policy_abort(daemon->policy, plan);
    policy_plan_destroy(plan);
    transaction->plan = NULL;
    return false;
}

static void reading_done(struct grant_job *job)
{
    struct transaction *transaction = job->data;
    transaction->job_running = false;
    daemon_read_device(transaction->daemon, job);
    if (transaction->session == NULL || job->status == CUBIEMEM_CANCELLED) {
        refuse(transaction, CUBIEMEM_CANCELLED, NULL);
    } else if (!job->memory_known) {
        refuse(transaction, CUBIEMEM_DEVICE_LOST, NULL);
    } else {
        transaction_plan(transaction);
    }
}

static void read_then_plan(struct transaction *transaction)
{
    transaction->state = TRANSACTION_READING;
    memset(&transaction->job, 0, sizeof(transaction->job));
    transaction->job.data = transaction;
    transaction->job.done = reading_done;
    transaction->job_running = true;
    grant_thread_submit(transaction->daemon->grant, &transaction->job);
}

void transaction_begin(struct session *session, struct instance *trigger, uint64_t request_id,
                       const struct wait_terms *terms)
{
    struct transaction *transaction = calloc(1, sizeof(*transaction));
    if (transaction == NULL) {
        answer_status(session, request_id, CUBIEMEM_HOST_MEMORY, NULL);
        return;
    }
    transaction->daemon = session->daemon;
    transaction->session = session;
    transaction->trigger = trigger;
    transaction->request_id = request_id;
    transaction->may_evict = true;
    waiting_init(transaction, terms);
    DL_APPEND(session->daemon->transactions, transaction);
    if (!grant_from_hand(transaction)) {
        read_then_plan(transaction);
    }
}

/* ------------------------------------------------------------ interruptions */

static void forget_instance(struct transaction *transaction, struct instance *instance)
{
    struct daemon *daemon = transaction->daemon;
    if (transaction->plan == NULL) {
        return;
    }
    backing_forget_instance(&transaction->backing, daemon, instance);
    policy_plan_forget_instance(daemon->policy, transaction->plan, instance->policy);
}

void transactions_forget_session(struct daemon *daemon, struct session *session)
{
    struct transaction *transaction, *next;
    DL_FOREACH_SAFE(daemon->transactions, transaction, next)
    {
        for (struct instance *instance = session->instances; instance != NULL;
             instance = instance->hh.next) {
            forget_instance(transaction, instance);
        }
        if (transaction->session != session) {
            continue;
        }
        transaction->session = NULL;
        transaction->trigger = NULL;
        waiting_leave(transaction);
        if (transaction->state == TRANSACTION_YIELDING ||
            transaction->state == TRANSACTION_EVICTING ||
            transaction->state == TRANSACTION_WAITING) {
            refuse(transaction, CUBIEMEM_CANCELLED, NULL);
        }
    }
}

void transactions_forget_instance(struct daemon *daemon, const struct instance *instance)
{
    struct transaction *transaction, *next;
    DL_FOREACH_SAFE(daemon->transactions, transaction, next)
    {
        if (transaction->state == TRANSACTION_WAITING && transaction->trigger == instance) {
            refuse(transaction, CUBIEMEM_CANCELLED, NULL);
        }
    }
}

bool transaction_cancel(struct instance *instance)
{
    struct transaction *transaction = instance->session->daemon->transactions;
    while (transaction != NULL &&
           (transaction->trigger != instance || !transaction->wait.waiter.waits)) {
        transaction = transaction->next;
    }
    if (transaction == NULL) {
        return false;
    }
    transaction->wait.cancelled = true;
    if (transaction->state == TRANSACTION_WAITING ||
        transaction->state == TRANSACTION_EVICTING) {
        refuse(transaction, CUBIEMEM_CANCELLED, NULL);
    }
    return true;
}

/* Would it be asked to wait again? */
static bool still_waits(struct transaction *transaction)
{
    struct policy_refusal refusal = {0};
    if (evictions_pending(transaction)) {
        return true; /* the answer wakes it */
    }
    int status = make_plan(transaction, &refusal);
    bool waits = judge(transaction, status, &refusal) == WAITQ_WAIT;
    drop_plan(transaction);
    return waits;
}

void transaction_reconsider(struct transaction *transaction)
{
    if (!waiting_may(transaction)) {
        read_then_plan(transaction);
    } else if (!grant_from_hand(transaction) && !still_waits(transaction)) {
        read_then_plan(transaction); /* by the books it is there: now by the device */
    }
}

void transactions_wake(struct daemon *daemon)
{
    struct transaction *transaction, *next;
    DL_FOREACH_SAFE(daemon->transactions, transaction, next)
    {
        if ((transaction->state == TRANSACTION_YIELDING && !yield_is_owed(transaction)) ||
            (transaction->state == TRANSACTION_EVICTING && !evictions_pending(transaction))) {
            read_then_plan(transaction);
        }
    }
    waiting_wake(daemon);
}
