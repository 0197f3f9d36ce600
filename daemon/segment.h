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
#include <sys/types.h>

#include "driver.h"

struct segment {
    uint64_t id;   /* never twice the same in a daemon's life, never 0 */
    uint64_t size; /* bytes, a multiple of the granularity */
    CUmemGenericAllocationHandle handle;
    int fd; /* shareable handle, CLOEXEC; -1 once let go */

    /* the pool's */
    bool has_uid; /* was ever lent, to uid */
    uid_t uid;
    int state;
    void *owner;
    struct segment *next, *previous;
};

#endif
