/*
 * books - every byte of the device, see books.h
 *
 * Draining is an estimate that only readings can lower: the driver tells nobody
 * when the last process that maps a released segment is gone; it only shows
 * fewer bytes as used. Others is what is left over, so an estimate that is too
 * high hides somebody else's memory for a while, never the other way round.
 */
#include "books.h"

#include <assert.h>
#include <string.h>

#include "checked.h"

void books_init(struct books *books, uint64_t budget, uint64_t reserve, uint64_t allowance_each)
{
    memset(books, 0, sizeof(*books));
    books->budget = budget;
    books->reserve = reserve;
    books->allowance_each = allowance_each;
}

uint64_t books_allowance(const struct books *books)
{
    return books->allowance_each * books->n_contextless;
}

/* a + b - c - d, or 0 where that is negative, with no overflow on the way. */
static uint64_t rest(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    __int128 sum = (__int128)a + b - c - d;
    return sum > 0 ? (uint64_t)sum : 0;
}

static uint64_t within_budget(const struct books *books)
{
    __int128 taken = (__int128)books->lent + books->draining + books->promised;
    return (__int128)books->budget > taken ? (uint64_t)(books->budget - taken) : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t books_free(const struct books *books)
{
    uint64_t device = rest(books->device_free, books->cached, books->promised,
                           books_allowance(books));
    return smaller(within_budget(books), device);
}

uint64_t books_capacity(const struct books *books)
{
    uint64_t ours = books->lent + books->cached + books->draining;
    return smaller(books->budget,
                   rest(books->device_free, ours, books_allowance(books), 0));
}

uint64_t books_creatable(const struct books *books)
{
    uint64_t device = rest(books->device_free, 0, books->promised, books_allowance(books));
    return smaller(within_budget(books), device);
}

bool books_are_overdrawn(const struct books *books)
{
    return (__int128)books->lent + books->promised > books->budget;
}

/* A client's new context would look like memory that does not drain: what has
 * come since the last reading is a context's, as far as contexts are awaited. */
static void settle_contexts(struct books *books, uint64_t not_ours)
{
    uint64_t grown = smaller(sub_or_zero(not_ours, books->not_ours), books->context_credit);
    if (books->draining > 0) {
        books->others_settled += grown;
    }
    books->not_ours = not_ours;
    books->context_credit -= grown;
    books->context_credit = smaller(books->context_credit,
                                    sub_or_zero(books->context_credit, books->credit_ending));
    books->credit_ending = 0;
}

uint64_t books_read(struct books *books, uint64_t device_total, uint64_t device_free,
                    int64_t now_ns)
{
    books->device_total = device_total;
    books->device_free = device_free;
    books->device_known = true;

    uint64_t used = sub_or_zero(device_total, device_free);
    uint64_t not_ours = rest(used, 0, books->lent, books->cached);
    settle_contexts(books, not_ours);
    uint64_t draining = smaller(books->draining, sub_or_zero(not_ours, books->others_settled));
    if (draining != books->draining) {
        books->draining = draining;
        books->drain_change_ns = now_ns;
    }
    uint64_t given_up = 0;
    if (books->draining > 0 && now_ns - books->drain_change_ns > BOOKS_DRAIN_PATIENCE_NS) {
        given_up = books->draining;
        books->draining = 0;
    }
    books->others = sub_or_zero(not_ours, books->draining);
    if (books->draining == 0) {
        books->others_settled = books->others;
    }
    return given_up;
}

void books_reading_failed(struct books *books)
{
    books->device_known = false;
}

static void take_one(size_t *count)
{
    assert(*count > 0);
    --*count;
}

void books_context_coming(struct books *books, int64_t now_ns)
{
    books->n_contextless++;
    books->context_credit += books->allowance_each;
    books->drain_change_ns = now_ns;
}

void books_context_ready(struct books *books, int64_t now_ns)
{
    take_one(&books->n_contextless);
    books->credit_ending += books->allowance_each;
    books->drain_change_ns = now_ns;
}

void books_context_gone(struct books *books, int64_t now_ns)
{
    books->drain_change_ns = now_ns;
}

static void take(uint64_t *figure, uint64_t size)
{
    assert(*figure >= size);
    *figure -= size;
}

void books_promise(struct books *books, uint64_t size)
{
    books->promised += size;
}

void books_unpromise(struct books *books, uint64_t size)
{
    take(&books->promised, size);
}

/* The last reading did not have the new segment yet: what is free by it is
 * corrected at once, the next reading replaces the correction. */
void books_lend_new(struct books *books, uint64_t size)
{
    take(&books->promised, size);
    books->lent += size;
    books->device_free = sub_or_zero(books->device_free, size);
}

void books_lend_cached(struct books *books, uint64_t size)
{
    take(&books->cached, size);
    books->lent += size;
}

void books_return(struct books *books, uint64_t size)
{
    take(&books->lent, size);
    books->cached += size;
}

void books_drain_lent(struct books *books, uint64_t size, int64_t now_ns)
{
    take(&books->lent, size);
    books->draining += size;
    books->drain_change_ns = now_ns;
}

void books_drain_cached(struct books *books, uint64_t size, int64_t now_ns)
{
    take(&books->cached, size);
    books->draining += size;
    books->drain_change_ns = now_ns;
}
