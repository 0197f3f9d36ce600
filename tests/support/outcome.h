/*
 * outcome - how a plain test program ends: 0 passed, 77 skipped, else failed
 *
 * For programs without cmocka (tests/gpu, tests/bench), which are carried to other
 * machines and whose parts run in forked processes. Each function prints one line
 * and ends the process; what a process started is ended by its exit handlers.
 */
#ifndef SUPPORT_OUTCOME_H
#define SUPPORT_OUTCOME_H

#define OUTCOME_SKIPPED 77

__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
__attribute__((noreturn, format(printf, 1, 2))) void skip(const char *format, ...);

/* Fails unless a call of the library answered CUBIEMEM_OK; says what the library says. */
void must(int status, const char *what);

/* Fails unless it holds; the text says what was expected and what came. */
#define expect(condition, ...) ((condition) ? (void)0 : fail(__VA_ARGS__))

#endif
