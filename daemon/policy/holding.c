/*
 * holding - what an instance holds: arrays under labels, in blocks (rule 5)
 *
 * A block goes, with its whole charge, when the last array in it has gone; the
 * charge that an instance and its accounts carry is the sum of its blocks at any
 * time. Records of one commit lie in one piece of host memory, the lot, made
 * when the batch was planned: so taking and dropping never fail.
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"

struct held *holdings_find(const struct policy_instance *instance, const char *label,
                           uint64_t hash)
{
    for (struct table_node *n = table_first(&instance->labels, hash); n != NULL;
         n = table_next(n)) {
        struct held *held = container_of(n, struct held, node);

        if (strcmp(held->array->label, label) == 0) {
            return held;
        }
    }
    return NULL;
}

void lot_release(struct lot *lot)
{
    if (lot != NULL && --lot->n_users == 0) {
        free(lot);
    }
}

static void block_drop(struct policy_instance *instance, struct block *block)
{
    struct policy *policy = instance->policy;

    if (policy->block_gone != NULL) {
        policy->block_gone(instance, &block->shown, policy->block_gone_arg);
    }
    list_remove(instance->first_block, instance->last_block, block, previous, next);
    instance->allocated -= block->shown.charge;
    accounts_subtract(instance, block->shown.charge);
    lot_release(block->lot);
}

void holdings_drop(struct policy_instance *instance, struct held *held)
{
    struct block *block = held->block;

    table_remove(&instance->labels, &held->node);
    list_remove(instance->first_held, instance->last_held, held, previous, next);
    if (held->array->memory == CUBIEMEM_DEVICE) {
        instance->n_device--;
    } else {
        instance->pinned -= held->array->nbytes;
    }
    if (block != NULL && --block->shown.n_arrays == 0) {
        block_drop(instance, block);
    }
    lot_release(held->lot);
}

void holdings_drop_all(struct policy_instance *instance)
{
    while (instance->first_held != NULL) {
        holdings_drop(instance, instance->first_held);
    }
}

static void block_take(struct policy_instance *instance, struct lot *lot, size_t i)
{
    struct block *block = &lot->blocks[i];

    block->shown.id = lot->plan_blocks[i].id;
    block->shown.charge = lot->plan_blocks[i].charge;
    block->shown.data = lot->plan_blocks[i].data;
    block->lot = lot;
    lot->n_users++;
    list_append(instance->first_block, instance->last_block, block, previous, next);
    instance->allocated += block->shown.charge;
    accounts_add(instance, block->shown.charge);
}

void holdings_take(struct policy_instance *instance, struct lot *lot,
                   const struct request *request, uint64_t grant)
{
    for (size_t i = 0; i < lot->n_blocks; i++) {
        block_take(instance, lot, i);
    }
    for (size_t i = 0; i < lot->n_arrays; i++) {
        struct held *held = &lot->held[i];
        struct held *old = holdings_find(instance, held->array->label, request->hashes[i]);

        if (old != NULL) {
            holdings_drop(instance, old);
        }
        table_add(&instance->labels, &held->node, request->hashes[i]);
        list_append(instance->first_held, instance->last_held, held, previous, next);
        held->lot = lot;
        held->array->grant = grant;
        lot->n_users++;
        if (held->array->memory == CUBIEMEM_DEVICE) {
            instance->n_device++;
        } else {
            instance->pinned += held->array->nbytes;
        }
    }
}

struct policy_block *policy_next_block(const struct policy_instance *instance,
                                       const struct policy_block *previous)
{
    struct block *block = previous == NULL ? instance->first_block
                                           : container_of(previous, struct block, shown)->next;

    return block != NULL ? &block->shown : NULL;
}

const struct policy_array *policy_find_array(const struct policy_instance *instance,
                                             const char *label)
{
    struct held *held = holdings_find(instance, label, hash_name(label));

    return held != NULL ? held->array : NULL;
}

void policy_set_block_gone(struct policy *policy, policy_block_gone_fn *fn, void *arg)
{
    policy->block_gone = fn;
    policy->block_gone_arg = arg;
}

void policy_release_label(struct policy *policy, struct policy_instance *instance,
                          const char *label)
{
    struct held *held = holdings_find(instance, label, hash_name(label));

    (void)policy;
    if (held != NULL) {
        holdings_drop(instance, held);
    }
}

void policy_release_all(struct policy *policy, struct policy_instance *instance)
{
    (void)policy;
    holdings_drop_all(instance);
}

void policy_release_until(struct policy *policy, struct policy_instance *instance,
                          uint64_t grant)
{
    struct held *next;

    (void)policy;
    for (struct held *held = instance->first_held; held != NULL; held = next) {
        next = held->next;
        if (held->array->grant <= grant) {
            holdings_drop(instance, held);
        }
    }
}
