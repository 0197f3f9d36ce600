/*
 * bench_policy - what the policy itself costs: medians of planning a batch and of
 * registering and leaving among many, in this process, nothing else
 *
 * Prints one line a figure: name<TAB>value<TAB>unit<TAB>limit. Batches are planned
 * where they do not fit, so that the chunk length has to be found, and where the
 * instance already holds the same arrays, so that each replaces one.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy.h"

#define MIB (1ull << 20)
#define N_SAMPLES 1001
#define N_INSTANCES 10000

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

static double median(double *samples, size_t n)
{
    qsort(samples, n, sizeof(samples[0]), compare_doubles);
    return samples[n / 2];
}

static void report(const char *name, double us, double limit_us)
{
    printf("%s\t%.3f\tus\t%.0f\n", name, us, limit_us);
}

static void must(int status, const char *what)
{
    if (status != CUBIEMEM_OK) {
        fprintf(stderr, "bench_policy: %s: status %d\n", what, status);
        exit(1);
    }
}

static struct policy *make_policy(void)
{
    const struct policy_config config = {
        .total = 140ull << 30,
        .granularity = 2 * MIB,
        .alignment = 512,
        .mode = POLICY_PASSIVE,
        .auto_share = POLICY_SHARE_PROCESS,
    };

    return policy_create(&config);
}

static struct policy_instance *add(struct policy *policy, unsigned int i, bool manual)
{
    char name[32], group[32];
    struct policy_registration registration = {
        .identity = { .scope = 1 + i / 8, .process = 1 + i / 8, .uid = 1000 + i % 7, .gid = 100,
                      .client = "bench" },
        .name = name,
        .group = group,
        .manual = manual,
        .proportion = 1e-6 * (1 + i % 13),
        .evictable = true,
    };
    struct policy_instance *instance;
    uint32_t warnings;

    snprintf(name, sizeof(name), "solver-%u", i);
    snprintf(group, sizeof(group), "group-%u", i % 3);
    must(policy_register(policy, &registration, &instance, &warnings), "register");
    return instance;
}

/* Planning n arrays with room for about two thirds of them. */
static void bench_plan(const char *name, size_t n, double limit_us)
{
    struct policy *policy = make_policy();
    struct policy_instance *instance = add(policy, 0, false);
    struct array *arrays = calloc(n, sizeof(*arrays));
    int64_t shape[3] = { 100, 6, 1 << 20 };
    double samples[N_SAMPLES];
    struct policy_refusal refusal;
    struct policy_plan *plan;
    const char *why;
    size_t culprit;
    uint64_t room = n * 100 * 6 * 8 * (MIB * 2 / 3);

    for (size_t i = 0; i < n; i++) {
        char label[32];

        snprintf(label, sizeof(label), "state-summaries-%zu", i);
        arrays[i] = (struct array){ .label = strdup(label), .shape = shape, .rank = 3,
                                    .dtype = CUBIEMEM_FLOAT64, .memory = CUBIEMEM_DEVICE,
                                    .axis = i % 4 == 3 ? CUBIEMEM_AXIS_NONE : 2,
                                    .total_runs = 1 };
        if (i % 4 == 3) {
            arrays[i].rank = 2; /* coefficients: small, not cut */
        }
    }
    for (size_t i = 0; i < N_SAMPLES + 1; i++) {
        double start;

        must(policy_queue(policy, instance, arrays, n, &culprit, &why), "queue");
        start = now_us();
        must(policy_plan(policy, instance, room, true, &plan, &refusal), "plan");
        if (i > 0) {
            samples[i - 1] = now_us() - start;
        } else {
            policy_reserve(policy, plan);
            policy_commit(policy, plan);
        }
        policy_plan_destroy(plan);
    }
    report(name, median(samples, N_SAMPLES), limit_us);
    for (size_t i = 0; i < n; i++) {
        free(arrays[i].label);
    }
    free(arrays);
    policy_destroy(policy);
}

static void bench_register(void)
{
    struct policy *policy = make_policy();
    double samples[N_SAMPLES];

    for (unsigned int i = 0; i < N_INSTANCES; i++) {
        add(policy, i, i % 2 == 0);
    }
    for (unsigned int i = 0; i < N_SAMPLES; i++) {
        double start = now_us();

        policy_unregister(policy, add(policy, N_INSTANCES + i, i % 2 == 0));
        samples[i] = now_us() - start;
    }
    report("policy_register_unregister_of_10000", median(samples, N_SAMPLES), 10);
    policy_destroy(policy);
}

int main(void)
{
    bench_plan("policy_plan_6_arrays", 6, 2);
    bench_plan("policy_plan_1000_arrays", 1000, 200);
    bench_register();
    return 0;
}
