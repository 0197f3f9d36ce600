/*
 * plain - the evaluator that works in its own host memory, without a daemon
 *
 * What a program does that believes it is alone, and what the results through the
 * daemon are compared with: the chunk length is free, the numbers are the same.
 */
#include "plain.h"

#include <err.h>
#include <stdlib.h>

static int plain_run(struct evaluator *evaluator, const struct pk_subject *subject,
                     const struct pk_grid *grid, struct best *best_p, struct batch_cost *cost_p)
{
    struct plain_evaluator *plain = (struct plain_evaluator *)evaluator;
    uint64_t runs = pk_grid_runs(grid);
    uint64_t length =
        plain->chunk_length > 0 && plain->chunk_length < runs ? plain->chunk_length : runs;
    struct best best = BEST_INIT;
    struct batch_cost cost = {0, (subject->n_observations + 1) * length * sizeof(double)};
    double *curve = malloc(cost.bytes);

    if (!curve) {
        warnx("subject %d: no memory for %ju bytes; try --chunk", subject->number,
              (uintmax_t)cost.bytes);
        return -1;
    }
    double *ss = curve + subject->n_observations * length;
    for (uint64_t first = 0; first < runs; first += length) {
        uint64_t n = runs - first < length ? runs - first : length;
        grid_evaluate(subject, grid, first, n, length, curve, ss);
        best_update(&best, ss, first, n);
        cost.chunks++;
        if (plain->progress) {
            progress_add(plain->progress, n, subject->number);
        }
    }
    free(curve);
    *best_p = best;
    *cost_p = cost;
    return 0;
}

void plain_init(struct plain_evaluator *plain, uint64_t chunk_length, struct progress *progress)
{
    *plain = (struct plain_evaluator){{plain_run}, chunk_length, progress};
}
