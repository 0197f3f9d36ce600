/*
 * policy_reference - rules 5 to 7 once more, as plainly as they can be said
 *
 * Naive on purpose: sums over everything, a search that tries every length. Reads
 * the policy's structs and shares none of its arithmetic.
 */
#ifndef SUPPORT_POLICY_REFERENCE_H
#define SUPPORT_POLICY_REFERENCE_H

#include "model.h"

struct reference {
    int status;
    uint64_t length;  /* n, if OK */
    bytes128 replaced; /* R */
    bytes128 wanted;  /* total(n) */
};

/* What an allocate of the trigger must come to; its group's queue is not empty.
 * Batches of at most a few hundred runs. */
struct reference reference_allocate(const struct policy *policy,
                                    const struct policy_instance *trigger, uint64_t free_bytes);
/* Everything that an operation may change, as one number. */
uint64_t reference_digest(const struct policy *policy);

#endif
