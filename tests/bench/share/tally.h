/* tally - what the rounds of bench-share come to, and whether it is as wanted */
#ifndef BENCH_SHARE_TALLY_H
#define BENCH_SHARE_TALLY_H

#include <stdbool.h>

#include "way.h"

#define TALLY_MAX_ROUNDS 20

struct tally {
    size_t n_rounds;
    struct tally_scene {
        uint32_t n_failed, n_wrong; /* batches */
        double slow_worst;          /* slow-down of the worst process, of all rounds */
        double uneven;              /* the same over the mean of its round, the worst */
        double makespan_s[TALLY_MAX_ROUNDS];
        uint64_t chunks; /* the most of a batch */
        uint64_t peak;
        char why[160]; /* a failure in words */
    } scenes[N_SCENES];
    double against_serial[TALLY_MAX_ROUNDS]; /* makespan of (c) over that of (b) */
    uint32_t n_other; /* batches of (a) or (c) that came to other results than in (b) */
};

/* One round: an outcome of each scene. */
void tally_add(struct tally *tally, const struct share_setup *setup,
               const struct share_outcome outcomes[N_SCENES]);
/* The table. False: something is NOT met. */
bool tally_print(struct tally *tally, const struct share_setup *setup);

#endif
