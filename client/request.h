/*
 * request - what an instance has queued, and the messages that carry it
 *
 * A request is checked and copied when it is queued, and never changed after:
 * an allocate that is under way holds a reference while the program may queue
 * the next one.
 */
#ifndef CLIENT_REQUEST_H
#define CLIENT_REQUEST_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "array.h"
#include "arena.h"
#include "cubiemem.h"
#include "cubiemem.pb-c.h"

struct request {
    _Atomic unsigned refs;
    struct array *arrays;
    size_t n;
};

/* Check and copy. Return: OK; INVALID_REQUEST; TOO_LARGE; LIMIT; HOST_MEMORY. */
int request_create(const struct cubiemem_array_request *arrays, size_t n,
                   struct request **request_p);
struct request *request_ref(struct request *request);
/* NULL is fine; returns NULL. */
struct request *request_unref(struct request *request);

struct request_item {
    uint64_t instance_id;
    const struct request *request;
};

/* The messages of one Allocate, or of one QueueRequests (a single item), each
 * short enough for a packet. */
struct parts {
    struct arena arena;
    Cubiemem__ClientMessage *messages;
    size_t n;
};

/* wait NULL: not at all; else what is left of it. */
int parts_allocate(struct parts *parts, uint64_t trigger, const struct cubiemem_wait *wait,
                   const struct request_item *items, size_t n_items);
int parts_queue(struct parts *parts, const struct request_item *item);
void parts_finish(struct parts *parts);

struct channel;
/* Queue it with the daemon, for an allocate by whichever member of the group. */
int request_send(struct channel *channel, uint64_t instance_id, const struct request *request,
                 int64_t timeout_ns);

#endif
