/*
 * grid - the (ke, ka, Cl) points of a batch, their evaluation and their best
 *
 * Axes are spaced evenly in the logarithm, so that a step is the same percentage
 * everywhere. The model does not change when ke and ka are exchanged; the coarse
 * axes are chosen so that the exchanged solution lies outside. The evaluation is
 * the CPU's "kernel": along Cl only a division and a square are left to do, which
 * compilers turn into vector code. Each run's numbers are computed by the same
 * operations in the same order wherever a chunk begins or ends.
 */
#include "grid.h"

#define STEPS_AROUND 4.0 /* of the old grid, to each side */

static struct pk_axis axis_between(double low, double high, uint32_t n)
{
    return (struct pk_axis){low, n > 1 ? log(high / low) / (n - 1) : 0, n};
}

static struct pk_axis axis_around(const struct pk_axis *axis, double centre, uint32_t n)
{
    double reach = exp(STEPS_AROUND * axis->log_step);
    return axis_between(centre / reach, centre * reach, n);
}

struct pk_grid grid_coarse(uint32_t n)
{
    return (struct pk_grid){
        .ke = axis_between(0.02, 0.3, n),
        .ka = axis_between(0.3, 20, n),
        .cl = axis_between(0.005, 0.2, n),
    };
}

struct pk_grid grid_around(const struct pk_grid *grid, uint64_t run, uint32_t n)
{
    double ke, ka, cl;

    pk_grid_point(grid, run, &ke, &ka, &cl);
    return (struct pk_grid){
        .ke = axis_around(&grid->ke, ke, n),
        .ka = axis_around(&grid->ka, ka, n),
        .cl = axis_around(&grid->cl, cl, n),
    };
}

/* Runs that share ke and ka. */
static void evaluate_pair(const struct pk_subject *subject, double ke, double ka,
                          const double *restrict cl, uint64_t n, uint64_t stride,
                          double *restrict curve, double *restrict ss)
{
    for (uint64_t i = 0; i < n; i++) {
        ss[i] = 0;
    }
    for (uint32_t o = 0; o < subject->n_observations; o++) {
        double uptake = pk_uptake(subject->dose, subject->time[o], ke, ka);
        double measured = subject->conc[o];
        double *restrict row = curve + o * stride;
        for (uint64_t i = 0; i < n; i++) {
            double conc = uptake / cl[i];
            double residual = conc - measured;
            row[i] = conc;
            ss[i] += residual * residual;
        }
    }
}

void grid_evaluate(const struct pk_subject *subject, const struct pk_grid *grid, uint64_t first,
                   uint64_t n, uint64_t stride, double *curve, double *ss)
{
    enum { STRIP = 256 };
    double cl[STRIP];

    for (uint64_t done = 0; done < n;) {
        uint64_t pair = (first + done) / grid->cl.n;
        uint32_t i_cl = (uint32_t)((first + done) % grid->cl.n);
        uint64_t length = grid->cl.n - i_cl;
        length = length < n - done ? length : n - done;
        length = length < STRIP ? length : STRIP;
        for (uint32_t i = 0; i < length; i++) {
            cl[i] = pk_axis_value(&grid->cl, i_cl + i);
        }
        evaluate_pair(subject, pk_axis_value(&grid->ke, (uint32_t)(pair / grid->ka.n)),
                      pk_axis_value(&grid->ka, (uint32_t)(pair % grid->ka.n)), cl, length, stride,
                      curve + done, ss + done);
        done += length;
    }
}

void best_update(struct best *best, const double *ss, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (ss[i] < best->ss) {
            *best = (struct best){first + i, ss[i]};
        }
    }
}
