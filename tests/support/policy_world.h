/*
 * policy_world - a policy with few words, for the stories of the unit tests
 */
#ifndef SUPPORT_POLICY_WORLD_H
#define SUPPORT_POLICY_WORLD_H

#include "policy.h"

/* Granularity and alignment 1, so that a byte is a byte. */
struct policy *world_create(uint64_t total, enum policy_mode mode);
/* Of user 1000, group 100, program "solver", process = scope; in group "g", in
 * the auto pool, evictable. Change what the story needs and register. */
struct policy_registration world_registration(policy_scope scope, const char *name);
/* Registered so, or the test fails. */
struct policy_instance *world_add(struct policy *policy, policy_scope scope, const char *name);
/* Queues one array of `runs` runs of `row` bytes under this label. */
void world_queue(struct policy *policy, struct policy_instance *instance, const char *label,
                 int64_t row, int64_t runs);
/* Plan, reserve, evict, commit; the plan's status. The chunk length of what was
 * granted; *length_p may be NULL. */
int world_allocate(struct policy *policy, struct policy_instance *trigger, uint64_t free_bytes,
                   uint64_t *length_p);
uint64_t world_cap(const struct policy_instance *instance);
uint64_t world_held(const struct policy_instance *instance);
/* policy_check() finds nothing, or the test fails. */
void world_check(const struct policy *policy);

#endif
