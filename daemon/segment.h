/*
 * segment - one physical device allocation, with its shareable handle
 *
 * Pure data. The device makes and unmakes it (device.h); what it is lent for is the
 * pool's business. Whoever holds the pointer owns the segment: it passes from the
 * loop to a device thread and back, and is never looked at by two threads at once.
 */
#ifndef SEGMENT_H
#define SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "hash.h"

struct segment {
    uint64_t id;   /* never twice the same in a daemon's life, never 0 */
    uint64_t size; /* bytes, a multiple of the granularity */
    CUmemGenericAllocationHandle handle;
    int fd; /* shareable handle, CLOEXEC; -1 once let go */

    /* Legacy: no handle and no descriptor here; a helper process holds the memory. */
    uint64_t legacy_key; /* generation of the helper's block; 0: not legacy */
    unsigned char legacy_handle[64];

    struct segment *next; /* in the list or stack that owns it */
    struct segment *prev; /* in a block, or among what a session owes */
    uint64_t block_id;    /* owed: of the block that it was in; legacy: that it is */
    bool taken;           /* a transaction under way wants it for a new block */
    uint64_t yielded_to;  /* owed: number of the transaction that asked for it; 0: of none */
};

#endif
