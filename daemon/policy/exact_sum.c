/*
 * exact_sum - the exact sum of doubles from 0 to 1, rounded once
 *
 * A double is a mantissa of 53 bits times a power of two, so it touches at most
 * two words and a carry. Rounding looks at the 53 topmost bits, the bit below
 * them and whether anything is left below that. Sums below 2^53 units, the
 * subnormal ones among them, are doubles as they are.
 */
#include "exact_sum.h"

#include <math.h>
#include <stdbool.h>

#define UNIT_EXPONENT (-1074)

/* value = *mantissa_p * 2^(*position_p + UNIT_EXPONENT) */
static void split(double value, uint64_t *mantissa_p, unsigned int *position_p)
{
    int exponent;
    double fraction = frexp(value, &exponent);

    exponent -= 53;
    if (exponent < UNIT_EXPONENT) { /* subnormal: fewer bits than 53 */
        fraction = ldexp(fraction, exponent - UNIT_EXPONENT);
        exponent = UNIT_EXPONENT;
    }
    *mantissa_p = (uint64_t)ldexp(fraction, 53);
    *position_p = (unsigned int)(exponent - UNIT_EXPONENT);
}

void exact_sum_add(struct exact_sum *sum, double value)
{
    uint64_t mantissa;
    unsigned int position;
    unsigned __int128 carry;

    if (value == 0) {
        return;
    }
    split(value, &mantissa, &position);
    carry = (unsigned __int128)mantissa << (position % 64);
    for (unsigned int i = position / 64; i < EXACT_SUM_WORDS && carry != 0; i++) {
        unsigned __int128 word = (unsigned __int128)sum->words[i] + (uint64_t)carry;

        sum->words[i] = (uint64_t)word;
        carry = (carry >> 64) + (uint64_t)(word >> 64);
    }
}

void exact_sum_subtract(struct exact_sum *sum, double value)
{
    uint64_t mantissa;
    unsigned int position;
    unsigned __int128 borrow;

    if (value == 0) {
        return;
    }
    split(value, &mantissa, &position);
    borrow = (unsigned __int128)mantissa << (position % 64);
    for (unsigned int i = position / 64; i < EXACT_SUM_WORDS && borrow != 0; i++) {
        uint64_t before = sum->words[i];

        sum->words[i] = before - (uint64_t)borrow;
        borrow = (borrow >> 64) + (before < (uint64_t)borrow ? 1u : 0u);
    }
}

/* Bits [from, from + 64) */
static uint64_t bits_at(const struct exact_sum *sum, unsigned int from)
{
    unsigned int word = from / 64, shift = from % 64;
    uint64_t bits = sum->words[word] >> shift;

    if (shift != 0 && word + 1 < EXACT_SUM_WORDS) {
        bits |= sum->words[word + 1] << (64 - shift);
    }
    return bits;
}

static bool any_below(const struct exact_sum *sum, unsigned int position)
{
    for (unsigned int i = 0; i < position / 64; i++) {
        if (sum->words[i] != 0) {
            return true;
        }
    }
    return (sum->words[position / 64] & ((1ull << (position % 64)) - 1)) != 0;
}

double exact_sum_value(const struct exact_sum *sum)
{
    unsigned int word = EXACT_SUM_WORDS, top, low;
    uint64_t mantissa;

    while (word > 0 && sum->words[word - 1] == 0) {
        word--;
    }
    if (word == 0) {
        return 0;
    }
    top = word * 64 - 1 - (unsigned int)__builtin_clzll(sum->words[word - 1]);
    if (top < 53) {
        return ldexp((double)sum->words[0], UNIT_EXPONENT);
    }
    low = top - 52;
    mantissa = bits_at(sum, low) & ((1ull << 53) - 1);
    if ((bits_at(sum, low - 1) & 1) != 0 && ((mantissa & 1) != 0 || any_below(sum, low - 1))) {
        mantissa++; /* 2^53 is a double too */
    }
    return ldexp((double)mantissa, (int)low + UNIT_EXPONENT);
}
