/*
 * backing - what stands behind the new blocks of a plan
 *
 * In this order: a replaced block of the same size is kept whole (the same
 * shapes again cost nothing); segments of other replaced blocks of the same
 * instance; the user's cached segments; the rest has to be created. A block's
 * segments add up to its charge exactly. A block with an array that has to come
 * as zeros is always created: what anybody has written in is no answer to it.
 *
 * Until backing_apply() nothing that a session holds has changed; only cached
 * segments have been taken out of the pool.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "protocol_limits.h"
#include "transaction.h"

static bool add_part(struct backing *backing, const struct backing_part *part)
{
    if (backing->n_parts == backing->room) {
        size_t room = backing->room == 0 ? 16 : 2 * backing->room;
        struct backing_part *parts = realloc(backing->parts, room * sizeof(*parts));
        if (parts == NULL) {
            return false;
        }
        backing->parts = parts;
        backing->room = room;
    }
    struct backing_part *added = &backing->parts[backing->n_parts++];
    *added = *part;
    added->missing = part->segment == NULL;
    if (added->missing && backing_part_is_legacy(part)) {
        backing->legacy_missing += part->size;
    } else if (added->missing) {
        backing->missing += part->size;
    }
    return true;
}

static bool add_block(struct backing *backing, struct block *block)
{
    if (backing->n_blocks == backing->blocks_room) {
        size_t room = backing->blocks_room == 0 ? 8 : 2 * backing->blocks_room;
        struct block **blocks = realloc(backing->blocks, room * sizeof(*blocks));
        if (blocks == NULL) {
            return false;
        }
        backing->blocks = blocks;
        backing->blocks_room = room;
    }
    backing->blocks[backing->n_blocks++] = block;
    return true;
}

/* The replaced block of this size that nothing else keeps; from *hint on, since
 * the same batch again comes in the same order. */
static struct block *same_size(const struct policy_plan_member *member, uint64_t size,
                               size_t *hint)
{
    for (size_t i = 0; i < member->n_dropped; i++) {
        size_t at = (*hint + i) % member->n_dropped;
        struct block *block = member->dropped[at]->data;
        if (!block->kept && block->size == size) {
            *hint = at + 1;
            return block;
        }
    }
    return NULL;
}

/* The largest untaken segment of at most `size` bytes in the replaced blocks
 * that are not kept. */
static struct segment *replaced_segment(const struct policy_plan_member *member, uint64_t size,
                                        struct block **from_p)
{
    struct segment *best = NULL;
    for (size_t i = 0; i < member->n_dropped; i++) {
        struct block *block = member->dropped[i]->data;
        for (struct segment *segment = block->segments; !block->kept && segment != NULL;
             segment = segment->next) {
            if (!segment->taken && segment->size <= size &&
                (best == NULL || segment->size > best->size)) {
                best = segment;
                *from_p = block;
            }
        }
    }
    return best;
}

static void undo_part(struct backing_part *part, struct daemon *daemon);

static int back_block(struct backing *backing, struct daemon *daemon,
                      const struct policy_plan_member *member, struct block *block,
                      bool zeroed)
{
    uid_t uid = block->instance->session->identity.uid;
    uint64_t left = block->size;
    while (left > 0) {
        struct backing_part part = {.block = block, .kind = block->kind, .size = left};
        if (part.kind == CUBIEMEM_HANDLE_VMM_FD) {
            part.segment = zeroed ? NULL : replaced_segment(member, left, &part.from);
            if (part.segment == NULL && !zeroed && (part.segment = pool_take(daemon->pool, uid, left))) {
                books_lend_cached(&daemon->books, part.segment->size);
                backing->taken += part.segment->size;
            }
            if (part.segment != NULL) {
                part.segment->taken = true;
                part.size = part.segment->size;
            } else if (left > SEGMENT_MAX_SIZE) {
                part.size = SEGMENT_MAX_SIZE;
            }
        }
        if (!add_part(backing, &part)) {
            undo_part(&part, daemon);
            return CUBIEMEM_HOST_MEMORY;
        }
        left -= part.size;
    }
    return CUBIEMEM_OK;
}

static int back_member(struct backing *backing, struct daemon *daemon,
                       struct policy_plan_member *member)
{
    struct instance *instance = policy_instance_data(member->instance);
    size_t hint = 0;
    for (size_t i = 0; i < member->n_blocks; i++) {
        struct block *kept = member->blocks[i].zeroed
                                 ? NULL
                                 : same_size(member, member->blocks[i].charge, &hint);
        if (kept != NULL) {
            kept->kept = true;
            member->blocks[i].data = kept;
        }
    }
    for (size_t i = 0; i < member->n_blocks; i++) {
        if (member->blocks[i].data != NULL) {
            continue;
        }
        struct block *block = block_create(instance, member->blocks[i].charge);
        if (block == NULL || !add_block(backing, block)) {
            free(block);
            return CUBIEMEM_HOST_MEMORY;
        }
        member->blocks[i].data = block;
        int status = back_block(backing, daemon, member, block, member->blocks[i].zeroed);
        if (status != CUBIEMEM_OK) {
            return status;
        }
    }
    return CUBIEMEM_OK;
}

int backing_prepare(struct backing *backing, struct daemon *daemon, struct policy_plan *plan)
{
    memset(backing, 0, sizeof(*backing));
    for (size_t i = 0; i < plan->n_members; i++) {
        if (plan->members[i].n_blocks > 0) {
            int status = back_member(backing, daemon, &plan->members[i]);
            if (status != CUBIEMEM_OK) {
                backing_undo(backing, daemon, plan);
                return status;
            }
        }
    }
    return CUBIEMEM_OK;
}

/* One part back to where it came from. */
static void undo_part(struct backing_part *part, struct daemon *daemon)
{
    struct segment *segment = part->segment;
    if (segment == NULL || part->block == NULL) {
        return;
    }
    struct session *session = part->block->instance->session;
    segment->taken = false;
    part->segment = NULL;
    if (part->from != NULL) {
        return; /* it never left */
    }
    segment->next = NULL;
    if (backing_part_is_legacy(part)) {
        session_free_legacy(session, segment);
        return;
    }
    books_return(&daemon->books, segment->size);
    if (!pool_put(daemon->pool, session->identity.uid, segment)) {
        cached_to_driver(daemon, segment);
    }
}

void backing_undo(struct backing *backing, struct daemon *daemon, struct policy_plan *plan)
{
    for (size_t i = 0; i < backing->n_parts; i++) {
        undo_part(&backing->parts[i], daemon);
    }
    for (size_t i = 0; i < backing->n_blocks; i++) {
        free(backing->blocks[i]);
    }
    for (size_t m = 0; m < plan->n_members; m++) {
        struct policy_plan_member *member = &plan->members[m];
        for (size_t i = 0; member->instance != NULL && i < member->n_dropped; i++) {
            ((struct block *)member->dropped[i]->data)->kept = false;
        }
        for (size_t i = 0; i < member->n_blocks; i++) {
            member->blocks[i].data = NULL;
        }
    }
    backing->n_blocks = 0;
    backing_finish(backing);
}

void backing_apply(struct backing *backing)
{
    for (size_t i = 0; i < backing->n_parts; i++) {
        struct backing_part *part = &backing->parts[i];
        if (part->block == NULL) {
            continue; /* forgotten */
        }
        part->segment->taken = false;
        if (part->from != NULL) {
            DL_DELETE(part->from->segments, part->segment);
            DL_APPEND(part->block->segments, part->segment);
        } else {
            block_add_segment(part->block, part->segment);
        }
    }
    backing->n_blocks = 0; /* the policy's blocks point to them now */
}

void backing_forget_instance(struct backing *backing, struct daemon *daemon,
                             struct instance *instance)
{
    for (size_t i = 0; i < backing->n_parts; i++) {
        struct backing_part *part = &backing->parts[i];
        if (part->block != NULL && part->block->instance == instance) {
            undo_part(part, daemon);
            part->block = NULL;
        }
    }
    size_t n = 0;
    for (size_t i = 0; i < backing->n_blocks; i++) {
        if (backing->blocks[i]->instance != instance) {
            backing->blocks[n++] = backing->blocks[i];
        } else {
            free(backing->blocks[i]);
        }
    }
    backing->n_blocks = n;
}

void backing_finish(struct backing *backing)
{
    assert(backing->n_blocks == 0);
    free(backing->parts);
    free(backing->blocks);
    memset(backing, 0, sizeof(*backing));
}
