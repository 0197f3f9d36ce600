/*
 * fuzz_policy - the random walk over the policy, with the fuzzer's bytes
 *
 * The same steps and the same invariants as tests/unit/test_policy_walk.c. A
 * fault is printed as a scenario before the abort, so that a crashing input can
 * be read. Built with libFuzzer, or with replay.c to go through a corpus.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../support/policy_walk.h"

#define MAX_SIZE (WALK_HEADER + 512u * WALK_STEP) /* long walks find nothing new */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct walk_result result;

    if (size < WALK_HEADER || size > MAX_SIZE) {
        return 0;
    }
    result = policy_walk(data, size);
    if (result.fault != NULL) {
        fprintf(stderr, "step %zu: %s\n", result.step, result.fault);
        policy_walk_print(data, size, stderr);
        abort();
    }
    return 0;
}
