/*
 * share - what the parts of bench-share have in common
 *
 * A *load* is what each process has to do: batches of two arrays whose last axis are the
 * runs. A *way* is how it gets the memory for it. main.c starts the processes and
 * compares; worker.c is one process; holder.h is the memory of one.
 */
#ifndef BENCH_SHARE_H
#define BENCH_SHARE_H

#include <stdint.h>

#include "card.h"
#include "harness.h"

#define SHARE_BATCHES     3
#define SHARE_ARRAYS      2
#define SHARE_GRANULARITY ((uint64_t)2 << 20) /* bytes; what the driver hands out at least */

enum share_way {
    SHARE_PRIVATE, /* allocates by itself, as people do today */
    SHARE_LENT,    /* through cubiemem */
};

struct share_load {
    uint64_t runs;                   /* of each batch */
    uint64_t run_size[SHARE_ARRAYS]; /* bytes of one run in each array */
    uint32_t points;                 /* pkfit: on each axis, runs = points^3; else 0 */
    uint32_t passes;                 /* synthetic: how often every run is copied */
};

struct share_batch {
    uint32_t done;  /* 1, or 0: it failed */
    uint32_t wrong; /* 1: the results are not what they have to be */
    uint64_t chunks;
    uint64_t bytes;  /* of the arrays held at a time */
    uint64_t answer; /* what came out; the same whichever way it went */
};

/* Sent by a worker at its end. */
struct share_report {
    uint64_t begin_ns;
    uint64_t end_ns;
    struct share_batch batches[SHARE_BATCHES];
    char why[160]; /* the first failure in words; or empty */
};

/* What a worker is told. */
struct share_task {
    const struct harness *harness;
    struct share_load load;
    enum share_way way;
    uint32_t number; /* of the process, from 0 */
    int64_t wait_ns; /* lent: for memory */
};

/* A role_fn(): says one byte when it is ready, begins when it hears one, reports. */
void worker_run(int fd, const void *argument);

/* Bytes that arrays of n runs take of the device. */
uint64_t share_charge(const uint64_t run_size[SHARE_ARRAYS], uint64_t n);
/* The most runs, up to `runs`, whose arrays fit in `room`; 0: not even one. */
uint64_t share_most_runs(const uint64_t run_size[SHARE_ARRAYS], uint64_t runs, uint64_t room);
static inline uint64_t share_chunks(uint64_t runs, uint64_t chunk_length)
{
    return (runs + chunk_length - 1) / chunk_length;
}

#endif
