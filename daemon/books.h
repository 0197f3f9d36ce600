/*
 * books - every byte of the device, and what of it may be promised
 *
 * The figures of one device and the equations between them; no device call and
 * no clock in here. All are bytes:
 *
 *   budget    what the daemon may hand out
 *   lent      segments (and legacy blocks) that sessions hold
 *   cached    segments in the pool
 *   promised  transactions under way that no segment backs yet
 *   draining  let go, but perhaps still kept by the driver
 *   others    used - lent - cached - draining: not ours
 *   allowance room kept for contexts that are about to be made
 *
 * `used` and the device's own `free` are a reading of the device; the caller
 * brings readings in the order in which they were taken, each after the changes
 * that it contains were booked.
 */
#ifndef DAEMON_BOOKS_H
#define DAEMON_BOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BOOKS_CONTEXT_ALLOWANCE (640ull << 20) /* a context takes 518 MiB (measured, H200) */
#define BOOKS_DRAIN_PATIENCE_NS 10000000000ll

struct books {
    uint64_t budget;
    uint64_t reserve;
    uint64_t lent;
    uint64_t cached;
    uint64_t promised;
    uint64_t draining;
    uint64_t others;

    uint64_t device_total; /* by the last reading */
    uint64_t device_free;
    bool device_known; /* false: the last reading failed, or there was none */

    uint64_t allowance_each; /* 0 on the simulated device */
    size_t n_contextless;    /* sessions that will make a context */

    uint64_t others_settled; /* others at the last reading with nothing draining */
    uint64_t not_ours;       /* used - lent - cached at the last reading */
    uint64_t context_credit; /* what contexts on their way may still add to others */
    uint64_t credit_ending;  /* of that: the context exists, the next reading has it */
    int64_t drain_change_ns; /* when draining, or who has a context, changed last */
};

void books_init(struct books *books, uint64_t budget, uint64_t reserve, uint64_t allowance_each);

uint64_t books_allowance(const struct books *books);
/* What may be promised to a new request: the policy's `free`. */
uint64_t books_free(const struct books *books);
/* What clients could have if all of them gave everything back. */
uint64_t books_capacity(const struct books *books);
/* Of what is free, what can be made without letting go of cached segments. */
uint64_t books_creatable(const struct books *books);
/* Is more lent and promised than there is? */
bool books_are_overdrawn(const struct books *books);

/* A reading of the device. Returns the bytes that were given up as draining
 * and are booked as others from now on (to be logged), usually 0. */
uint64_t books_read(struct books *books, uint64_t device_total, uint64_t device_free,
                    int64_t now_ns);
void books_reading_failed(struct books *books);

/* A session will make a context; has made it; has ended with or without it:
 * others will move. */
void books_context_coming(struct books *books, int64_t now_ns);
void books_context_ready(struct books *books, int64_t now_ns);
void books_context_gone(struct books *books, int64_t now_ns);

/* Bytes on their way. Each takes what the figure has; less would be a fault. */
void books_promise(struct books *books, uint64_t size);
void books_unpromise(struct books *books, uint64_t size);
void books_lend_new(struct books *books, uint64_t size);    /* promised -> lent */
void books_lend_cached(struct books *books, uint64_t size); /* cached -> lent */
void books_return(struct books *books, uint64_t size);      /* lent -> cached */
void books_drain_lent(struct books *books, uint64_t size, int64_t now_ns);
void books_drain_cached(struct books *books, uint64_t size, int64_t now_ns);

#endif
