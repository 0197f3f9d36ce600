/*
 * checked - sizes as people write them, and as they like to read them
 *
 * A size is digits, perhaps a point and more digits, and a unit. It is worked
 * out in integers: the digits as one number, divided by the power of ten that
 * the point stands for, which must leave no rest. So "1.5GiB" is exact and
 * "0.3B" is refused, and no size passes through a double.
 */
#include "checked.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A decimal number: digits / scale. */
struct decimal {
    uint64_t digits;
    uint64_t scale; /* a power of ten */
};

static const struct {
    const char *name, *lower;
    uint64_t factor;
} units[] = {
    { "", "", 1 },
    { "B", "b", 1 },
    { "kB", "kb", 1000 },
    { "MB", "mb", 1000000 },
    { "GB", "gb", 1000000000 },
    { "TB", "tb", 1000000000000 },
    { "KiB", "kib", 1ull << 10 },
    { "MiB", "mib", 1ull << 20 },
    { "GiB", "gib", 1ull << 30 },
    { "TiB", "tib", 1ull << 40 },
};

/* "12", "1.5"; a point stands between digits. NULL, or what follows. */
static const char *decimal_parse(const char *text, struct decimal *decimal_p)
{
    struct decimal decimal = { 0, 1 };
    bool point = false;
    const char *c;

    for (c = text;; c++) {
        if (*c >= '0' && *c <= '9') {
            if (!checked_mul(decimal.digits, 10, &decimal.digits) ||
                !checked_add(decimal.digits, (uint64_t)(*c - '0'), &decimal.digits) ||
                (point && !checked_mul(decimal.scale, 10, &decimal.scale))) {
                return NULL;
            }
        } else if (*c == '.' && !point && c > text && c[1] >= '0' && c[1] <= '9') {
            point = true;
        } else {
            break;
        }
    }
    if (c == text) {
        return NULL;
    }
    *decimal_p = decimal;
    return c;
}

/* digits * factor / scale, if that is whole and at most 2^63-1. */
static bool decimal_times(struct decimal decimal, uint64_t factor, uint64_t *size_p)
{
    unsigned __int128 product = (unsigned __int128)decimal.digits * factor;

    if (product % decimal.scale != 0 || product / decimal.scale > INT64_MAX) {
        return false;
    }
    *size_p = (uint64_t)(product / decimal.scale);
    return true;
}

bool size_parse(const char *text, uint64_t *size_p)
{
    struct decimal decimal;
    const char *unit = decimal_parse(text, &decimal);

    if (unit == NULL) {
        return false;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(unit, units[i].name) == 0 || strcmp(unit, units[i].lower) == 0) {
            return decimal_times(decimal, units[i].factor, size_p);
        }
    }
    return false;
}

bool size_parse_of(const char *text, uint64_t whole, uint64_t *size_p)
{
    struct decimal decimal;
    const char *unit = decimal_parse(text, &decimal);
    unsigned __int128 product, divisor;

    if (unit == NULL || strcmp(unit, "%") != 0) {
        return size_parse(text, size_p);
    }
    /* digits / scale <= 100; the share is cut to whole bytes. */
    divisor = (unsigned __int128)decimal.scale * 100;
    if (decimal.digits > divisor) {
        return false;
    }
    product = (unsigned __int128)decimal.digits * whole / divisor;
    if (product > INT64_MAX) {
        return false;
    }
    *size_p = (uint64_t)product;
    return true;
}

const char *size_format(uint64_t size, char buffer[SIZE_TEXT_MAX])
{
    static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    size_t unit = 0;
    uint64_t whole, rest, scale, parts;
    unsigned int decimals;

    while (unit + 1 < sizeof(names) / sizeof(names[0]) && size >> (10 * (unit + 1)) != 0) {
        unit++;
    }
    whole = size >> (10 * unit);
    rest = size & ((1ull << (10 * unit)) - 1);
    if (rest == 0) {
        snprintf(buffer, SIZE_TEXT_MAX, "%" PRIu64 " %s", whole, names[unit]);
        return buffer;
    }
    /* Cut, not rounded up: a size is never shown as more than there is. */
    decimals = whole >= 100 ? 1 : 2;
    scale = decimals == 1 ? 10 : 100;
    parts = (uint64_t)(((unsigned __int128)rest * scale) >> (10 * unit));
    snprintf(buffer, SIZE_TEXT_MAX, "%" PRIu64 ".%0*" PRIu64 " %s", whole, (int)decimals, parts,
             names[unit]);
    return buffer;
}
