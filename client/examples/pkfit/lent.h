/* lent - the evaluator that works in memory lent by cubiememd */
#ifndef PKFIT_LENT_H
#define PKFIT_LENT_H

#include "cubiemem.h"
#include "fit.h"
#include "progress.h"

/* What the CPU's kernel is told; the stream's host function reads it. */
struct lent_work {
    const struct pk_subject *subject;
    const struct pk_grid *grid;
    uint64_t first;  /* run of the chunk's first column */
    uint64_t n;      /* runs of the chunk */
    uint64_t stride; /* runs between two observations in `curve` */
    double *curve;   /* device pointers */
    double *ss;
};

struct lent_evaluator {
    struct evaluator base; /* first */
    struct cubiemem_client *client;
    struct cubiemem_instance *instance;
    cubiemem_stream stream;
    int64_t wait_ns; /* how long a batch may wait for memory */
    struct progress *progress;
    bool simulated;
    struct lent_work work;
    double *host_ss; /* on a GPU: a chunk's sums of squares, copied back */
};

/*
 * Connect (socket NULL: by the environment), register one instance of this name
 * with a proportion (negative: the auto pool), and choose the kernel: a host
 * function on the simulated device, CUDA on a GPU. A batch that lacks memory waits
 * for it, wait_ns at most.
 * Return: 0; -1 after a line on stderr.
 */
int lent_open(struct lent_evaluator *lent, const char *socket, const char *name, double proportion,
              int64_t wait_ns, struct progress *progress);
/* Gives everything back. */
void lent_close(struct lent_evaluator *lent);

#endif
