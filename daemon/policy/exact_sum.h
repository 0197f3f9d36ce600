/*
 * exact_sum - the exact sum of doubles from 0 to 1, rounded once
 *
 * What Python's math.fsum gives, but kept up to date: adding or taking away one
 * proportion costs the same whether ten or ten thousand instances are there,
 * and leaves no noise. The sum is one long integer of units of 2^-1074, the
 * smallest double; 18 words hold 2^77 ones.
 */
#ifndef POLICY_EXACT_SUM_H
#define POLICY_EXACT_SUM_H

#include <stdint.h>

#define EXACT_SUM_WORDS 18u

/* All zero: the empty sum. */
struct exact_sum {
    uint64_t words[EXACT_SUM_WORDS]; /* least significant first */
};

void exact_sum_add(struct exact_sum *sum, double value); /* 0 <= value <= 1 */
/* value must have been added before. */
void exact_sum_subtract(struct exact_sum *sum, double value);
/* To the nearest double, ties to even. */
double exact_sum_value(const struct exact_sum *sum);

#endif
