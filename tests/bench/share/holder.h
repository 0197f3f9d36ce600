/*
 * holder - the device memory of one process's batches, got in one of two ways
 *
 * The synthetic load, and pkfit where it works for itself, are written against this;
 * what differs is who is asked for the arrays, and whether somebody has to be told
 * when they are in use.
 */
#ifndef BENCH_SHARE_HOLDER_H
#define BENCH_SHARE_HOLDER_H

#include "cubiemem.h"
#include "share.h"

/* What a batch was given. */
struct grant {
    uint64_t chunk_length; /* runs that the arrays hold; the last chunk has fewer */
    CUdeviceptr at[SHARE_ARRAYS];
};

struct holder;

/* All return 0, or -1 with one line in holder->why. */
struct holder_ops {
    /* Arrays for a batch, in place of those of the batch before. */
    int (*take)(struct holder *holder, const struct share_load *load, struct grant *grant_p);
    /* The arrays stay where they are until end(). */
    int (*begin)(struct holder *holder);
    /* Waits for what the stream still has to do. */
    int (*end)(struct holder *holder);
    void (*close)(struct holder *holder);
};

struct holder {
    const struct holder_ops *ops;
    struct card card; /* its context is this thread's */
    CUstream stream;
    char why[160];
    /* private */
    struct {
        CUdeviceptr at;
        uint64_t size;
    } pool[SHARE_ARRAYS];
    /* lent */
    struct cubiemem_client *client;
    struct cubiemem_instance *instance;
    int64_t wait_ns;
};

int private_open(struct holder *holder_p, const struct share_task *task);
int lent_holder_open(struct holder *holder_p, const struct share_task *task);

/* -1 if the driver did not answer CUDA_SUCCESS. */
int holder_check(struct holder *holder, CUresult result, const char *what);

#endif
