/*
 * stream_group - instances that queue together and are cut alike
 *
 * Keeps who is a member and who has a request queued, both in order (rule 9),
 * and for each owner in the group its stay: the count of its members and the
 * chunk pair cached for them, which goes with the last one (rule 8). A group
 * appears when it is first named and goes when nobody is in it and no plan of its
 * is under way.
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"

static policy_scope scope_of(policy_scope scope, uint32_t uid, bool shared)
{
    return shared ? uid : scope;
}

static uint64_t group_hash(policy_scope scope, const char *name, bool shared)
{
    return hash_mix(hash_mix(hash_name(name), scope), shared);
}

struct stream_group *stream_group_find(const struct policy *policy, policy_scope scope,
                                       uint32_t uid, const char *name, bool shared)
{
    policy_scope where = scope_of(scope, uid, shared);

    for (struct table_node *n = table_first(&policy->groups, group_hash(where, name, shared));
         n != NULL; n = table_next(n)) {
        struct stream_group *group = container_of(n, struct stream_group, node);

        if (group->shared == shared && group->scope == where && strcmp(group->name, name) == 0) {
            return group;
        }
    }
    return NULL;
}

struct stream_group *stream_group_get(struct policy *policy, policy_scope scope, uint32_t uid,
                                      const char *name, bool shared)
{
    struct stream_group *group = stream_group_find(policy, scope, uid, name, shared);
    size_t name_size = strlen(name) + 1;

    if (group != NULL) {
        return group;
    }
    group = calloc(1, sizeof(*group) + name_size);
    if (group == NULL) {
        return NULL;
    }
    group->shared = shared;
    group->scope = scope_of(scope, uid, shared);
    memcpy(group->name, name, name_size);
    table_init(&group->stays);
    table_add(&policy->groups, &group->node, group_hash(group->scope, name, shared));
    return group;
}

void stream_group_put(struct policy *policy, struct stream_group *group)
{
    if (group == NULL || group->first != NULL || group->stays.n > 0 || group->plan != NULL) {
        return;
    }
    table_remove(&policy->groups, &group->node);
    table_finish(&group->stays);
    free(group);
}

struct stay *stay_get(struct stream_group *group, struct owner *owner)
{
    uint64_t hash = owner->node.hash;
    struct stay *stay;

    for (struct table_node *n = table_first(&group->stays, hash); n != NULL; n = table_next(n)) {
        stay = container_of(n, struct stay, node);
        if (stay->owner == owner) {
            stay->n_members++;
            return stay;
        }
    }
    stay = calloc(1, sizeof(*stay));
    if (stay != NULL) {
        stay->owner = owner;
        stay->n_members = 1;
        table_add(&group->stays, &stay->node, hash);
    }
    return stay;
}

void stay_put(struct stream_group *group, struct stay *stay)
{
    if (stay == NULL || --stay->n_members > 0) {
        return;
    }
    table_remove(&group->stays, &stay->node);
    free(stay);
}

void stream_group_join(struct policy_instance *instance)
{
    struct stream_group *group = instance->group;

    list_append(group->first, group->last, instance, previous_member, next_member);
    if (instance->has_request) {
        list_append(group->first_queued, group->last_queued, instance, previous_queued,
                    next_queued);
    }
}

void stream_group_leave(struct policy_instance *instance)
{
    struct stream_group *group = instance->group;

    list_remove(group->first, group->last, instance, previous_member, next_member);
    if (instance->has_request) {
        list_remove(group->first_queued, group->last_queued, instance, previous_queued,
                    next_queued);
    }
}

void stream_group_sums(const struct stream_group *group, bytes128 *caps_p, bytes128 *held_p)
{
    bytes128 caps = 0, held = 0;

    for (const struct policy_instance *i = group->first; i != NULL; i = i->next_member) {
        caps += quota_cap(i);
        held += i->allocated + i->reserved;
    }
    *caps_p = caps;
    *held_p = held;
}

int policy_change_group(struct policy *policy, struct policy_instance *instance,
                        const char *group_name, bool shared)
{
    struct stream_group *old = instance->group, *group;
    struct stay *stay;

    group = stream_group_get(policy, instance->identity.scope, instance->identity.uid, group_name,
                             shared);
    if (group == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    if (group == old) {
        return CUBIEMEM_OK;
    }
    if (instance->in_plan) {
        stream_group_put(policy, group);
        return CUBIEMEM_BUSY;
    }
    stay = stay_get(group, instance->owner);
    if (stay == NULL) {
        stream_group_put(policy, group);
        return CUBIEMEM_HOST_MEMORY;
    }
    stream_group_leave(instance);
    stay_put(old, instance->stay);
    stream_group_put(policy, old);
    instance->group = group;
    instance->stay = stay;
    stream_group_join(instance);
    return CUBIEMEM_OK;
}

uint64_t policy_group_cap(const struct policy_instance *instance)
{
    bytes128 caps = 0, held = 0;
    stream_group_sums(instance->group, &caps, &held);
    return caps < UINT64_MAX ? (uint64_t)caps : UINT64_MAX;
}

static uint64_t available(const struct policy *policy, const struct stream_group *group,
                          uint64_t free_bytes, uint32_t *warnings_p)
{
    bytes128 caps = 0, held = 0, h;

    if (policy->mode == POLICY_PASSIVE) {
        return free_bytes;
    }
    if (group != NULL) {
        stream_group_sums(group, &caps, &held);
    }
    h = caps > held ? caps - held : 0;
    if (20 * h < caps || caps == 0) {
        *warnings_p |= CUBIEMEM_WARN_GROUP_NEARLY_FULL;
    }
    return h < free_bytes ? (uint64_t)h : free_bytes;
}

uint64_t policy_available(const struct policy *policy, struct policy_instance *instance,
                          uint64_t free_bytes, uint32_t *warnings_p)
{
    uint64_t room;

    *warnings_p = 0;
    room = available(policy, instance->group, free_bytes, warnings_p);
    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        const struct account *account = instance->accounts[i];
        uint64_t limit = account != NULL ? account_limit(policy, account) : UINT64_MAX;

        if (limit != UINT64_MAX) {
            uint64_t left = limit > account->used ? limit - (uint64_t)account->used : 0;

            room = left < room ? left : room;
        }
    }
    return room;
}

uint64_t policy_available_in(const struct policy *policy, policy_scope scope, uint32_t uid,
                             const char *group, bool shared, uint64_t free_bytes,
                             uint32_t *warnings_p)
{
    *warnings_p = 0;
    return available(policy, stream_group_find(policy, scope, uid, group, shared), free_bytes,
                     warnings_p);
}
