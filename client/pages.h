/*
 * pages - the control pages of a session, as the library maps them
 *
 * The daemon makes them and allots the owners' slots; the library takes slots
 * for streams from the end (proto/control.h). A page is mapped as soon as it
 * arrives and registered with the device once there is a context, so that
 * streams can write into it.
 */
#ifndef CLIENT_PAGES_H
#define CLIENT_PAGES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "context.h"
#include "control.h"

#define PAGES_MAX 256u

struct page {
    union control_slot *slots;
    CUdeviceptr device; /* of slot 0; 0 if not registered */
};

struct pages {
    pthread_mutex_t lock;
    struct page pages[PAGES_MAX];
    uint32_t n;
};

/* A stream's slot and where a stream finds its `completed`. */
struct stream_slot {
    struct control_stream *words;
    CUdeviceptr completed; /* 0: use a host function */
};

void pages_init(struct pages *pages);
/* Unregisters (context may be NULL) and unmaps. */
void pages_finish(struct pages *pages, struct context *context);
/* In a forked child: unmaps, and touches nothing else. */
void pages_abandon(struct pages *pages);

/* Map page `number` (it must be the next one); takes fd in any case. */
int pages_add(struct pages *pages, uint32_t number, uint32_t size, int fd);
/* Register what is not yet registered; a device without stream memory
 * operations needs none of it. */
int pages_register(struct pages *pages, struct context *context);

/* The slot that the daemon allotted to an owner; NULL if it is none. */
struct control_owner *pages_owner(struct pages *pages, uint32_t page, uint32_t slot);
/* Take a free slot for a stream of the owner `where` (page << 16 | slot). False
 * if there is none. */
bool pages_take_stream(struct pages *pages, uint32_t where, struct stream_slot *slot_p);
/* Give it back. The caller knows that it is not busy. */
void pages_give_stream(const struct stream_slot *slot);

#endif
