/*
 * creation - the segments that a transaction lacks are made
 *
 * What the pool and the replaced blocks cannot back is promised, then created by the
 * grant thread, legacy blocks by the helper processes; cached segments are let go of
 * first where the device would not have room beside them. All or none: whatever
 * fails is left to the transaction, which hears of the end in any case.
 */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "legacy.h"
#include "transaction.h"

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
    transaction_created(transaction);
}

/* Asks the helpers for what the plan has of legacy blocks. */
static void make_legacy(struct transaction *transaction)
{
    struct backing *backing = &transaction->backing;
    for (size_t i = 0; i < backing->n_parts; i++) {
        struct backing_part *part = &backing->parts[i];
        if (!part->missing || !backing_part_is_legacy(part)) {
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
        if (!part->missing || backing_part_is_legacy(part)) {
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
    transaction_created(transaction);
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
        if (backing->parts[i].missing && !backing_part_is_legacy(&backing->parts[i])) {
            transaction->job_sizes[job->n_sizes++] = backing->parts[i].size;
        }
    }
    job->sizes = transaction->job_sizes;
    return true;
}

int creation_start(struct transaction *transaction)
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
        return CUBIEMEM_HOST_MEMORY;
    }
    books_promise(&daemon->books, missing);
    if (transaction->job.n_release > 0) {
        drain_watch(daemon);
    }
    transaction->job_running = true;
    transaction->job.data = transaction;
    transaction->job.done = job_done;
    grant_thread_submit(daemon->grant, &transaction->job);
    return CUBIEMEM_OK;
}
