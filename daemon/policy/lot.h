/*
 * lot - the records of what one instance is to be given by one plan
 */
#ifndef POLICY_LOT_H
#define POLICY_LOT_H

#include "batch.h"

/* The member's arrays in chunks of n; blocks are numbered from *next_id + 1.
 * *dropped_p lies in the lot: member->n_dropped blocks. NULL: no host memory. */
struct lot *lot_create(const struct batch *batch, const struct chunk_member *member, uint64_t n,
                       uint64_t *next_id, struct policy_block ***dropped_p);

#endif
