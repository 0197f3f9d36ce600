/*
 * stories - the tests of a program, each in a process of its own
 *
 * For programs whose tests share something that a failed test cannot put back: a
 * driver in use, threads, a client. cmocka leaves a test at its first failed
 * assertion, so what the test held stays held; here it ends with the process, and
 * the next test finds what it would find alone. Whoever runs stories has nothing
 * of that open itself: what all need is made by the group's setup, in each process.
 *
 * STORY=TEXT in the environment runs those alone whose name has TEXT in it.
 */
#ifndef STORIES_H
#define STORIES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The number of stories that failed; setup and teardown, both for each, may be NULL. */
int stories_run(const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                CMFixtureFunction teardown);

#endif
