/*
 * lot - the records of what one instance is to be given by one plan
 *
 * Made when the batch is planned, so that committing needs no memory: arrays in
 * chunked shape, the blocks they lie in (rule 5), their offsets, and the records
 * by which the instance will hold them; labels and shapes are copies.
 */
#include "lot.h"

#include <stdlib.h>
#include <string.h>

struct lot_sizes {
    size_t n_device, n_dimensions, label_bytes;
};

static struct lot_sizes lot_measure(const struct request *request)
{
    struct lot_sizes sizes = { 0 };

    for (size_t i = 0; i < request->n; i++) {
        sizes.n_device += request->arrays[i].memory == CUBIEMEM_DEVICE;
        sizes.n_dimensions += request->arrays[i].rank;
        sizes.label_bytes += strlen(request->arrays[i].label) + 1;
    }
    return sizes;
}

/* The lot with its parts behind it; no array or block in it yet. */
static struct lot *lot_make(const struct request *request, size_t n_dropped,
                            struct policy_block ***dropped_p, int64_t **shapes_p, char **labels_p)
{
    struct lot_sizes sizes = lot_measure(request);
    /* An array is in one block, so there are no more blocks than device arrays. */
    size_t size = sizeof(struct lot) +
                  request->n * (sizeof(struct held) + sizeof(struct policy_array)) +
                  sizes.n_device * (sizeof(struct block) + sizeof(struct policy_plan_block)) +
                  n_dropped * sizeof(struct policy_block *) +
                  sizes.n_dimensions * sizeof(int64_t) + sizes.label_bytes;
    struct lot *lot = malloc(size);
    size_t cleared = sizeof(struct lot) + request->n * sizeof(struct held) +
                     sizes.n_device * (sizeof(struct block) + sizeof(struct policy_plan_block));

    if (lot == NULL) {
        return NULL;
    }
    memset(lot, 0, cleared);
    lot->n_users = 1;
    lot->held = (struct held *)(void *)(lot + 1);
    lot->blocks = (struct block *)(void *)(lot->held + request->n);
    lot->plan_blocks = (struct policy_plan_block *)(void *)(lot->blocks + sizes.n_device);
    lot->arrays = (struct policy_array *)(void *)(lot->plan_blocks + sizes.n_device);
    *dropped_p = (struct policy_block **)(void *)(lot->arrays + request->n);
    *shapes_p = (int64_t *)(void *)(*dropped_p + n_dropped);
    *labels_p = (char *)(*shapes_p + sizes.n_dimensions);
    return lot;
}

static struct block *lot_add_block(struct lot *lot, uint64_t *next_id, uint64_t charge)
{
    struct policy_plan_block *block = &lot->plan_blocks[lot->n_blocks];

    block->id = ++*next_id;
    block->charge = charge;
    lot->charge += charge;
    return &lot->blocks[lot->n_blocks++];
}

/* The arrays in chunked shape, in no block yet. */
static void lot_fill_arrays(struct lot *lot, const struct request *request, uint64_t n,
                            int64_t *shapes, char *labels)
{
    for (size_t i = 0; i < request->n; i++) {
        const struct array *array = &request->arrays[i];
        size_t label_size = strlen(array->label) + 1;
        uint64_t bytes = 0;

        array_bytes(array, n, &bytes);
        memcpy(labels, array->label, label_size);
        if (array->rank > 0) {
            memcpy(shapes, array->shape, array->rank * sizeof(int64_t));
        }
        if (array_is_chunkable(array)) {
            shapes[array->axis] = (int64_t)n;
        }
        lot->arrays[i] = (struct policy_array){
            .label = labels,
            .nbytes = bytes,
            .dtype = array->dtype,
            .memory = array->memory,
            .zeroed = array->zeroed,
            .rank = array->rank,
            .shape = shapes,
        };
        lot->held[i].array = &lot->arrays[i];
        labels += label_size;
        shapes += array->rank;
        if (array->memory != CUBIEMEM_DEVICE &&
            __builtin_add_overflow(lot->pinned, bytes, &lot->pinned)) {
            lot->pinned = UINT64_MAX;
        }
    }
    lot->n_arrays = request->n;
}

static void lot_place(struct lot *lot, size_t i, struct block *block, uint64_t offset)
{
    struct policy_array *array = &lot->arrays[i];

    lot->held[i].block = block;
    block->shown.n_arrays++;
    struct policy_plan_block *planned = &lot->plan_blocks[block - lot->blocks];

    array->block_id = planned->id;
    planned->zeroed |= array->zeroed;
    array->offset = array->nbytes > 0 ? offset : 0;
}

/* Rule 5: an array of a granule or more is a block; the smaller ones share one,
 * if any of them has bytes. */
static void lot_fill_blocks(struct lot *lot, uint64_t granularity, uint64_t alignment,
                            uint64_t *next_id)
{
    struct block *shared = NULL;
    uint64_t small = 0, offset = 0;

    for (size_t i = 0; i < lot->n_arrays; i++) {
        const struct policy_array *array = &lot->arrays[i];

        if (array->memory == CUBIEMEM_DEVICE && array->nbytes < granularity) {
            small += chunk_round_up(array->nbytes, alignment);
        }
    }
    if (small > 0) {
        shared = lot_add_block(lot, next_id, chunk_round_up(small, granularity));
    }
    for (size_t i = 0; i < lot->n_arrays; i++) {
        const struct policy_array *array = &lot->arrays[i];

        if (array->memory != CUBIEMEM_DEVICE) {
            continue;
        }
        if (array->nbytes >= granularity) {
            lot_place(lot, i,
                      lot_add_block(lot, next_id, chunk_round_up(array->nbytes, granularity)), 0);
        } else if (shared != NULL) {
            lot_place(lot, i, shared, offset);
            offset += chunk_round_up(array->nbytes, alignment);
        }
    }
}

struct lot *lot_create(const struct batch *batch, const struct chunk_member *member, uint64_t n,
                       uint64_t *next_id, struct policy_block ***dropped_p)
{
    const struct policy_instance *instance = member->instance;
    struct policy_block **dropped;
    int64_t *shapes;
    char *labels;
    struct lot *lot =
        lot_make(&instance->request, member->n_dropped, &dropped, &shapes, &labels);

    if (lot == NULL) {
        return NULL;
    }
    lot_fill_arrays(lot, &instance->request, n, shapes, labels);
    lot_fill_blocks(lot, batch->chunk.granularity, batch->chunk.alignment, next_id);
    *dropped_p = dropped;
    if (member->n_dropped > 0) {
        for (struct block *b = instance->first_block; b != NULL; b = b->next) {
            if (b->batch == batch->id && b->n_replaced == b->shown.n_arrays) {
                *dropped++ = &b->shown;
            }
        }
    }
    return lot;
}
