/*
 * marks - the work marks of one owner: what is begun, what is submitted
 *
 * An owner is idle when nothing is begun, every grant that was made has been
 * worked with, and every marked stream has come past its last mark. The words
 * lie on the control page (proto/control.h); the daemon reads them as a hint,
 * marks_evict() decides.
 *
 * begin takes no lock and makes no system call. Everything else that changes
 * the stream slots is done under the owner's lock, so that the numbers of a
 * stream are enqueued in their order, and an eviction sees no half of an end.
 */
#ifndef CLIENT_MARKS_H
#define CLIENT_MARKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "context.h"
#include "cubiemem.h"
#include "pages.h"

/* One stream (for the per-thread default stream: of one thread) of an owner. */
struct mark {
    CUstream stream;
    uint64_t thread; /* 0 but for CU_STREAM_PER_THREAD */
    struct stream_slot slot;
};

struct owner {
    char *name;
    uint32_t where; /* page << 16 | slot */
    struct control_owner *words;
    struct pages *pages;
    struct context *context;
    _Atomic uint64_t delivered; /* last grant that the program was given */

    /* the client's books guard these */
    size_t n_instances;
    bool evicting;     /* an Invalidate is being carried out */
    unsigned n_users;  /* events under way that need it */
    struct owner *next; /* client::owners */

    pthread_mutex_t lock; /* guards these */
    struct mark *marks;
    size_t n_marks;
};

/* Takes nothing over; NULL when host memory is short. */
struct owner *owner_create(const char *name, uint32_t where, struct control_owner *words,
                           struct pages *pages, struct context *context);
/* Idle slots are freed; busy ones are left to the session's end. Returns NULL. */
struct owner *owner_destroy(struct owner *owner);

/* Work begins. Return: OK; EVICTED; LIMIT (too deeply nested). */
int marks_begin(struct owner *owner);
/* It did not begin after all. */
void marks_begin_undo(struct owner *owner);
/* Is work begun that has not ended? */
bool marks_have_begun(struct owner *owner);

/* Take a slot for the stream (for the calling thread, if the handle is the
 * per-thread one). MARKS_FULL: get another control page and ask again. */
enum marks_room { MARKS_READY, MARKS_FULL, MARKS_NO_MEMORY };
enum marks_room marks_prepare(struct owner *owner, CUstream stream);

/*
 * Work ends with what is in the stream now. Return: OK; INVALID_REQUEST
 * (nothing is begun); CAPTURING; CUDA; HOST_MEMORY; LIMIT with *unprepared_p
 * set: the stream has no slot, call marks_prepare(). On failure the work still
 * counts as begun.
 */
int marks_end(struct owner *owner, CUstream stream, bool *unprepared_p);

/* Has everything that was submitted come to its end? */
bool marks_are_complete(struct owner *owner);
/* Wait for what is submitted now. Return: OK; TIMEOUT; DEVICE_LOST. */
int marks_wait(struct owner *owner, int64_t deadline);

/* Set the evicting bit if the owner is idle; false: it is busy. */
bool marks_evict(struct owner *owner);
/* Wait until nothing is begun, and let nothing begin until the next delivery. False: the
 * time was over before. */
bool marks_close(struct owner *owner, int64_t deadline);
/* Closed, and nothing is begun? */
bool marks_are_closed(struct owner *owner);
/* The program has this grant now; the owner is no longer evicted. */
void marks_deliver(struct owner *owner, uint64_t grant);

#endif
