/*
 * test_policy_scenarios - every scenario of tests/data/vectors/policy.json gives
 * what it says, step for step, with every sum of the policy checked after each
 * step; all of them in under 5 s. And a wrong expectation is noticed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "scenario.h"

#define MAX_SECONDS 5.0
#define SHOWN_DIFFERENCES 20

static size_t n_shown;

static void show(const char *line, void *arg)
{
    (void)arg;
    if (n_shown++ < SHOWN_DIFFERENCES) {
        print_error("%s\n", line);
    }
}

static void ignore(const char *line, void *arg)
{
    (void)line;
    (void)arg;
}

static json_t *load(void)
{
    const char *data = getenv("CUBIEMEM_TEST_DATA");
    char path[4096];
    json_error_t error;
    json_t *file;

    snprintf(path, sizeof(path), "%s/vectors/policy.json", data != NULL ? data : "tests/data");
    file = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (file == NULL) {
        print_error("%s: %s\n", path, error.text);
    }
    assert_non_null(file);
    return file;
}

/* Differences of one scenario. */
static size_t play(const json_t *description, scenario_difference_fn *fn)
{
    const char *name = json_string_value(json_object_get(description, "name"));
    char error[SCENARIO_ERROR_MAX], where[512];
    struct scenario *scenario = scenario_create(description, error);
    size_t i, n = 0;
    json_t *step, *final;

    assert_non_null(scenario);
    json_array_foreach(json_object_get(description, "steps"), i, step)
    {
        json_t *got = scenario_step(scenario, step, error);
        const char *fault = scenario_check(scenario);

        snprintf(where, sizeof(where), "%s: step %zu", name, i);
        if (got == NULL || fault != NULL) {
            print_error("%s: %s\n", where, got == NULL ? error : fault);
            fail();
        }
        n += scenario_compare(json_object_get(step, "expect"), got, where, fn, NULL);
        json_decref(got);
    }
    snprintf(where, sizeof(where), "%s: final", name);
    final = scenario_final(scenario);
    n += scenario_compare(json_object_get(description, "expect_final"), final, where, fn, NULL);
    json_decref(final);
    scenario_destroy(scenario);
    return n;
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void every_scenario_gives_what_it_says(void **state)
{
    json_t *file = load(), *description;
    double start = seconds();
    size_t i, n_failed = 0;

    (void)state;
    json_array_foreach(json_object_get(file, "scenarios"), i, description)
    {
        n_failed += play(description, show) > 0;
    }
    if (n_failed > 0) {
        print_error("%zu of %zu scenarios differ\n", n_failed, i);
    }
    assert_true(i >= 1200);
    assert_int_equal(n_failed, 0);
    if (getenv("SAN") == NULL || *getenv("SAN") == '\0') {
        assert_true(seconds() - start < MAX_SECONDS);
    }
    json_decref(file);
}

/* One figure too many anywhere must be seen. */
static void a_wrong_expectation_is_noticed(void **state)
{
    json_t *file = load();
    json_t *description = json_array_get(json_object_get(file, "scenarios"), 0);
    json_t *expect = json_object_get(description, "expect_final");
    json_t *step = json_array_get(json_object_get(description, "steps"), 0);
    json_t *instance = json_object_iter_value(json_object_iter(expect));
    json_t *cap = json_object_get(instance, "cap_bytes");

    (void)state;
    assert_int_equal(play(description, ignore), 0);
    json_integer_set(cap, json_integer_value(cap) + 1);
    assert_int_equal(play(description, ignore), 1);
    json_object_set_new(instance, "proportion", json_real(0.5));
    assert_int_equal(play(description, ignore), 2);
    json_object_set_new(expect, "nobody", json_object());
    assert_int_equal(play(description, ignore), 3);
    json_object_set_new(json_object_get(step, "expect"), "status", json_string("NO_MEMORY"));
    assert_int_equal(play(description, ignore), 4);
    json_decref(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scenario_gives_what_it_says),
        cmocka_unit_test(a_wrong_expectation_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
