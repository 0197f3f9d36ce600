/* grid - the (ke, ka, Cl) points of a batch, their evaluation and their best */
#ifndef PKFIT_GRID_H
#define PKFIT_GRID_H

#include "pk_model.h"

/* The first grid: n points on each axis, over all that is plausible. */
struct pk_grid grid_coarse(uint32_t n);

/* n points on each axis, within a few steps of `grid` around its point `run`. */
struct pk_grid grid_around(const struct pk_grid *grid, uint64_t run, uint32_t n);

/*
 * Runs first to first+n of the grid: curve[o * stride + i] gets the predicted
 * concentration at observation o of run first+i, ss[i] its sum of squares.
 */
void grid_evaluate(const struct pk_subject *subject, const struct pk_grid *grid, uint64_t first,
                   uint64_t n, uint64_t stride, double *curve, double *ss);

/* The run with the least sum of squares, of equal ones the lowest. */
struct best {
    uint64_t run;
    double ss;
};
#define BEST_INIT                                                                                  \
    {                                                                                              \
        0, INFINITY                                                                                \
    }

void best_update(struct best *best, const double *ss, uint64_t first, uint64_t n);

#endif
