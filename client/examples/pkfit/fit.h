/* fit - one subject's parameters: a coarse grid, then a finer one around its best */
#ifndef PKFIT_FIT_H
#define PKFIT_FIT_H

#include "grid.h"

/* What a batch cost. */
struct batch_cost {
    uint64_t chunks;
    uint64_t bytes; /* of the arrays that were held: one chunk's */
};

/*
 * Where batches are run: in memory lent by the daemon, or in plain memory. A
 * batch evaluates every run of the grid, chunk by chunk, and finds the best.
 */
struct evaluator {
    /* 0; -1 after a line on stderr */
    int (*run)(struct evaluator *evaluator, const struct pk_subject *subject,
               const struct pk_grid *grid, struct best *best_p, struct batch_cost *cost_p);
};

struct fit {
    double ke;
    double ka;
    double cl;
    double ss;
    struct batch_cost cost; /* of the batch with the fewest chunks; the largest bytes */
};

#define FIT_BATCHES 2

/* n points on each axis of both grids. Return: 0; -1 as the evaluator's. */
int fit_subject(struct evaluator *evaluator, const struct pk_subject *subject, uint32_t n,
                struct fit *fit_p);

#endif
