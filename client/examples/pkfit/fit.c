/*
 * fit - one subject's parameters: a coarse grid, then a finer one around its best
 *
 * Least squares by search, as a stand-in for the large batch solves that the
 * daemon is for: every point of the grid is a simulation run whose curve is
 * stored. Where a batch's arrays lie, and in how many chunks it is worked
 * through, is the evaluator's affair and changes nothing in the result.
 */
#include "fit.h"

int fit_subject(struct evaluator *evaluator, const struct pk_subject *subject, uint32_t n,
                struct fit *fit_p)
{
    struct pk_grid grid = grid_coarse(n);
    struct fit fit = {.cost = {UINT64_MAX, 0}};
    struct best best;

    for (int i = 0; i < FIT_BATCHES; i++) {
        struct batch_cost cost;
        if (i > 0) {
            grid = grid_around(&grid, best.run, n);
        }
        if (evaluator->run(evaluator, subject, &grid, &best, &cost) < 0) {
            return -1;
        }
        fit.cost.chunks = cost.chunks < fit.cost.chunks ? cost.chunks : fit.cost.chunks;
        fit.cost.bytes = cost.bytes > fit.cost.bytes ? cost.bytes : fit.cost.bytes;
    }
    pk_grid_point(&grid, best.run, &fit.ke, &fit.ka, &fit.cl);
    fit.ss = best.ss;
    *fit_p = fit;
    return 0;
}
