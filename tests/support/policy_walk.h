/*
 * policy_walk - sequences of operations on the policy, made from bytes, with what
 * must hold after every one
 *
 * The same walk serves the random test, which makes the bytes from a seed, and
 * the fuzz target, which is given them. The first bytes choose the device; each
 * eight after that are one operation. What must hold: every sum agrees with what
 * it sums; an operation that fails changes nothing; charges are the blocks lent,
 * to the byte; a grant passes no cap (active) and no ceiling, fits the device, is
 * as long as a search by brute force says, and evicts nobody who is marked.
 */
#ifndef SUPPORT_POLICY_WALK_H
#define SUPPORT_POLICY_WALK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define WALK_HEADER 4u /* bytes that choose the device */
#define WALK_STEP 8u   /* bytes of a step */

struct walk_result {
    const char *fault; /* static text, or NULL */
    size_t step;       /* at which */
    size_t n_granted, n_chunked, n_refused, n_evictions, n_aborted;
};

struct walk_result policy_walk(const uint8_t *bytes, size_t size);

/* Drops steps as long as the fault stays; the new size. */
size_t policy_walk_shrink(uint8_t *bytes, size_t size);

/* As a scenario without expectations, one step a line. Steps that scenarios do
 * not have (ceilings, aborted grants) are printed with names of their own. */
void policy_walk_print(const uint8_t *bytes, size_t size, FILE *out);

#endif
