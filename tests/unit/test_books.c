/*
 * test_books - the equations between the daemon's figures
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "books.h"

#define MIB (1ull << 20)
#define SECOND 1000000000ll

/* Memory on its way: promised, made, given back, lent again, let go. */
static void bytes_keep_their_sum(void **state)
{
    (void)state;
    struct books books;
    books_init(&books, 1000 * MIB, 0, 0);
    books_read(&books, 1024 * MIB, 1024 * MIB, 0);
    assert_int_equal(books_free(&books), 1000 * MIB); /* the budget is the smaller */

    books_promise(&books, 600 * MIB);
    assert_int_equal(books_free(&books), 400 * MIB);
    books_lend_new(&books, 600 * MIB);
    assert_int_equal(books_free(&books), 400 * MIB); /* before the next reading, too */
    books_read(&books, 1024 * MIB, 424 * MIB, 0);
    assert_int_equal(books_free(&books), 400 * MIB);
    assert_int_equal(books.others, 0);

    books_return(&books, 600 * MIB);
    assert_int_equal(books.cached, 600 * MIB);
    assert_int_equal(books_free(&books), 1000 * MIB);
    assert_int_equal(books_creatable(&books), 424 * MIB); /* without letting the cache go */
    books_lend_cached(&books, 600 * MIB);
    assert_int_equal(books.cached, 0);
    assert_int_equal(books.lent, 600 * MIB);
}

static void others_and_the_allowance_are_nobodys_to_promise(void **state)
{
    (void)state;
    struct books books;
    books_init(&books, 900 * MIB, 124 * MIB, 100 * MIB);
    books_read(&books, 1024 * MIB, 500 * MIB, 0); /* somebody outside has 524 */
    assert_int_equal(books.others, 524 * MIB);
    assert_int_equal(books_free(&books), 500 * MIB);
    for (int i = 0; i < 3; i++) {
        books_context_coming(&books, 0);
    }
    assert_int_equal(books_allowance(&books), 300 * MIB);
    assert_int_equal(books_free(&books), 200 * MIB);
    for (int i = 3; i < 9; i++) {
        books_context_coming(&books, 0);
    }
    assert_int_equal(books_free(&books), 0); /* never below */
}

/* Let go, kept by the driver for a while, then free. */
static void draining_falls_with_the_readings_only(void **state)
{
    (void)state;
    struct books books;
    books_init(&books, 1024 * MIB, 0, 0);
    books_read(&books, 1024 * MIB, 924 * MIB, 0); /* 100 are others' */
    books_promise(&books, 512 * MIB);
    books_lend_new(&books, 512 * MIB);
    books_read(&books, 1024 * MIB, 412 * MIB, 0);
    books_drain_lent(&books, 512 * MIB, 0);
    assert_int_equal(books.draining, 512 * MIB);
    assert_int_equal(books_free(&books), 412 * MIB);

    books_read(&books, 1024 * MIB, 412 * MIB, SECOND); /* nothing came back yet */
    assert_int_equal(books.draining, 512 * MIB);
    assert_int_equal(books.others, 100 * MIB);
    books_read(&books, 1024 * MIB, 668 * MIB, 2 * SECOND); /* half of it did */
    assert_int_equal(books.draining, 256 * MIB);
    books_read(&books, 1024 * MIB, 924 * MIB, 3 * SECOND);
    assert_int_equal(books.draining, 0);
    assert_int_equal(books_free(&books), 924 * MIB);
}

static void what_does_not_come_back_is_others_after_a_while(void **state)
{
    (void)state;
    struct books books;
    books_init(&books, 1024 * MIB, 0, 0);
    books_read(&books, 1024 * MIB, 1024 * MIB, 0);
    books_promise(&books, 256 * MIB);
    books_lend_new(&books, 256 * MIB);
    books_drain_lent(&books, 256 * MIB, 0);
    assert_int_equal(books_read(&books, 1024 * MIB, 768 * MIB, 9 * SECOND), 0);
    books_context_gone(&books, 9 * SECOND); /* the wait begins anew */
    assert_int_equal(books_read(&books, 1024 * MIB, 768 * MIB, 12 * SECOND), 0);
    assert_int_equal(books_read(&books, 1024 * MIB, 768 * MIB, 20 * SECOND), 256 * MIB);
    assert_int_equal(books.draining, 0);
    assert_int_equal(books.others, 256 * MIB);
    assert_int_equal(books_free(&books), 768 * MIB);
}

/* A context that comes up while something drains is not what drains. */
static void a_new_context_does_not_hide_what_has_drained(void **state)
{
    (void)state;
    struct books books;
    books_init(&books, 4096 * MIB, 0, 640 * MIB);
    books_read(&books, 4096 * MIB, 4096 * MIB, 0);
    books_promise(&books, 2048 * MIB);
    books_lend_new(&books, 2048 * MIB);
    books_drain_lent(&books, 2048 * MIB, 0);
    books_read(&books, 4096 * MIB, 2048 * MIB, 0);
    books_context_coming(&books, 0);
    books_read(&books, 4096 * MIB, 1530 * MIB, SECOND); /* 518 MiB for the context */
    books_context_ready(&books, SECOND);
    assert_int_equal(books.draining, 2048 * MIB);
    assert_int_equal(books.others, 518 * MIB);
    books_read(&books, 4096 * MIB, 3578 * MIB, 2 * SECOND); /* drained */
    assert_int_equal(books.draining, 0);
    assert_int_equal(books.others, 518 * MIB);
    /* Its credit is used up: the next growth is nobody's excuse. */
    assert_int_equal(books.context_credit, 0);
}

/* What is let go while a context is awaited is not taken for the context. */
static void what_begins_to_drain_is_no_context(void **state)
{
    (void)state;
    struct books books;
    books_init(&books, 4096 * MIB, 0, 640 * MIB);
    books_read(&books, 4096 * MIB, 4096 * MIB, 0);
    books_promise(&books, 2048 * MIB);
    books_lend_new(&books, 2048 * MIB);
    books_read(&books, 4096 * MIB, 2048 * MIB, 0);
    books_context_coming(&books, 0);
    books_drain_lent(&books, 2048 * MIB, 0);
    books_read(&books, 4096 * MIB, 2048 * MIB, SECOND);
    assert_int_equal(books.draining, 2048 * MIB);
    assert_int_equal(books.others, 0);
    books_read(&books, 4096 * MIB, 1530 * MIB, 2 * SECOND); /* the context */
    assert_int_equal(books.draining, 2048 * MIB);
    assert_int_equal(books.others, 518 * MIB);
}

/* The budget is lowered below what is lent: nothing is free, nothing wraps. */
static void a_budget_below_what_is_lent_leaves_nothing(void **state)
{
    (void)state;
    struct books books;
    books_init(&books, 1024 * MIB, 0, 0);
    books_read(&books, 1024 * MIB, 1024 * MIB, 0);
    books_promise(&books, 512 * MIB);
    books_lend_new(&books, 512 * MIB);
    books.budget = 256 * MIB;
    assert_int_equal(books_free(&books), 0);
    assert_int_equal(books_creatable(&books), 0);
    books.budget = 1024 * MIB;
    assert_int_equal(books_free(&books), 512 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_keep_their_sum),
        cmocka_unit_test(others_and_the_allowance_are_nobodys_to_promise),
        cmocka_unit_test(draining_falls_with_the_readings_only),
        cmocka_unit_test(what_does_not_come_back_is_others_after_a_while),
        cmocka_unit_test(a_new_context_does_not_hide_what_has_drained),
        cmocka_unit_test(what_begins_to_drain_is_no_context),
        cmocka_unit_test(a_budget_below_what_is_lent_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
