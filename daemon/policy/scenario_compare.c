/*
 * scenario_compare - what was expected of a step, against what came of it
 *
 * One line for each difference, with the path to it and both values. All must
 * match exactly, the order of warnings and events too; numbers that are no
 * integers within 1e-12.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scenario.h"

struct comparison {
    scenario_difference_fn *fn;
    void *arg;
    size_t n;
};

static void report(struct comparison *comparison, const char *path, const json_t *expect,
                   const json_t *got)
{
    char *left = expect != NULL ? json_dumps(expect, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    char *right = got != NULL ? json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    char *line = NULL;

    comparison->n++;
    if (asprintf(&line, "%s: expected %s, got %s", path, left != NULL ? left : "nothing",
                 right != NULL ? right : "nothing") < 0) {
        line = NULL;
    }
    comparison->fn(line != NULL ? line : path, comparison->arg);
    free(line);
    free(left);
    free(right);
}

static void compare(struct comparison *comparison, const char *path, const json_t *expect,
                    const json_t *got);

static void compare_member(struct comparison *comparison, const char *path, const char *key,
                           const json_t *expect, const json_t *got)
{
    char *below = NULL;

    if (asprintf(&below, "%s.%s", path, key) < 0) {
        below = NULL;
    }
    compare(comparison, below != NULL ? below : path, expect, got);
    free(below);
}

static void compare_objects(struct comparison *comparison, const char *path, const json_t *expect,
                            const json_t *got)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)expect, key, value)
    {
        compare_member(comparison, path, key, value, json_object_get(got, key));
    }
    json_object_foreach((json_t *)(uintptr_t)got, key, value)
    {
        if (json_object_get(expect, key) == NULL) {
            compare_member(comparison, path, key, NULL, value);
        }
    }
}

static void compare_lists(struct comparison *comparison, const char *path, const json_t *expect,
                          const json_t *got)
{
    size_t n = json_array_size(expect) > json_array_size(got) ? json_array_size(expect)
                                                              : json_array_size(got);
    char key[32];

    for (size_t i = 0; i < n; i++) {
        snprintf(key, sizeof(key), "%zu", i);
        compare_member(comparison, path, key, json_array_get(expect, i), json_array_get(got, i));
    }
}

static void compare(struct comparison *comparison, const char *path, const json_t *expect,
                    const json_t *got)
{
    if (json_is_object(expect) && json_is_object(got)) {
        compare_objects(comparison, path, expect, got);
    } else if (json_is_array(expect) && json_is_array(got)) {
        compare_lists(comparison, path, expect, got);
    } else if (json_is_number(expect) && json_is_number(got) &&
               !(json_is_integer(expect) && json_is_integer(got))) {
        if (!(fabs(json_number_value(expect) - json_number_value(got)) <= 1e-12)) {
            report(comparison, path, expect, got);
        }
    } else if (expect == NULL || got == NULL || !json_equal(expect, got)) {
        report(comparison, path, expect, got);
    }
}

size_t scenario_compare(const json_t *expect, const json_t *got, const char *where,
                        scenario_difference_fn *fn, void *arg)
{
    struct comparison comparison = { .fn = fn, .arg = arg };

    compare(&comparison, where, expect, got);
    return comparison.n;
}
