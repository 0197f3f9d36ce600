/*
 * chunk - the charges of a batch as a function of its chunk length (rule 5)
 *
 * total(n) is the sum of the blocks' charges when chunkable arrays hold n runs.
 * It never decreases with n, so the largest n that fits is found by bisection;
 * total(0) is what the arrays that cannot be cut take. Plain numbers: knows
 * nothing of instances but which account a member pays into.
 */
#ifndef POLICY_CHUNK_H
#define POLICY_CHUNK_H

#include "model.h"

/* One requester's part. */
struct chunk_member {
    const struct policy_instance *instance;
    bytes128 large; /* charges of arrays that are not cut and fill a block each */
    bytes128 small; /* aligned sizes of those that are not cut and share one */
    size_t first_row, n_rows; /* of chunk_batch::rows */
    bytes128 replaced; /* charges of blocks that the request leaves empty */
    size_t n_dropped;  /* number of these */
};

struct chunk_batch {
    uint64_t granularity, alignment;
    struct chunk_member *members;
    size_t n_members;
    uint64_t *rows; /* bytes of one run of a chunkable device array */
    size_t n_rows;
};

/* Is the member's instance under it? NULL: all are. */
bool chunk_member_is_under(const struct chunk_member *member, const struct account *account);
/* Of the members under the account; n so small that no array passes 2^63-1. */
bytes128 chunk_total(const struct chunk_batch *batch, uint64_t n, const struct account *account);
/* The largest n in [1, most] with total(n) <= room; total(1) must fit. */
uint64_t chunk_largest(const struct chunk_batch *batch, uint64_t most, bytes128 room,
                       const struct account *account);
/* Adds a device array of this many bytes that is not cut. */
void chunk_member_add(const struct chunk_batch *batch, struct chunk_member *member,
                      uint64_t bytes);
/* Least multiple of `multiple` that is >= bytes; bytes and multiple below 2^63. */
uint64_t chunk_round_up(uint64_t bytes, uint64_t multiple);

#endif
