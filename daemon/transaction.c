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
#include "checked.h"
#include "dispatch.h"
#include "eviction.h"
#include "legacy.h"
#include "log.h"
#include "status.h"

#define MAX_TRIES 4

static void transaction_plan(struct transaction *transaction);
static void wait_for_memory(struct transaction *transaction);

/* ------------------------------------------------------------ group locks */

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

bool transaction_locks(const struct instance *instance, bool waiting_too)
{
    const struct transaction *transaction = instance->session->daemon->transactions;
    while (transaction != NULL &&
           (transaction->trigger == NULL ||
            (transaction->state == TRANSACTION_WAITING && !waiting_too) ||
            !transaction_same_group(transaction->trigger, instance))) {
        transaction = transaction->next;
    }
    return transaction != NULL;
}

bool transaction_reserves(const struct instance *instance)
{
    const struct transaction *transaction;
    DL_FOREACH(instance->session->daemon->transactions, transaction)
    {
        const struct policy_plan *plan = transaction->plan;
        for (size_t i = 0; plan != NULL && i < plan->n_members; i++) {
            if (plan->members[i].instance == instance->policy) {
                return true;
            }
        }
    }
    return false;
}

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
    daemon->last_grant = number;
    backing_apply(&transaction->backing);
    backing_finish(&transaction->backing);
    number_grant(plan, number);
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

static void creating_done(struct transaction *transaction)
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

/* A helper's allocation as a segment, lent. */
static struct segment *legacy_segment(struct daemon *daemon, const struct legacy_block *made,
                                      uint64_t block_id)
{
    struct segment *segment = calloc(1, sizeof(*segment));
    if (segment != NULL) {
        segment->id = atomic_fetch_add(&daemon->device.next_id, 1) + 1;
        segment->size = made->size;
        segment->fd = -1;
        segment->legacy_key = made->generation;
        segment->block_id = block_id;
        memcpy(segment->legacy_handle, made->handle, sizeof(segment->legacy_handle));
    }
    return segment;
}

static void legacy_made(int status, CUresult result, const struct legacy_block *made, void *data)
{
    struct legacy_want *want = data;
    struct transaction *transaction = want->transaction;
    struct daemon *daemon = transaction->daemon;
    struct backing_part *part = &transaction->backing.parts[want->part];
    LL_DELETE(transaction->legacy_wants, want);
    if (status == CUBIEMEM_OK && part->block != NULL) {
        part->segment = legacy_segment(daemon, made, part->block->id);
        status = part->segment != NULL ? CUBIEMEM_OK : CUBIEMEM_HOST_MEMORY;
    }
    if (part->segment != NULL) {
        books_lend_new(&daemon->books, part->size);
    } else {
        books_unpromise(&daemon->books, part->size);
    }
    if (status != CUBIEMEM_OK && part->block != NULL) {
        transaction->failure = status;
        transaction->cu_result = result;
    }
    free(want);
    creating_done(transaction);
}

/* Asks the helpers for what the plan has of legacy blocks. */
static void make_legacy(struct transaction *transaction)
{
    struct backing *backing = &transaction->backing;
    for (size_t i = 0; i < backing->n_parts; i++) {
        struct backing_part *part = &backing->parts[i];
        if (part->segment != NULL || !backing_part_is_legacy(part)) {
            continue;
        }
        struct legacy_want *want = malloc(sizeof(*want));
        struct legacy_helper *helper;
        int status = want == NULL || part->block == NULL
                         ? CUBIEMEM_HOST_MEMORY
                         : session_legacy_helper(part->block->instance->session, &helper);
        if (status == CUBIEMEM_OK) {
            *want = (struct legacy_want){transaction, i, NULL};
            status = legacy_helper_alloc(helper, part->size, legacy_made, want);
        }
        if (status != CUBIEMEM_OK) {
            free(want);
            books_unpromise(&transaction->daemon->books, part->size);
            transaction->failure = part->block != NULL ? status : transaction->failure;
            continue;
        }
        LL_PREPEND(transaction->legacy_wants, want);
    }
}

/* The created segments take the places of the parts that were missing. */
static void place_created(struct transaction *transaction)
{
    struct daemon *daemon = transaction->daemon;
    struct backing *backing = &transaction->backing;
    size_t at = 0;
    for (size_t i = 0; i < backing->n_parts; i++) {
        struct backing_part *part = &backing->parts[i];
        if (part->segment != NULL || backing_part_is_legacy(part)) {
            continue;
        }
        if (transaction->job.n_created == 0) {
            books_unpromise(&daemon->books, part->size);
            continue;
        }
        struct segment *segment = transaction->job.created[at++];
        books_lend_new(&daemon->books, segment->size);
        if (part->block != NULL) {
            part->segment = segment;
        } else { /* nobody has seen it: as good as new for anybody, through the driver */
            segment->next = NULL;
            books_return(&daemon->books, segment->size);
            cached_to_driver(daemon, segment);
        }
    }
}

static void job_done(struct grant_job *job)
{
    struct transaction *transaction = job->data;
    struct daemon *daemon = transaction->daemon;
    transaction->job_running = false;
    place_created(transaction);
    daemon_read_device(daemon, job);
    if (job->status != CUBIEMEM_OK) {
        transaction->failure = job->status;
        transaction->cu_result = job->cu_result;
    }
    for (size_t i = 0; i < job->n_release; i++) { /* only when the thread was cancelled */
        if (job->release[i] != NULL) {
            let_go(daemon, job->release[i]);
        }
    }
    if (transaction->failure == CUBIEMEM_OK && transaction->session != NULL) {
        make_legacy(transaction);
    } else {
        books_unpromise(&daemon->books, transaction->backing.legacy_missing);
    }
    creating_done(transaction);
}

static bool job_fill(struct transaction *transaction, struct segment *release)
{
    struct grant_job *job = &transaction->job;
    struct backing *backing = &transaction->backing;
    size_t n_release;
    struct segment *segment;
    LL_COUNT(release, segment, n_release);
    free(job->release);
    free(job->created);
    free(transaction->job_sizes);
    memset(job, 0, sizeof(*job));
    job->release = calloc(n_release + 1, sizeof(job->release[0]));
    job->created = calloc(backing->n_parts + 1, sizeof(job->created[0]));
    transaction->job_sizes = calloc(backing->n_parts + 1, sizeof(transaction->job_sizes[0]));
    if (job->release == NULL || job->created == NULL || transaction->job_sizes == NULL) {
        return false;
    }
    while (release != NULL) {
        segment = release;
        release = segment->next;
        segment->next = NULL;
        books_drain_cached(&transaction->daemon->books, segment->size, now_ns());
        job->release[job->n_release++] = segment;
    }
    for (size_t i = 0; i < backing->n_parts; i++) {
        if (backing->parts[i].segment == NULL && !backing_part_is_legacy(&backing->parts[i])) {
            transaction->job_sizes[job->n_sizes++] = backing->parts[i].size;
        }
    }
    job->sizes = transaction->job_sizes;
    return true;
}

static void create(struct transaction *transaction)
{
    struct daemon *daemon = transaction->daemon;
    struct backing *backing = &transaction->backing;
    uint64_t missing = backing->missing + backing->legacy_missing;
    uint64_t creatable = books_creatable(&daemon->books);
    struct segment *release = NULL;
    if (missing > creatable) {
        release = pool_evict(daemon->pool, transaction->session->identity.uid,
                             missing - creatable);
    }
    if (!job_fill(transaction, release)) {
        cached_to_driver(daemon, release);
        refuse(transaction, CUBIEMEM_HOST_MEMORY, NULL);
        return;
    }
    books_promise(&daemon->books, missing);
    if (transaction->job.n_release > 0) {
        drain_watch(daemon);
    }
    waiting_leave(transaction); /* it has what it waited for */
    transaction->state = TRANSACTION_CREATING;
    transaction->job_running = true;
    transaction->job.data = transaction;
    transaction->job.done = job_done;
    grant_thread_submit(daemon->grant, &transaction->job);
}

/* --------------------------------------------------------------- yielding */

/* Gives up, in the policy and with the client, the arrays in blocks that are
 * about to be replaced and not kept: their memory is needed first. */
static void yield_member(struct daemon *daemon, const struct policy_plan_member *member,
                         struct instance *instance)
{
    uint64_t *block_ids = calloc(member->n_dropped + 1, sizeof(*block_ids));
    size_t n = 0;
    if (block_ids == NULL) {
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

static bool start_yield(struct transaction *transaction)
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

static bool still_owed(const struct daemon *daemon, const struct transaction *transaction)
{
    for (const struct session *session = daemon->sessions; session != NULL;
         session = session->next) {
        if (session->owed != NULL && may_owe_to(session, transaction)) {
            return true;
        }
    }
    return false;
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
    if (missing == 0) {
        grant(transaction);
    } else if (missing <= its_free(transaction)) {
        create(transaction);
    } else if (start_yield(transaction)) {
        transactions_wake(daemon);
    } else if (waiting_may(transaction)) {
        wait_for_memory(transaction);
    } else {
        refuse(transaction, CUBIEMEM_NO_MEMORY, refusal);
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
    if (evictions_pending(transaction)) { /* what a member of the group holds is in question */
        transaction->state = TRANSACTION_EVICTING;
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
    uint64_t free_size = is_undecided_before(transaction) ? 0 : its_free(transaction);
    if (!daemon->books.device_known || evictions_pending(transaction) ||
        policy_plan(daemon->policy, transaction->trigger->policy, free_size, false,
                    &transaction->plan, &refusal) != CUBIEMEM_OK) {
        return false;
    }
    struct policy_plan *plan = transaction->plan;
    if (plan->wanted > plan->replaced + pool_size(daemon->pool) ||
        (plan->partition.chunks > 1 && plan->wanted > plan->replaced) ||
        is_cut_too_fine(transaction, plan)) {
        drop_plan(transaction); /* a fresh reading may change it */
        return false;
    }
    policy_reserve(daemon->policy, plan);
    int status = backing_prepare(&transaction->backing, daemon, plan);
    if (status == CUBIEMEM_OK &&
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
        if ((transaction->state == TRANSACTION_YIELDING && !still_owed(daemon, transaction)) ||
            (transaction->state == TRANSACTION_EVICTING && !evictions_pending(transaction))) {
            read_then_plan(transaction);
        }
    }
    waiting_wake(daemon);
}
