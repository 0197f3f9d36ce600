/*
 * checked - overflow-checked arithmetic on sizes, and sizes as people write them
 *
 * Sizes are uint64_t bytes. An operation that would overflow returns false and
 * leaves its output alone.
 */
#ifndef PROTO_CHECKED_H
#define PROTO_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *sum_p)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) {
        return false;
    }
    *sum_p = sum;
    return true;
}

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *product_p)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product)) {
        return false;
    }
    *product_p = product;
    return true;
}

/* Least multiple of m (at least 1) that is >= x. */
static inline bool checked_round_up(uint64_t x, uint64_t m, uint64_t *rounded_p)
{
    uint64_t rest = x % m;
    if (rest == 0) {
        *rounded_p = x;
        return true;
    }
    return checked_add(x, m - rest, rounded_p);
}

/* a - b, or 0 where b is larger. */
static inline uint64_t sub_or_zero(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/*
 * A size as people write it: "1048576", "16GiB", "500MB", "1.5GiB". Units: B,
 * kB MB GB TB (1000), KiB MiB GiB TiB (1024), case as shown or all lower; a
 * bare number is bytes. No sign, no spaces, nothing behind it; the result must
 * be a whole number of bytes at most 2^63-1.
 */
bool size_parse(const char *text, uint64_t *size_p);

/* As size_parse, or a percentage ("80%", "12.5%", 0 to 100) of `whole`. */
bool size_parse_of(const char *text, uint64_t whole, uint64_t *size_p);

#define SIZE_TEXT_MAX 32
/* "1.50 GiB", "64 MiB", "512 B": at most 4 digits before the unit; returns
 * buffer. */
const char *size_format(uint64_t size, char buffer[SIZE_TEXT_MAX]);

#endif
