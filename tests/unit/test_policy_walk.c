/*
 * test_policy_walk - a million random steps, with everything checked after each
 *
 * POLICY_WALK_SEED and POLICY_WALK_STEPS choose another seed (printed) and another
 * number of steps; under a sanitizer a twentieth is the default. A walk that fails
 * is shrunk and printed as a scenario, for `cubiememctl simulate -`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../support/policy_walk.h"
#include "scenario.h"

#define STEPS_PER_WALK 400u

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static uint64_t from_environment(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : fallback;
}

static uint64_t default_steps(void)
{
    const char *san = getenv("SAN"), *runner = getenv("RUNNER");
    bool slow = (san != NULL && *san != '\0') || (runner != NULL && *runner != '\0');

    return slow ? 50000 : 1000000;
}

static void nothing_is_ever_unbalanced(void **state)
{
    uint64_t seed = from_environment("POLICY_WALK_SEED", 20261130);
    uint64_t n_steps = from_environment("POLICY_WALK_STEPS", default_steps());
    uint64_t random = seed, done = 0;
    struct walk_result all = { 0 };
    uint8_t bytes[WALK_HEADER + STEPS_PER_WALK * WALK_STEP];

    (void)state;
    print_message("seed %llu, %llu steps\n", (unsigned long long)seed, (unsigned long long)n_steps);
    while (done < n_steps) {
        struct walk_result result;

        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t)next_random(&random);
        }
        result = policy_walk(bytes, sizeof(bytes));
        if (result.fault != NULL) {
            size_t size = policy_walk_shrink(bytes, WALK_HEADER + result.step * WALK_STEP);

            print_error("seed %llu: %s; shrunk:\n", (unsigned long long)seed,
                        policy_walk(bytes, size).fault);
            policy_walk_print(bytes, size, stderr);
            fail();
        }
        done += result.step;
        all.n_granted += result.n_granted;
        all.n_chunked += result.n_chunked;
        all.n_refused += result.n_refused;
        all.n_evictions += result.n_evictions;
        all.n_aborted += result.n_aborted;
    }
    print_message("%zu granted, %zu chunked, %zu refused, %zu evicting, %zu aborted\n",
                  all.n_granted, all.n_chunked, all.n_refused, all.n_evictions, all.n_aborted);
    /* A walk that never gets anywhere would prove nothing. */
    assert_true(all.n_granted > n_steps / 100);
    assert_true(all.n_chunked > n_steps / 1000);
    assert_true(all.n_refused > n_steps / 1000);
    assert_true(all.n_evictions > n_steps / 2000);
    assert_true(all.n_aborted > n_steps / 2000);
}

/* What is printed of a failing walk must be of use. */
static void what_is_printed_is_a_scenario(void **state)
{
    uint64_t random = 7;

    (void)state;
    for (int walk = 0; walk < 50; walk++) {
        uint8_t bytes[WALK_HEADER + 100 * WALK_STEP];
        char error[SCENARIO_ERROR_MAX], *text = NULL;
        struct scenario *scenario;
        json_t *description, *step;
        size_t size, i;
        FILE *out = open_memstream(&text, &size);

        assert_non_null(out);
        for (i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t)next_random(&random);
        }
        bytes[2] |= 2; /* only what scenarios have */
        policy_walk_print(bytes, sizeof(bytes), out);
        fclose(out);
        description = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(description);
        scenario = scenario_create(description, error);
        assert_non_null(scenario);
        json_array_foreach(json_object_get(description, "steps"), i, step)
        {
            json_t *got = scenario_step(scenario, step, error);

            if (got == NULL) {
                print_error("%s\n", error);
            }
            assert_non_null(got);
            assert_null(scenario_check(scenario));
            json_decref(got);
        }
        assert_int_equal(i, 100);
        scenario_destroy(scenario);
        json_decref(description);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_ever_unbalanced),
        cmocka_unit_test(what_is_printed_is_a_scenario),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
