/* plain - the evaluator that works in its own host memory, without a daemon */
#ifndef PKFIT_PLAIN_H
#define PKFIT_PLAIN_H

#include "fit.h"
#include "progress.h"

struct plain_evaluator {
    struct evaluator base;     /* first */
    uint64_t chunk_length;     /* runs of a chunk; 0: all at once */
    struct progress *progress; /* may be NULL */
};

void plain_init(struct plain_evaluator *plain, uint64_t chunk_length, struct progress *progress);

#endif
