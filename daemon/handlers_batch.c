/*
 * handlers_batch - requests about arrays, see handlers.h
 */
#include "handlers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "array.h"
#include "eviction.h"
#include "protocol_limits.h"
#include "log.h"
#include "status.h"
#include "transaction.h"

/* One array as the policy takes it: label and shape are the message's. */
static void to_array(const Cubiemem__ArrayRequest *request, struct array *array_p)
{
    int dtype = 0;
    if (request->dtype == NULL || !dtype_from_name(request->dtype, &dtype)) {
        dtype = 0; /* the check refuses it */
    }
    *array_p = (struct array){
        .label = request->label,
        .shape = request->shape,
        .rank = request->n_shape > UINT32_MAX ? UINT32_MAX : (uint32_t)request->n_shape,
        .dtype = dtype,
        .memory = (int)request->memory,
        .axis = request->no_chunk_axis                             ? CUBIEMEM_AXIS_NONE
                : request->chunk_axis_index == CUBIEMEM_AXIS_NONE ? -1
                                                                   : request->chunk_axis_index,
        .unchunkable = request->unchunkable,
        .zeroed = request->zeroed,
        .total_runs = request->total_runs,
    };
}

/* What several ArrayRequests of one instance say together. */
struct request_set {
    struct instance *instance;
    struct array *arrays;
    size_t n;
};

/* What the policy would keep copies of for this session, its instances' new requests
 * beside what they hold. */
static int check_room(struct request *request, const struct request_set *sets, size_t n_sets)
{
    size_t n = 0;
    struct policy_instance_view view;
    for (const struct instance *instance = request->session->instances; instance != NULL;
         instance = instance->hh.next) {
        policy_instance_read(instance->policy, &view);
        n += view.n_arrays + view.n_queued;
    }
    for (size_t i = 0; i < n_sets; i++) { /* each replaces what was queued */
        policy_instance_read(sets[i].instance->policy, &view);
        n += sets[i].n - view.n_queued;
    }
    if (n > LIMIT_SESSION_ARRAYS) {
        snprintf(request->why, sizeof(request->why),
                 "%zu arrays queued and held; a session has at most %u", n, LIMIT_SESSION_ARRAYS);
        return CUBIEMEM_LIMIT;
    }
    return CUBIEMEM_OK;
}

/* The set of this instance, begun if there is none yet. */
static struct request_set *set_of(struct instance *instance, struct request_set *sets,
                                  size_t *n_sets)
{
    if (instance->gathered == NULL) {
        instance->gathered = &sets[(*n_sets)++];
        *instance->gathered = (struct request_set){.instance = instance};
    }
    return instance->gathered;
}

/* Requests for instances of the trigger's group: the others' batch may be under
 * way, and this one would not commit them. */
static int gather(struct request *request, const struct instance *trigger,
                  Cubiemem__ArrayRequests *const *parts, size_t n_parts,
                  struct request_set *sets, size_t *n_sets_p)
{
    size_t total = 0;
    for (size_t i = 0; i < n_parts; i++) {
        total += parts[i]->n_arrays;
        struct instance *instance =
            request_instance(request, parts[i]->has_instance_id, parts[i]->instance_id);
        if (instance == NULL) {
            return CUBIEMEM_NOT_REGISTERED;
        }
        if (trigger != NULL && instance != trigger && !transaction_same_group(instance, trigger)) {
            snprintf(request->why, sizeof(request->why),
                     "instance %" PRIu64 " is in another group than the Allocate's", instance->id);
            return CUBIEMEM_INVALID_REQUEST;
        }
        struct request_set *set = set_of(instance, sets, n_sets_p);
        struct array *arrays =
            realloc(set->arrays, (set->n + parts[i]->n_arrays + 1) * sizeof(*arrays));
        if (arrays == NULL) {
            return CUBIEMEM_HOST_MEMORY;
        }
        set->arrays = arrays;
        for (size_t a = 0; a < parts[i]->n_arrays; a++) {
            to_array(parts[i]->arrays[a], &arrays[set->n++]);
        }
    }
    if (total > LIMIT_ARRAYS_PER_BATCH) {
        snprintf(request->why, sizeof(request->why), "%zu arrays; a batch has at most %u", total,
                 LIMIT_ARRAYS_PER_BATCH);
        return CUBIEMEM_LIMIT;
    }
    return CUBIEMEM_OK;
}

/* Fresh memory is zero because the driver clears it; where that cannot be relied on
 * (scrub.h), nothing is promised. */
static bool may_be_zeroed(const struct daemon *daemon, const struct request_set *set,
                          size_t *culprit_p)
{
    size_t i = 0;
    while (i < set->n && (!daemon->single_user || !set->arrays[i].zeroed)) {
        i++;
    }
    *culprit_p = i;
    return i == set->n;
}

static int name_culprit(struct request *request, const struct request_set *set, int status,
                        size_t culprit, const char *why)
{
    struct policy_instance_view view;
    policy_instance_read(set->instance->policy, &view);
    const char *label = culprit < set->n && set->arrays[culprit].label != NULL
                            ? set->arrays[culprit].label
                            : "";
    snprintf(request->why, sizeof(request->why), "instance '%.100s', array '%.100s': %s", view.name,
             label, why != NULL ? why : status_text(status));
    return status;
}

/* All or none: where several are to be queued, all are checked before the first
 * is (policy_queue() checks each for itself). */
static int queue_sets(struct request *request, const struct request_set *sets, size_t n_sets)
{
    struct daemon *daemon = connection_daemon(request->connection);
    size_t culprit = 0;
    const char *why = NULL;
    for (size_t i = 0; n_sets > 1 && i < n_sets; i++) {
        int status = arrays_check(sets[i].arrays, sets[i].n, &culprit, &why);
        if (status != CUBIEMEM_OK) {
            return name_culprit(request, &sets[i], status, culprit, why);
        }
        if (!may_be_zeroed(daemon, &sets[i], &culprit)) {
            return name_culprit(request, &sets[i], CUBIEMEM_NOT_PERMITTED, culprit,
                                "this driver cannot be relied on to clear memory: zero it yourself");
        }
    }
    for (size_t i = 0; i < n_sets; i++) {
        int status = policy_queue(daemon->policy, sets[i].instance->policy, sets[i].arrays,
                                  sets[i].n, &culprit, &why);
        if (status != CUBIEMEM_OK) {
            return name_culprit(request, &sets[i], status, culprit, why);
        }
    }
    return CUBIEMEM_OK;
}

static int gather_and_queue(struct request *request, const struct instance *trigger,
                            Cubiemem__ArrayRequests *const *parts, size_t n_parts)
{
    struct request_set *sets = calloc(n_parts + 1, sizeof(*sets));
    size_t n_sets = 0;
    int status = sets != NULL ? gather(request, trigger, parts, n_parts, sets, &n_sets)
                              : CUBIEMEM_HOST_MEMORY;
    if (status == CUBIEMEM_OK) {
        status = check_room(request, sets, n_sets);
    }
    if (status == CUBIEMEM_OK) {
        status = queue_sets(request, sets, n_sets);
    }
    for (size_t i = 0; i < n_sets; i++) {
        sets[i].instance->gathered = NULL;
        free(sets[i].arrays);
    }
    free(sets);
    return status;
}

int handle_queue(struct request *request)
{
    Cubiemem__ArrayRequests *requests = request->message->queue_requests->requests;
    if (requests == NULL) {
        snprintf(request->why, sizeof(request->why), "QueueRequests has no requests");
        return CUBIEMEM_INVALID_REQUEST;
    }
    return gather_and_queue(request, NULL, &requests, 1);
}

int handle_allocate(struct request *request)
{
    const Cubiemem__Allocate *body = request->message->allocate;
    struct instance *trigger = request_instance(request, body->has_instance_id, body->instance_id);
    if (trigger == NULL) {
        return CUBIEMEM_NOT_REGISTERED;
    }
    if (request->id == 0) {
        connection_close(request->connection, "its Allocate asks for no answer");
        return HANDLED;
    }
    if (request->session->owed != NULL) {
        snprintf(request->why, sizeof(request->why),
                 "segments of replaced blocks have to be given back first");
        return CUBIEMEM_BUSY;
    }
    if (body->wait_ns < 0) {
        snprintf(request->why, sizeof(request->why), "wait_ns is %" PRId64 ": a time to wait is "
                                                     "not negative", body->wait_ns);
        return CUBIEMEM_INVALID_REQUEST;
    }
    int status = gather_and_queue(request, trigger, body->requests, body->n_requests);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    const struct wait_terms terms = {.timeout_ns = body->wait_ns, .max_chunks = body->max_chunks};
    transaction_begin(request->session, trigger, request->id, &terms);
    return HANDLED;
}

int handle_cancel(struct request *request)
{
    const Cubiemem__Cancel *body = request->message->cancel;
    struct instance *instance =
        request_instance(request, body->has_instance_id, body->instance_id);
    if (instance == NULL) {
        return CUBIEMEM_NOT_REGISTERED;
    }
    if (!transaction_cancel(instance)) {
        snprintf(request->why, sizeof(request->why), "no Allocate of this instance waits");
        return CUBIEMEM_NOT_FOUND;
    }
    return CUBIEMEM_OK;
}

int handle_release(struct request *request)
{
    const Cubiemem__Release *body = request->message->release;
    struct instance *instance =
        request_instance(request, body->has_instance_id, body->instance_id);
    if (instance == NULL) {
        return CUBIEMEM_NOT_REGISTERED;
    }
    const uint64_t newest = body->has_grant ? body->grant : UINT64_MAX;
    if (body->all || body->n_labels == 0) {
        session_release(instance, NULL, newest);
    }
    for (size_t i = 0; i < body->n_labels; i++) {
        session_release(instance, body->labels[i], newest);
    }
    return CUBIEMEM_OK;
}

int handle_give_back(struct request *request)
{
    const Cubiemem__GiveBack *body = request->message->give_back;
    if (!session_give_back(request->session, body->segment_ids, body->n_segment_ids,
                           body->block_ids, body->n_block_ids)) {
        connection_close(request->connection, "it gives back a segment that it does not owe");
    }
    return CUBIEMEM_OK;
}

int handle_evict_reply(struct request *request)
{
    const Cubiemem__EvictReply *body = request->message->evict_reply;
    if (!eviction_answered(request->session, body->evict_id, body->busy)) {
        connection_close(request->connection, "it answers an Invalidate that was not sent");
    }
    return CUBIEMEM_OK;
}
