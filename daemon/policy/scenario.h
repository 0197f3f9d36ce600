/*
 * scenario - scenario files (tests/data/vectors/README.md) through the policy
 *
 * Used by the tests, by `cubiememctl simulate` and to try what a generator
 * printed. The only file of the policy that knows JSON.
 */
#ifndef POLICY_SCENARIO_H
#define POLICY_SCENARIO_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct scenario;

#define SCENARIO_ERROR_MAX 256

/* A scenario's device and mode, no steps carried out. NULL: text says what is
 * wrong with it. */
struct scenario *scenario_create(const json_t *description, char error[SCENARIO_ERROR_MAX]);
void scenario_destroy(struct scenario *scenario);

/*
 * Carries one step out. What came of it is an object as a step's `expect`:
 * status, warnings, events, and result of "available". A new reference; NULL if
 * the step is no step (unknown op, a missing or wrongly typed argument): text.
 */
json_t *scenario_step(struct scenario *scenario, const json_t *step,
                      char error[SCENARIO_ERROR_MAX]);
/* The instances as in `expect_final`; a new reference. */
json_t *scenario_final(const struct scenario *scenario);
/* NULL, or what policy_check() found. */
const char *scenario_check(const struct scenario *scenario);

/* Calls fn with one line for each difference between what was expected, of a step
 * or of the end, and what came; counts them. `where` stands first in the lines.
 * Numbers that are no integers may differ by 1e-12. */
typedef void scenario_difference_fn(const char *line, void *arg);
size_t scenario_compare(const json_t *expect, const json_t *got, const char *where,
                        scenario_difference_fn *fn, void *arg);

#endif
