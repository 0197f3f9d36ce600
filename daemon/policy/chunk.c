/*
 * chunk - the charges of a batch as a function of its chunk length (rule 5)
 *
 * Arrays that are not cut are summed once; each evaluation costs one
 * multiplication and one rounding for each that is. The bisection starts from
 * bounds that follow from how little rounding can add:
 *
 *     fixed + slope * n  <=  total(n)  <  fixed + slope * n + slack
 *
 * with slope the bytes of one run of the whole batch and slack one rounding for
 * each chunkable array and each member's shared block.
 */
#include "chunk.h"

uint64_t chunk_round_up(uint64_t bytes, uint64_t multiple)
{
    uint64_t rest;

    if ((multiple & (multiple - 1)) == 0) {
        return (bytes + (multiple - 1)) & ~(multiple - 1);
    }
    rest = bytes % multiple;
    return rest == 0 ? bytes : bytes + (multiple - rest);
}

static bytes128 round_up128(bytes128 bytes, uint64_t multiple)
{
    bytes128 rest = bytes % multiple;

    return rest == 0 ? bytes : bytes + (multiple - rest);
}

bool chunk_member_is_under(const struct chunk_member *member, const struct account *account)
{
    if (account == NULL) {
        return true;
    }
    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        if (member->instance->accounts[i] == account) {
            return true;
        }
    }
    return false;
}

void chunk_member_add(const struct chunk_batch *batch, struct chunk_member *member,
                      uint64_t bytes)
{
    if (bytes >= batch->granularity) {
        member->large += chunk_round_up(bytes, batch->granularity);
    } else {
        member->small += chunk_round_up(bytes, batch->alignment);
    }
}

bytes128 chunk_total(const struct chunk_batch *batch, uint64_t n, const struct account *account)
{
    const uint64_t granularity = batch->granularity, alignment = batch->alignment;
    bytes128 total = 0;

    for (size_t m = 0; m < batch->n_members; m++) {
        const struct chunk_member *member = &batch->members[m];
        const uint64_t *rows = &batch->rows[member->first_row];
        bytes128 large = member->large, small = member->small;

        if (!chunk_member_is_under(member, account)) {
            continue;
        }
        for (size_t i = 0; i < member->n_rows; i++) {
            uint64_t bytes = rows[i] * n;

            if (bytes >= granularity) {
                large += chunk_round_up(bytes, granularity);
            } else {
                small += chunk_round_up(bytes, alignment);
            }
        }
        total += large + round_up128(small, granularity);
    }
    return total;
}

uint64_t chunk_largest(const struct chunk_batch *batch, uint64_t most, bytes128 room,
                       const struct account *account)
{
    bytes128 fixed = 0, slope = 0, slack = 0, bound;
    bytes128 rounding = (bytes128)batch->granularity + batch->alignment;
    uint64_t low = 1, high = most;

    for (size_t m = 0; m < batch->n_members; m++) {
        const struct chunk_member *member = &batch->members[m];

        if (!chunk_member_is_under(member, account)) {
            continue;
        }
        fixed += member->large + member->small;
        slack += (member->n_rows + 1) * rounding;
        for (size_t i = 0; i < member->n_rows; i++) {
            slope += batch->rows[member->first_row + i];
        }
    }
    if (slope > 0 && room >= fixed) {
        bound = (room - fixed) / slope;
        high = bound < high ? (uint64_t)bound : high;
        bound = room - fixed >= slack ? (room - fixed - slack) / slope : 0;
        low = bound > low ? (bound < high ? (uint64_t)bound : high) : low;
    }
    /* total(low) fits, total(high + 1) does not or is past the end. */
    while (low < high) {
        uint64_t middle = high - (high - low) / 2;

        if (chunk_total(batch, middle, account) <= room) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}
