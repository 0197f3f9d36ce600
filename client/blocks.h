/*
 * blocks - lent memory as this process maps it
 *
 * A block is one address range, stitched of segments that are mapped one after
 * the other (or one legacy handle, opened). Imported segment handles are kept
 * as long as the client holds the segment, because a segment may move from a
 * dropped block to a new one without a descriptor.
 *
 * The caller has made sure that nobody works in what it unmaps, and guards the
 * lists with the client's books.
 */
#ifndef CLIENT_BLOCKS_H
#define CLIENT_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "context.h"
#include "cubiemem.pb-c.h"
#include "incoming.h"

struct segment_view {
    uint64_t id;
    uint64_t size; /* bytes */
    CUmemGenericAllocationHandle handle;
};

struct block_view {
    uint64_t id;
    uint64_t size; /* bytes */
    uint64_t generation;
    bool legacy;
    CUdeviceptr address; /* of the first byte */
    struct segment_view *segments;
    size_t n_segments;
    /* legacy */
    unsigned char handle[64];
    uint64_t handle_offset;
    CUdeviceptr opened; /* what cuIpcOpenMemHandle gave */

    size_t n_arrays; /* that lie in it; counted by the holdings */
    struct block_view *next; /* instance::blocks */
};

/* Segments that are held and mapped nowhere. */
struct segment_list {
    struct segment_view *segments;
    size_t n, capacity;
};

/*
 * Map the block that a message describes; descriptors come from `incoming` in
 * order, held segments are taken out of `loose`. On failure nothing is mapped,
 * and whatever was taken or imported is in `loose`.
 *
 * Return: OK; INTERNAL (the description is wrong); NO_FDS; HOST_MEMORY; CUDA.
 */
int block_map(struct context *context, const Cubiemem__Block *description, uint64_t granularity,
              struct incoming *incoming, struct segment_list *loose, struct block_view **block_p);

/*
 * Unmap, free the address range and the block; its segments go to `loose`.
 * On failure the block is left as it is.
 */
int block_unmap(struct context *context, struct block_view *block, struct segment_list *loose);

/* The process let go of it without unmapping (close in a dead context). */
void block_forget(struct block_view *block);

/* Room for n more, so that what follows cannot fail. */
bool segment_list_reserve(struct segment_list *list, size_t n);
/* Release the driver's handles; the list of ids stays readable. */
void segment_list_release(struct segment_list *list, struct context *context);
void segment_list_finish(struct segment_list *list);

#endif
