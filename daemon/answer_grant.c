/*
 * answer_grant - a grant on its way out, see answer.h
 *
 * Takes a reserved plan and what backs it apart into the ArrayResponses of its
 * members, in parts that fit into packets, with the descriptors of new segments in
 * the places where the messages name them. All of it is encoded before the plan is
 * committed, so that nothing can fail behind the commit.
 */
#include "answer.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "connection.h"
#include "fdset.h"
#include "status.h"
#include "transaction.h"

/* One part of one member's ArrayResponse, encoded. */
struct answer_part {
    struct session *session;
    unsigned char *data;
    size_t size;
    struct fdset fds;
    uint64_t packet;
    uint64_t ends_request; /* the id that this part answers */
    struct answer_part *next, *prev;
};

struct answer_batch {
    struct answer_part *parts;
};

/* What is being put together for one member. */
struct builder {
    struct answer_batch *batch;
    const struct transaction *transaction;
    struct session *session;
    struct instance *instance;
    uint64_t id; /* of the request; 0: an event */
    uint32_t part;
    size_t size; /* of what is in the response, about */
    uint64_t grant;
    Cubiemem__ArrayResponse response;
    Cubiemem__Block **blocks;
    Cubiemem__ArrayPlacement **arrays;
    struct fdset fds;
    bool has_handles; /* new memory: the device is named with it */
    struct arena *arena;
};

/* The little structs of one part; all go at once. Most answers need no more than
 * the first piece, which is always there: the loop encodes one at a time. */
struct arena {
    struct arena *next;
    max_align_t data[];
};

static max_align_t first_piece[16384 / sizeof(max_align_t)];
static size_t first_used; /* elements */

static void *arena_take(struct builder *builder, size_t size)
{
    size_t n = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t);
    if (n <= sizeof(first_piece) / sizeof(first_piece[0]) - first_used) {
        void *taken = &first_piece[first_used];
        first_used += n;
        return memset(taken, 0, size);
    }
    struct arena *piece = calloc(1, sizeof(*piece) + size);
    if (piece == NULL) {
        return NULL;
    }
    piece->next = builder->arena;
    builder->arena = piece;
    return piece->data;
}

static void arena_reset(struct builder *builder)
{
    while (builder->arena != NULL) {
        struct arena *piece = builder->arena;
        builder->arena = piece->next;
        free(piece);
    }
    first_used = 0;
}

static void part_reset(struct builder *builder)
{
    arena_reset(builder);
    fdset_finish(&builder->fds);
    cubiemem__array_response__init(&builder->response);
    builder->response.has_instance_id = true;
    builder->response.instance_id = builder->instance->id;
    builder->response.blocks = builder->blocks;
    builder->response.arrays = builder->arrays;
    builder->size = 0;
}

/* To measure a message costs as much as to encode it: a small one (`about` so
 * many bytes) is encoded where there is room for many times as much. */
static bool encode(const Cubiemem__DaemonMessage *message, size_t about, unsigned char **data_p,
                   size_t *size_p)
{
    static unsigned char buffer[PACKET_MAX_SIZE];
    size_t size = about < sizeof(buffer) / 8
                      ? cubiemem__daemon_message__pack(message, buffer)
                      : cubiemem__daemon_message__get_packed_size(message);
    unsigned char *data = malloc(size);
    if (data == NULL) {
        return false;
    }
    if (about < sizeof(buffer) / 8) {
        memcpy(data, buffer, size);
    } else {
        cubiemem__daemon_message__pack(message, data);
    }
    *data_p = data;
    *size_p = size;
    return true;
}

static int part_end(struct builder *builder, bool more)
{
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
    const struct policy_plan *plan = builder->transaction->plan;
    Cubiemem__ArrayResponse *response = &builder->response;
    result.has_code = true;
    if (!more) {
        response->has_runs = response->has_chunks = response->has_chunk_length = true;
        response->has_tail_length = response->has_grant = response->has_warnings = true;
        response->runs = plan->partition.runs;
        response->chunks = plan->partition.chunks;
        response->chunk_length = plan->partition.chunk_length;
        response->tail_length = plan->partition.tail_length;
        response->grant = builder->grant;
        response->warnings = plan->warnings;
        response->device_uuid = builder->has_handles ? builder->session->daemon->device.uuid : NULL;
        result.has_warnings = plan->warnings != 0;
        result.warnings = plan->warnings;
    }
    message.has_id = true;
    message.has_part = message.has_more = more || builder->part > 0;
    message.id = builder->id;
    message.part = builder->part++;
    message.more = more;
    message.result = &result;
    message.response = response;
    if (builder->fds.n > 0) {
        message.has_packet = true;
        message.packet = connection_next_packet(builder->session->connection);
    }
    struct answer_part *part = calloc(1, sizeof(*part));
    if (part == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    if (!encode(&message, builder->size, &part->data, &part->size)) {
        free(part);
        return CUBIEMEM_HOST_MEMORY;
    }
    part->session = builder->session;
    part->packet = message.packet;
    part->ends_request = more ? 0 : builder->id;
    fdset_move(&part->fds, &builder->fds);
    DL_APPEND(builder->batch->parts, part);
    part_reset(builder);
    return CUBIEMEM_OK;
}

static int make_room(struct builder *builder, size_t size, bool fd)
{
    if (builder->size + size <= ANSWER_PART_SIZE && (!fd || builder->fds.n < PACKET_MAX_FDS)) {
        return CUBIEMEM_OK;
    }
    return part_end(builder, true);
}

/* The block as last in the part, begun (again) if it is not there. */
static Cubiemem__Block *open_block(struct builder *builder, const struct block *block,
                                   size_t n_segments)
{
    Cubiemem__ArrayResponse *response = &builder->response;
    if (response->n_blocks > 0 &&
        response->blocks[response->n_blocks - 1]->block_id == block->id) {
        return response->blocks[response->n_blocks - 1];
    }
    Cubiemem__Block *open = arena_take(builder, sizeof(*open));
    Cubiemem__Segment **segments = arena_take(builder, (n_segments + 1) * sizeof(*segments));
    if (open == NULL || segments == NULL) {
        return NULL;
    }
    cubiemem__block__init(open);
    open->has_block_id = open->has_size = open->has_kind = open->has_generation = true;
    open->block_id = block->id;
    open->size = block->size;
    open->kind = (Cubiemem__HandleKind)block->kind;
    open->generation = block->generation;
    open->segments = segments;
    response->blocks[response->n_blocks++] = open;
    builder->size += 64;
    return open;
}

static int add_segment(struct builder *builder, const struct block *block, size_t n_segments,
                       const struct segment *segment, bool held)
{
    bool legacy = block->kind == CUBIEMEM_HANDLE_LEGACY;
    builder->has_handles = true;
    bool fd = !held && !legacy;
    int status = make_room(builder, legacy ? 224 : 96, fd);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    Cubiemem__Block *open = open_block(builder, block, n_segments);
    if (open != NULL && legacy) {
        open->has_legacy_handle = open->has_legacy_offset = true;
        open->legacy_handle.data = (uint8_t *)(uintptr_t)segment->legacy_handle;
        open->legacy_handle.len = sizeof(segment->legacy_handle);
        builder->size += 120;
        return CUBIEMEM_OK;
    }
    Cubiemem__Segment *out = arena_take(builder, sizeof(*out));
    if (open == NULL || out == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    cubiemem__segment__init(out);
    out->has_segment_id = out->has_size = out->has_held = true;
    out->segment_id = segment->id;
    out->size = segment->size;
    out->held = held;
    if (fd && !fdset_dup(&builder->fds, segment->fd)) {
        return CUBIEMEM_NO_FDS;
    }
    open->segments[open->n_segments++] = out;
    builder->size += 32;
    return CUBIEMEM_OK;
}

/* A block that the client has already: its id says all. */
static int add_kept(struct builder *builder, const struct block *block)
{
    int status = make_room(builder, 24, false);
    Cubiemem__Block *kept = status == CUBIEMEM_OK ? arena_take(builder, sizeof(*kept)) : NULL;
    if (kept == NULL) {
        return status != CUBIEMEM_OK ? status : CUBIEMEM_HOST_MEMORY;
    }
    cubiemem__block__init(kept);
    kept->has_block_id = true;
    kept->block_id = block->id;
    builder->response.blocks[builder->response.n_blocks++] = kept;
    builder->size += 14;
    return CUBIEMEM_OK;
}

/* The new block and its parts. */
static int add_block(struct builder *builder, const struct block *block, size_t *next_part)
{
    const struct backing *backing = &builder->transaction->backing;
    int status = CUBIEMEM_OK;
    size_t n = 0;
    if (block->kept) {
        return add_kept(builder, block);
    }
    /* The parts stand in the order of the blocks; those of a member that is gone
     * have no block any more. */
    while (*next_part < backing->n_parts && backing->parts[*next_part].block != block) {
        ++*next_part;
    }
    while (*next_part + n < backing->n_parts && backing->parts[*next_part + n].block == block) {
        n++;
    }
    for (size_t i = 0; i < n && status == CUBIEMEM_OK; i++) {
        const struct backing_part *part = &backing->parts[*next_part + i];
        status = add_segment(builder, block, n, part->segment, part->from != NULL);
    }
    *next_part += n;
    return status;
}

static int add_array(struct builder *builder, const struct policy_plan_member *member,
                     const struct policy_array *array)
{
    size_t size = strlen(array->label) + 11u * array->rank + 64;
    int status = make_room(builder, size, false);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    Cubiemem__ArrayPlacement *out = arena_take(builder, sizeof(*out));
    if (out == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    cubiemem__array_placement__init(out);
    out->label = (char *)(uintptr_t)array->label;
    out->has_block_id = out->has_nbytes = true;
    out->has_offset = array->offset != 0;
    out->offset = array->offset;
    out->has_memory = array->memory != CUBIEMEM_DEVICE; /* the default */
    out->nbytes = array->nbytes;
    out->n_shape = array->rank;
    out->shape = (int64_t *)(uintptr_t)array->shape;
    out->dtype = (char *)(uintptr_t)dtype_name(array->dtype);
    out->memory = (Cubiemem__Memory)array->memory;
    out->has_zeroed = out->zeroed = array->zeroed;
    for (size_t i = 0; array->block_id != 0 && i < member->n_blocks; i++) {
        if (member->blocks[i].id == array->block_id) {
            out->block_id = ((const struct block *)member->blocks[i].data)->id;
            break;
        }
    }
    builder->arrays[builder->response.n_arrays++] = out;
    builder->size += size;
    return CUBIEMEM_OK;
}

static int add_dropped(struct builder *builder, const struct policy_plan_member *member)
{
    uint64_t *ids = NULL;
    for (size_t i = 0; i < member->n_dropped; i++) {
        const struct block *block = member->dropped[i]->data;
        if (block->kept) {
            continue;
        }
        int status = make_room(builder, 16, false);
        if (status != CUBIEMEM_OK) {
            return status;
        }
        if (builder->response.n_dropped_blocks == 0) {
            ids = arena_take(builder, (member->n_dropped - i) * sizeof(*ids));
            if (ids == NULL) {
                return CUBIEMEM_HOST_MEMORY;
            }
            builder->response.dropped_blocks = ids;
        }
        ids[builder->response.n_dropped_blocks++] = block->id;
        builder->size += 11;
    }
    return CUBIEMEM_OK;
}

static int encode_member(struct answer_batch *batch, const struct transaction *transaction,
                         const struct policy_plan_member *member, uint64_t grant, uint64_t id,
                         size_t *next_part)
{
    struct builder builder = {.batch = batch, .transaction = transaction, .id = id};
    builder.instance = policy_instance_data(member->instance);
    builder.session = builder.instance->session;
    builder.grant = grant;
    struct list {
        Cubiemem__Block *blocks[32];
        Cubiemem__ArrayPlacement *arrays[32];
    } few;
    bool is_few = member->n_blocks <= 32 && member->n_arrays <= 32;
    builder.blocks = is_few ? few.blocks : calloc(member->n_blocks + 1, sizeof(*builder.blocks));
    builder.arrays = is_few ? few.arrays : calloc(member->n_arrays + 1, sizeof(*builder.arrays));
    int status = builder.blocks != NULL && builder.arrays != NULL ? CUBIEMEM_OK
                                                                  : CUBIEMEM_HOST_MEMORY;
    fdset_init(&builder.fds);
    part_reset(&builder);
    for (size_t i = 0; i < member->n_blocks && status == CUBIEMEM_OK; i++) {
        status = add_block(&builder, member->blocks[i].data, next_part);
    }
    for (size_t i = 0; i < member->n_arrays && status == CUBIEMEM_OK; i++) {
        status = add_array(&builder, member, &member->arrays[i]);
    }
    if (status == CUBIEMEM_OK) {
        status = add_dropped(&builder, member);
    }
    if (status == CUBIEMEM_OK) {
        status = part_end(&builder, false);
    }
    part_reset(&builder);
    if (!is_few) {
        free(builder.blocks);
        free(builder.arrays);
    }
    return status;
}

void answer_grant_drop(struct answer_batch *batch)
{
    struct answer_part *part, *next;
    DL_FOREACH_SAFE(batch->parts, part, next)
    {
        fdset_finish(&part->fds);
        free(part->data);
        free(part);
    }
    free(batch);
}

/* Nothing was queued and no pair is cached: there is nothing to tell but OK. */
static int encode_nothing(struct answer_batch *batch, const struct transaction *transaction)
{
    struct policy_plan_member nobody = {.instance = transaction->trigger->policy};
    size_t next_part = 0;
    return encode_member(batch, transaction, &nobody, 0, transaction->request_id, &next_part);
}

int answer_grant_encode(const struct transaction *transaction, uint64_t grant,
                        struct answer_batch **batch_p)
{
    struct answer_batch *batch = calloc(1, sizeof(*batch));
    if (batch == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    const struct policy_plan *plan = transaction->plan;
    const struct policy_instance *trigger = transaction->trigger->policy;
    const struct policy_plan_member *own = NULL;
    size_t own_part = 0, next_part = 0;
    int status = CUBIEMEM_OK;
    for (size_t i = 0; i < plan->n_members && status == CUBIEMEM_OK; i++) {
        const struct policy_plan_member *member = &plan->members[i];
        if (member->instance == trigger) {
            own = member; /* the answer goes last: then all the rest is known */
            own_part = next_part;
        } else if (member->instance != NULL) {
            status = encode_member(batch, transaction, member, grant, 0, &next_part);
        }
    }
    if (status == CUBIEMEM_OK) {
        status = own != NULL ? encode_member(batch, transaction, own, grant,
                                             transaction->request_id, &own_part)
                             : encode_nothing(batch, transaction);
    }
    if (status != CUBIEMEM_OK) {
        answer_grant_drop(batch);
        return status;
    }
    *batch_p = batch;
    return CUBIEMEM_OK;
}

void answer_grant_send(struct answer_batch *batch)
{
    struct answer_part *part, *next;
    DL_FOREACH_SAFE(batch->parts, part, next)
    {
        connection_send(part->session->connection, part->data, part->size, &part->fds,
                        part->packet);
        answer_ended(part->session, part->ends_request);
        free(part);
    }
    free(batch);
}
