/*
 * ceiling - limits in bytes above the instances: by client name, user, group
 *
 * An account counts what is held under one name of a user, one uid or one gid,
 * whether or not a ceiling stands over it, so that a ceiling set later finds the
 * right sum. An instance pays into up to three accounts. Ceilings never take
 * memory away: where more is used than a lowered limit allows, the room is 0 and
 * never less. That a request stays below them is plan.c's to see to, in passive
 * mode too: the mode is about caps.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static bool rule_applies(const struct policy_ceiling *rule, const struct account *account)
{
    if (rule->kind != account->kind) {
        return false;
    }
    return rule->kind == POLICY_CEILING_NAME ? strcmp(rule->name, account->name) == 0
                                             : rule->id == account->id;
}

static void account_attach(const struct policy *policy, struct account *account)
{
    account->ceiling = NULL;
    for (const struct ceiling *c = policy->ceilings; c != NULL; c = c->next) {
        if (rule_applies(&c->rule, account)) {
            account->ceiling = c;
        }
    }
}

struct account *account_get(struct policy *policy, enum policy_ceiling_kind kind, uint32_t id,
                            const char *name)
{
    uint64_t hash = hash_mix(hash_name(name), (uint64_t)kind << 32 | id);
    size_t name_size = strlen(name) + 1;
    struct account *account;

    for (struct table_node *n = table_first(&policy->accounts, hash); n != NULL;
         n = table_next(n)) {
        account = container_of(n, struct account, node);
        if (account->kind == kind && account->id == id && strcmp(account->name, name) == 0) {
            account->n_instances++;
            return account;
        }
    }
    account = calloc(1, sizeof(*account) + name_size);
    if (account == NULL) {
        return NULL;
    }
    account->kind = kind;
    account->id = id;
    account->n_instances = 1;
    memcpy(account->name, name, name_size);
    account_attach(policy, account);
    table_add(&policy->accounts, &account->node, hash);
    list_append(policy->first_account, policy->last_account, account, previous, next);
    return account;
}

void account_put(struct policy *policy, struct account *account)
{
    if (account == NULL || --account->n_instances > 0) {
        return;
    }
    table_remove(&policy->accounts, &account->node);
    list_remove(policy->first_account, policy->last_account, account, previous, next);
    free(account);
}

void accounts_add(struct policy_instance *instance, bytes128 bytes)
{
    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        if (instance->accounts[i] != NULL) {
            instance->accounts[i]->used += bytes;
        }
    }
}

void accounts_subtract(struct policy_instance *instance, bytes128 bytes)
{
    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        if (instance->accounts[i] != NULL) {
            instance->accounts[i]->used -= bytes;
        }
    }
}

uint64_t ceiling_limit(const struct policy *policy, const struct ceiling *ceiling)
{
    double limit;

    if (ceiling == NULL) {
        return UINT64_MAX;
    }
    if (!(ceiling->rule.percent >= 0)) {
        return ceiling->rule.limit;
    }
    /* In this order 100 % is the whole, to the byte, below 2^53. */
    limit = (double)policy->total * ceiling->rule.percent / 100;
    return limit >= 0x1p64 ? UINT64_MAX : (uint64_t)limit;
}

uint64_t account_limit(const struct policy *policy, const struct account *account)
{
    return ceiling_limit(policy, account->ceiling);
}

void account_describe(const struct account *account, char *text, size_t size)
{
    switch (account->kind) {
    case POLICY_CEILING_NAME:
        snprintf(text, size, "name %s", account->name);
        break;
    case POLICY_CEILING_UID:
        snprintf(text, size, "uid %" PRIu32, account->id);
        break;
    case POLICY_CEILING_GID:
        snprintf(text, size, "gid %" PRIu32, account->id);
        break;
    }
}

static bool same_subject(const struct policy_ceiling *a, const struct policy_ceiling *b)
{
    if (a->kind != b->kind) {
        return false;
    }
    return a->kind == POLICY_CEILING_NAME ? strcmp(a->name, b->name) == 0 : a->id == b->id;
}

static void accounts_attach_all(struct policy *policy)
{
    for (struct account *a = policy->first_account; a != NULL; a = a->next) {
        account_attach(policy, a);
    }
}

static void ceiling_free(struct ceiling *ceiling)
{
    free((char *)(uintptr_t)ceiling->rule.name);
    free(ceiling);
}

int policy_set_ceiling(struct policy *policy, const struct policy_ceiling *rule)
{
    struct ceiling **link = &policy->ceilings;
    struct ceiling *ceiling;

    while (*link != NULL && !same_subject(&(*link)->rule, rule)) {
        link = &(*link)->next;
    }
    ceiling = *link;
    if (rule->limit == UINT64_MAX && !(rule->percent >= 0)) {
        if (ceiling != NULL) {
            *link = ceiling->next;
            accounts_attach_all(policy);
            ceiling_free(ceiling);
        }
        return CUBIEMEM_OK;
    }
    if (ceiling != NULL) {
        ceiling->rule.limit = rule->limit;
        ceiling->rule.percent = rule->percent;
        return CUBIEMEM_OK;
    }
    ceiling = calloc(1, sizeof(*ceiling));
    if (ceiling == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    ceiling->rule = *rule;
    ceiling->rule.name = NULL;
    if (rule->kind == POLICY_CEILING_NAME) {
        ceiling->rule.name = strdup(rule->name);
        if (ceiling->rule.name == NULL) {
            free(ceiling);
            return CUBIEMEM_HOST_MEMORY;
        }
    }
    *link = ceiling;
    accounts_attach_all(policy);
    return CUBIEMEM_OK;
}

void ceilings_free(struct policy *policy)
{
    while (policy->ceilings != NULL) {
        struct ceiling *ceiling = policy->ceilings;

        policy->ceilings = ceiling->next;
        ceiling_free(ceiling);
    }
}

void policy_each_ceiling(const struct policy *policy,
                         void (*fn)(const struct policy_ceiling_view *, void *), void *arg)
{
    for (const struct account *a = policy->first_account; a != NULL; a = a->next) {
        if (a->ceiling != NULL) {
            struct policy_ceiling_view view = {
                .ceiling = a->ceiling->rule,
                .uid = a->kind == POLICY_CEILING_NAME ? a->id : 0,
                .limit = account_limit(policy, a),
                .used = saturate(a->used),
            };

            fn(&view, arg);
        }
    }
}

bool policy_is_over_limit(const struct policy *policy, const struct policy_instance *instance)
{
    bytes128 caps, held;

    for (size_t i = 0; i < N_ACCOUNTS; i++) {
        const struct account *account = instance->accounts[i];

        if (account != NULL && account->used > account_limit(policy, account)) {
            return true;
        }
    }
    if (policy->mode == POLICY_PASSIVE || instance->allocated <= quota_cap(instance)) {
        return false;
    }
    /* A member may use what the others of its group leave. */
    stream_group_sums(instance->group, &caps, &held);
    return held > caps;
}
