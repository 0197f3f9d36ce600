/*
 * batch - everything queued in a group, as numbers to plan with (rules 4 to 8)
 *
 * Gathered from the group's queue for one policy_plan(): run counts, the length
 * that peers bind it to, the bytes it replaces, and the rooms it has to fit in.
 */
#ifndef POLICY_BATCH_H
#define POLICY_BATCH_H

#include "chunk.h"

/* Bytes that the members under one ceiling may take; account NULL: all, A. */
struct room {
    const struct account *account;
    bytes128 bytes;
};

struct batch {
    const struct policy *policy;
    struct stream_group *group;
    struct policy_instance *trigger;
    uint64_t id; /* owner::batch, account::batch, block::batch */
    size_t n_peers;

    uint64_t runs;  /* L */
    uint64_t bound; /* n of rule 8; 0: none */
    bytes128 replaced; /* R */
    bytes128 caps, held; /* of the group's members */
    struct chunk_batch chunk;
    struct room *rooms; /* [0] is A, set by the plan; then one for each ceiling */
    size_t n_rooms;
    void *memory;
};

/* An instance that gets a notice without arrays: of an owner of the batch, and
 * without a request. */
bool batch_is_peer(const struct batch *batch, const struct policy_instance *instance);

/* Return: OK; INVALID_REQUEST, LIMIT, HOST_MEMORY with what is known of instance,
 * label and why. */
int batch_gather(const struct policy *policy, struct policy_instance *trigger,
                 struct batch *batch_p, struct policy_refusal *refusal);
void batch_finish(struct batch *batch);
/* The tightest room that total(n) does not fit, or NULL. */
const struct room *batch_misfit(const struct batch *batch, uint64_t n);
/* Names the largest device array with chunks of n under the account; n 0: the
 * largest of those that are not cut. */
void batch_blame(const struct batch *batch, uint64_t n, const struct account *account,
                 struct policy_refusal *refusal);

#endif
