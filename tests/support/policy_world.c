/*
 * policy_world - a policy with few words, for the stories of the unit tests
 *
 * No cmocka here: what must not happen ends the program with a line that says
 * what.
 */
#include "policy_world.h"

#include <stdio.h>
#include <stdlib.h>

static void must(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "policy_world: %s\n", what);
        abort();
    }
}

struct policy *world_create(uint64_t total, enum policy_mode mode)
{
    const struct policy_config config = { .total = total, .granularity = 1, .alignment = 1,
                                          .mode = mode };
    struct policy *policy = policy_create(&config);

    must(policy != NULL, "no policy");
    return policy;
}

struct policy_registration world_registration(policy_scope scope, const char *name)
{
    return (struct policy_registration){
        .identity = { .scope = scope, .process = scope, .uid = 1000, .gid = 100,
                      .client = "solver" },
        .name = name,
        .group = "g",
        .evictable = true,
    };
}

struct policy_instance *world_add(struct policy *policy, policy_scope scope, const char *name)
{
    const struct policy_registration registration = world_registration(scope, name);
    struct policy_instance *instance = NULL;
    uint32_t warnings;

    must(policy_register(policy, &registration, &instance, &warnings) == CUBIEMEM_OK,
         "an instance was not registered");
    return instance;
}

void world_queue(struct policy *policy, struct policy_instance *instance, const char *label,
                 int64_t row, int64_t runs)
{
    int64_t shape[] = { row, runs };
    const struct array array = { .label = (char *)(uintptr_t)label, .shape = shape, .rank = 2,
                                 .dtype = CUBIEMEM_UINT8, .memory = CUBIEMEM_DEVICE, .axis = 1,
                                 .total_runs = 1 };
    size_t culprit;
    const char *why;

    must(policy_queue(policy, instance, &array, 1, &culprit, &why) == CUBIEMEM_OK,
         "a request was not queued");
}

int world_allocate(struct policy *policy, struct policy_instance *trigger, uint64_t free_bytes,
                   uint64_t *length_p)
{
    struct policy_refusal refusal;
    struct policy_plan *plan;
    int status = policy_plan(policy, trigger, free_bytes, true, &plan, &refusal);

    if (status != CUBIEMEM_OK) {
        return status;
    }
    policy_reserve(policy, plan);
    for (size_t i = 0; i < plan->n_victims; i++) {
        policy_evict(policy, plan->victims[i]);
    }
    policy_commit(policy, plan);
    if (length_p != NULL) {
        *length_p = plan->partition.chunk_length;
    }
    policy_plan_destroy(plan);
    return status;
}

uint64_t world_cap(const struct policy_instance *instance)
{
    struct policy_instance_view view;

    policy_instance_read(instance, &view);
    return view.cap;
}

uint64_t world_held(const struct policy_instance *instance)
{
    struct policy_instance_view view;

    policy_instance_read(instance, &view);
    return view.allocated;
}

void world_check(const struct policy *policy)
{
    const char *fault = policy_check(policy);

    must(fault == NULL, fault);
}
