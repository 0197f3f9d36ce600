/*
 * batch - everything queued in a group, as numbers to plan with (rules 4 to 8)
 *
 * Membership in the batch is marked with its number in owners, accounts and
 * blocks: scratch that the next batch overwrites, so gathering needs no set and
 * changes no state. One piece of memory holds all the numbers.
 */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

#include "protocol_limits.h"

bool batch_is_peer(const struct batch *batch, const struct policy_instance *instance)
{
    return instance->owner->batch == batch->id && !instance->has_request;
}

static int malformed(struct policy_refusal *refusal, const struct policy_instance *instance,
                     const char *label, const char *why)
{
    refusal->instance = instance->name;
    refusal->label = label;
    refusal->why = why;
    return CUBIEMEM_INVALID_REQUEST;
}

/* Rule 4: L, and whether all agree with it. */
static int batch_count_runs(struct batch *batch, struct policy_refusal *refusal)
{
    const struct policy_instance *i;
    uint64_t length = 0, most = 1;

    for (i = batch->group->first_queued; i != NULL; i = i->next_queued) {
        for (size_t a = 0; a < i->request.n; a++) {
            const struct array *array = &i->request.arrays[a];

            if ((uint64_t)array->total_runs > most) {
                most = (uint64_t)array->total_runs;
            }
            if (!array_is_chunkable(array)) {
                continue;
            }
            if (length != 0 && (uint64_t)array->shape[array->axis] != length) {
                return malformed(refusal, i, array->label,
                                 "its run axis is not as long as that of the arrays before it");
            }
            length = (uint64_t)array->shape[array->axis];
        }
    }
    batch->runs = length != 0 ? length : most;
    for (i = batch->group->first_queued; length != 0 && i != NULL; i = i->next_queued) {
        for (size_t a = 0; a < i->request.n; a++) {
            const struct array *array = &i->request.arrays[a];

            if (array->total_runs > 1 && (uint64_t)array->total_runs != length) {
                return malformed(refusal, i, array->label,
                                 "its total_runs is not the length of the batch's run axis");
            }
        }
    }
    return CUBIEMEM_OK;
}

/* Rule 8: the length that peers with arrays of it bind the batch to. Sums of the
 * group on the way. */
static int batch_visit_members(struct batch *batch, struct policy_refusal *refusal)
{
    int status = CUBIEMEM_OK;

    for (const struct policy_instance *i = batch->group->first; i != NULL; i = i->next_member) {
        const struct stay *stay = i->stay;

        batch->caps += quota_cap(i);
        batch->held += i->allocated + i->reserved;
        if (!batch_is_peer(batch, i)) {
            continue;
        }
        batch->n_peers++;
        if (i->n_device == 0 || !stay->has_pair || stay->pair.chunk_length > batch->runs) {
            continue;
        }
        if (batch->bound != 0 && batch->bound != stay->pair.chunk_length) {
            status = malformed(refusal, i, NULL,
                               "peers hold arrays of different chunk lengths; release them first");
        }
        batch->bound = stay->pair.chunk_length;
    }
    return status;
}

/* Rule 6, R: blocks all of whose remaining arrays the request replaces. */
static void member_count_replaced(const struct batch *batch, struct chunk_member *member)
{
    const struct policy_instance *instance = member->instance;
    const struct request *request = &instance->request;

    for (size_t i = 0; instance->first_held != NULL && i < request->n; i++) {
        struct held *held =
            holdings_find(instance, request->arrays[i].label, request->hashes[i]);
        struct block *block = held != NULL ? held->block : NULL;

        if (block == NULL) {
            continue;
        }
        if (block->batch != batch->id) {
            block->batch = batch->id;
            block->n_replaced = 0;
        }
        if (++block->n_replaced == block->shown.n_arrays) {
            member->replaced += block->shown.charge;
            member->n_dropped++;
        }
    }
}

static void member_count_sizes(struct batch *batch, struct chunk_member *member)
{
    const struct request *request = &member->instance->request;
    struct chunk_batch *chunk = &batch->chunk;

    member->first_row = chunk->n_rows;
    for (size_t i = 0; i < request->n; i++) {
        const struct array *array = &request->arrays[i];
        uint64_t bytes = 0;

        if (array->memory != CUBIEMEM_DEVICE) {
            continue;
        }
        array_bytes(array, UINT64_MAX, &bytes); /* fits: queue checked it */
        if (array_is_chunkable(array)) {
            chunk->rows[chunk->n_rows++] = bytes / (uint64_t)array->shape[array->axis];
        } else {
            chunk_member_add(chunk, member, bytes);
        }
    }
    member->n_rows = chunk->n_rows - member->first_row;
}

/* One room for each ceiling above a requester: limit - used + what the requesters
 * under it replace, and at least 0. */
static void batch_find_rooms(struct batch *batch)
{
    batch->rooms[batch->n_rooms++] = (struct room){ .account = NULL };
    for (size_t m = 0; m < batch->chunk.n_members; m++) {
        for (size_t i = 0; i < N_ACCOUNTS; i++) {
            struct account *account = batch->chunk.members[m].instance->accounts[i];
            bytes128 most;

            if (account == NULL || account->ceiling == NULL || account->batch == batch->id) {
                continue;
            }
            account->batch = batch->id;
            most = account_limit(batch->policy, account);
            for (size_t k = 0; k < batch->chunk.n_members; k++) {
                if (chunk_member_is_under(&batch->chunk.members[k], account)) {
                    most += batch->chunk.members[k].replaced;
                }
            }
            batch->rooms[batch->n_rooms++] = (struct room){
                .account = account,
                .bytes = most > account->used ? most - account->used : 0,
            };
        }
    }
}

static bool batch_make_memory(struct batch *batch, size_t n_arrays, size_t n_members)
{
    size_t members_size = n_members * sizeof(struct chunk_member);
    size_t rooms_size = (n_members * N_ACCOUNTS + 1) * sizeof(struct room);
    char *memory = malloc(members_size + rooms_size + n_arrays * sizeof(uint64_t));

    if (memory == NULL) {
        return false;
    }
    memset(memory, 0, members_size);
    batch->memory = memory;
    batch->chunk.members = (struct chunk_member *)(void *)memory;
    batch->rooms = (struct room *)(void *)(memory + members_size);
    batch->chunk.rows = (uint64_t *)(void *)(memory + members_size + rooms_size);
    return true;
}

int batch_gather(const struct policy *policy, struct policy_instance *trigger,
                 struct batch *batch_p, struct policy_refusal *refusal)
{
    struct batch batch = {
        .policy = policy,
        .group = trigger->group,
        .trigger = trigger,
        .id = ++policy->scratch->batch,
        .chunk = { .granularity = policy->granularity, .alignment = policy->alignment },
    };
    struct policy_instance *i;
    size_t n_arrays = 0, n_members = 0;
    int status;

    trigger->owner->batch = batch.id;
    for (i = batch.group->first_queued; i != NULL; i = i->next_queued) {
        i->owner->batch = batch.id;
        n_arrays += i->request.n;
        n_members++;
    }
    if (n_arrays > LIMIT_ARRAYS_PER_BATCH) {
        refusal->why = "a batch has at most 4096 arrays";
        return CUBIEMEM_LIMIT;
    }
    status = batch_count_runs(&batch, refusal);
    if (status == CUBIEMEM_OK) {
        status = batch_visit_members(&batch, refusal);
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    if (!batch_make_memory(&batch, n_arrays, n_members)) {
        refusal->why = "not enough host memory";
        return CUBIEMEM_HOST_MEMORY;
    }
    for (i = batch.group->first_queued; i != NULL; i = i->next_queued) {
        struct chunk_member *member = &batch.chunk.members[batch.chunk.n_members++];

        member->instance = i;
        member_count_sizes(&batch, member);
        member_count_replaced(&batch, member);
        batch.replaced += member->replaced;
    }
    batch_find_rooms(&batch);
    *batch_p = batch;
    return CUBIEMEM_OK;
}

void batch_finish(struct batch *batch)
{
    free(batch->memory);
}

const struct room *batch_misfit(const struct batch *batch, uint64_t n)
{
    const struct room *misfit = NULL;

    for (size_t i = 0; i < batch->n_rooms; i++) {
        const struct room *room = &batch->rooms[i];

        if (chunk_total(&batch->chunk, n, room->account) > room->bytes &&
            (misfit == NULL || room->bytes < misfit->bytes)) {
            misfit = room;
        }
    }
    return misfit;
}

void batch_blame(const struct batch *batch, uint64_t n, const struct account *account,
                 struct policy_refusal *refusal)
{
    uint64_t largest = 0;

    for (size_t m = 0; m < batch->chunk.n_members; m++) {
        const struct policy_instance *instance = batch->chunk.members[m].instance;

        if (!chunk_member_is_under(&batch->chunk.members[m], account)) {
            continue;
        }
        for (size_t i = 0; i < instance->request.n; i++) {
            const struct array *array = &instance->request.arrays[i];
            uint64_t bytes = 0;

            if (array->memory == CUBIEMEM_DEVICE && !(n == 0 && array_is_chunkable(array)) &&
                array_bytes(array, n == 0 ? UINT64_MAX : n, &bytes) && bytes > largest) {
                largest = bytes;
                refusal->instance = instance->name;
                refusal->label = array->label;
            }
        }
    }
}
