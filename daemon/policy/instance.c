/*
 * instance - the registry: who there is, and what each belongs to
 *
 * An instance joins its owner, group, process and accounts all at once or not at
 * all; what it was the last member of goes with it. Nothing here walks over
 * other instances: ten thousand cost no more than ten.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* ------------------------------------------------------------------ policy */

struct policy *policy_create(const struct policy_config *config)
{
    struct policy *policy = calloc(1, sizeof(*policy));
    struct policy_scratch *scratch = calloc(1, sizeof(*scratch));

    if (policy == NULL || scratch == NULL) {
        free(policy);
        free(scratch);
        return NULL;
    }
    policy->total = config->total;
    policy->granularity = config->granularity;
    policy->alignment = config->alignment;
    policy->mode = config->mode;
    policy->auto_share = config->auto_share;
    policy->scratch = scratch;
    policy->rest = 1;
    table_init(&policy->names);
    table_init(&policy->owners);
    table_init(&policy->groups);
    table_init(&policy->users);
    table_init(&policy->processes);
    table_init(&policy->accounts);
    return policy;
}

void policy_destroy(struct policy *policy)
{
    if (policy == NULL) {
        return;
    }
    while (policy->first != NULL) {
        policy_unregister(policy, policy->first);
    }
    ceilings_free(policy);
    table_finish(&policy->names);
    table_finish(&policy->owners);
    table_finish(&policy->groups);
    table_finish(&policy->users);
    table_finish(&policy->processes);
    table_finish(&policy->accounts);
    free(policy->scratch);
    free(policy);
}

/* ------------------------------------------------ owner, user and process */

static struct owner *owner_get(struct policy *policy, policy_scope scope, const char *name)
{
    uint64_t hash = hash_mix(hash_name(name), scope);
    size_t name_size = strlen(name) + 1;
    struct owner *owner;

    for (struct table_node *n = table_first(&policy->owners, hash); n != NULL; n = table_next(n)) {
        owner = container_of(n, struct owner, node);
        if (owner->scope == scope && strcmp(owner->name, name) == 0) {
            return owner;
        }
    }
    owner = calloc(1, sizeof(*owner) + name_size);
    if (owner != NULL) {
        owner->scope = scope;
        memcpy(owner->name, name, name_size);
        table_add(&policy->owners, &owner->node, hash);
        list_append(policy->first_owner, policy->last_owner, owner, previous, next);
    }
    return owner;
}

static void owner_put(struct policy *policy, struct owner *owner)
{
    if (owner == NULL || owner->first != NULL) {
        return;
    }
    table_remove(&policy->owners, &owner->node);
    list_remove(policy->first_owner, policy->last_owner, owner, previous, next);
    free(owner);
}

static struct user *user_get(struct policy *policy, uint32_t uid)
{
    uint64_t hash = hash_mix(uid, 1);
    struct user *user;

    for (struct table_node *n = table_first(&policy->users, hash); n != NULL; n = table_next(n)) {
        user = container_of(n, struct user, node);
        if (user->uid == uid) {
            user->n_instances++;
            return user;
        }
    }
    user = calloc(1, sizeof(*user));
    if (user != NULL) {
        user->uid = uid;
        user->n_instances = 1;
        table_add(&policy->users, &user->node, hash);
    }
    return user;
}

static void user_put(struct policy *policy, struct user *user)
{
    if (user == NULL || --user->n_instances > 0) {
        return;
    }
    table_remove(&policy->users, &user->node);
    free(user);
}

static struct process *process_get(struct policy *policy, uint64_t key, uint32_t uid)
{
    uint64_t hash = hash_mix(hash_mix(uid, 2), key);
    struct process *process;
    struct user *user = user_get(policy, uid);

    if (user == NULL) {
        return NULL;
    }
    for (struct table_node *n = table_first(&policy->processes, hash); n != NULL;
         n = table_next(n)) {
        process = container_of(n, struct process, node);
        if (process->key == key && process->user == user) {
            process->n_instances++;
            return process;
        }
    }
    process = calloc(1, sizeof(*process));
    if (process == NULL) {
        user_put(policy, user);
        return NULL;
    }
    process->key = key;
    process->user = user;
    process->n_instances = 1;
    table_add(&policy->processes, &process->node, hash);
    return process;
}

static void process_put(struct policy *policy, struct process *process)
{
    struct user *user;

    if (process == NULL) {
        return;
    }
    user = process->user;
    if (--process->n_instances == 0) {
        table_remove(&policy->processes, &process->node);
        free(process);
    }
    user_put(policy, user);
}

/* --------------------------------------------------------------- instances */

/* Frees what the instance has of host memory, and its uses of others; it is in
 * no list and no table. */
static void instance_free(struct policy *policy, struct policy_instance *instance)
{
    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        account_put(policy, instance->accounts[i]);
    }
    process_put(policy, instance->process);
    if (instance->group != NULL) {
        stay_put(instance->group, instance->stay);
    }
    stream_group_put(policy, instance->group);
    owner_put(policy, instance->owner);
    table_finish(&instance->labels);
    free((char *)(uintptr_t)instance->identity.client);
    free(instance->name);
    free(instance);
}

static bool accounts_open(struct policy *policy, struct policy_instance *instance)
{
    const struct policy_identity *identity = &instance->identity;

    instance->accounts[POLICY_CEILING_UID] =
        account_get(policy, POLICY_CEILING_UID, identity->uid, "");
    instance->accounts[POLICY_CEILING_GID] =
        account_get(policy, POLICY_CEILING_GID, identity->gid, "");
    if (identity->client != NULL) {
        instance->accounts[POLICY_CEILING_NAME] =
            account_get(policy, POLICY_CEILING_NAME, identity->uid, identity->client);
    }
    return instance->accounts[POLICY_CEILING_UID] != NULL &&
           instance->accounts[POLICY_CEILING_GID] != NULL &&
           (identity->client == NULL || instance->accounts[POLICY_CEILING_NAME] != NULL);
}

static struct policy_instance *instance_create(struct policy *policy,
                                               const struct policy_registration *registration)
{
    const struct policy_identity *identity = &registration->identity;
    const char *group = registration->group != NULL ? registration->group : "default";
    const char *owner = registration->owner != NULL ? registration->owner : registration->name;
    struct policy_instance *instance = calloc(1, sizeof(*instance));

    if (instance == NULL) {
        return NULL;
    }
    instance->policy = policy;
    table_init(&instance->labels);
    instance->identity = *identity;
    instance->identity.client = identity->client != NULL ? strdup(identity->client) : NULL;
    instance->manual = registration->manual;
    instance->proportion = registration->manual ? registration->proportion : 0;
    instance->evictable = registration->evictable;
    instance->name = strdup(registration->name);
    if (instance->name == NULL || (identity->client != NULL && instance->identity.client == NULL)) {
        goto fail;
    }
    instance->owner = owner_get(policy, identity->scope, owner);
    instance->group = stream_group_get(policy, identity->scope, identity->uid, group,
                                       registration->shared);
    if (instance->owner == NULL || instance->group == NULL) {
        goto fail;
    }
    instance->stay = stay_get(instance->group, instance->owner);
    instance->process = process_get(policy, identity->process, identity->uid);
    if (instance->stay == NULL || instance->process == NULL || !accounts_open(policy, instance)) {
        goto fail;
    }
    return instance;
fail:
    instance_free(policy, instance);
    return NULL;
}

int policy_register(struct policy *policy, const struct policy_registration *registration,
                    struct policy_instance **instance_p, uint32_t *warnings_p)
{
    const struct policy_identity *identity = &registration->identity;
    struct policy_instance *instance;
    uint32_t warnings = 0;
    int status;

    if (policy_find(policy, identity->scope, registration->name) != NULL) {
        return CUBIEMEM_ALREADY_REGISTERED;
    }
    status = registration->manual ? quota_check_manual(policy, NULL, identity->uid,
                                                       registration->proportion, &warnings)
                                  : quota_check_auto(policy, NULL);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    instance = instance_create(policy, registration);
    if (instance == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    instance->number = ++policy->last_number;
    table_add(&policy->names, &instance->node,
              hash_mix(hash_name(instance->name), identity->scope));
    list_append(policy->first, policy->last, instance, previous, next);
    list_append(instance->owner->first, instance->owner->last, instance, previous_owned,
                next_owned);
    stream_group_join(instance);
    quota_enter(policy, instance);
    *instance_p = instance;
    *warnings_p = warnings;
    return CUBIEMEM_OK;
}

void policy_unregister(struct policy *policy, struct policy_instance *instance)
{
    if (instance->in_plan) {
        policy_plan_forget_instance(policy, &instance->group->plan->shown, instance);
    }
    holdings_drop_all(instance);
    quota_leave(policy, instance);
    stream_group_leave(instance);
    instance->has_request = false;
    request_free(&instance->request);
    list_remove(instance->owner->first, instance->owner->last, instance, previous_owned,
                next_owned);
    list_remove(policy->first, policy->last, instance, previous, next);
    table_remove(&policy->names, &instance->node);
    instance_free(policy, instance);
}

struct policy_instance *policy_find(struct policy *policy, policy_scope scope, const char *name)
{
    uint64_t hash = hash_mix(hash_name(name), scope);

    for (struct table_node *n = table_first(&policy->names, hash); n != NULL; n = table_next(n)) {
        struct policy_instance *instance = container_of(n, struct policy_instance, node);

        if (instance->identity.scope == scope && strcmp(instance->name, name) == 0) {
            return instance;
        }
    }
    return NULL;
}

void policy_instance_read(const struct policy_instance *instance,
                          struct policy_instance_view *view_p)
{
    *view_p = (struct policy_instance_view){
        .name = instance->name,
        .group = instance->group->name,
        .owner = instance->owner->name,
        .identity = instance->identity,
        .shared = instance->group->shared,
        .manual = instance->manual,
        .evictable = instance->evictable,
        .working = instance->working,
        .has_request = instance->has_request,
        .proportion = quota_proportion(instance),
        .cap = quota_cap(instance),
        .allocated = saturate(instance->allocated),
        .reserved = instance->reserved,
        .pinned = saturate(instance->pinned),
        .n_arrays = instance->labels.n,
        .n_queued = instance->has_request ? instance->request.n : 0,
        .chunks = instance->chunks,
    };
}

void policy_instance_set_data(struct policy_instance *instance, void *data)
{
    instance->data = data;
}

void *policy_instance_data(const struct policy_instance *instance)
{
    return instance->data;
}

struct policy_instance *policy_next_instance(const struct policy *policy,
                                             const struct policy_instance *previous)
{
    return previous == NULL ? policy->first : previous->next;
}
