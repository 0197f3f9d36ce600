/*
 * pinned - page-locked host memory of one array
 *
 * The library makes it, not the daemon, so that it is charged to this
 * process's own cgroup; the daemon only books it. It is filled with pages at
 * once: a full tmpfs is an error here and not a SIGBUS later.
 */
#ifndef CLIENT_PINNED_H
#define CLIENT_PINNED_H

#include <stdint.h>

#include "context.h"

struct pinned {
    void *memory;
    uint64_t nbytes; /* as asked for */
    uint64_t size;   /* mapped: whole pages */
    unsigned refs;   /* of placements; under the books' lock */
};

/* nbytes at least 1. Return: OK; HOST_MEMORY; NO_FDS; SYSTEM; CUDA. */
int pinned_create(struct context *context, uint64_t nbytes, struct pinned **pinned_p);
/* Nobody works in it any more. NULL is fine; returns NULL. */
struct pinned *pinned_destroy(struct pinned *pinned, struct context *context);

#endif
