/*
 * batch - queue, allocate, take, release
 *
 * What is queued in a private group is kept here until an allocate carries it;
 * in a shared group it is sent at once. One allocate at a time for each group:
 * the second one finds what the first has left.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "clock.h"
#include "failure.h"
#include "holding.h"
#include "protocol_limits.h"
#include "request.h"

/* -------------------------------------------------------------- queue */

int request_send(struct channel *channel, uint64_t instance_id, const struct request *request,
                 int64_t timeout_ns)
{
    const struct request_item item = {instance_id, request};
    struct parts parts;
    struct incoming *answer = NULL;
    int status = parts_queue(&parts, &item);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    status = channel_call(channel, parts.messages, parts.n, clock_deadline(timeout_ns), &answer);
    parts_finish(&parts);
    if (status == CUBIEMEM_OK) {
        status = failure_result(answer->message->result, "queue");
        incoming_destroy(answer);
    }
    return status;
}

static bool is_shared(struct cubiemem_instance *instance)
{
    pthread_mutex_lock(&instance->client->books);
    bool shared = instance->group->shared;
    pthread_mutex_unlock(&instance->client->books);
    return shared;
}

int cubiemem_queue(struct cubiemem_instance *instance,
                   const struct cubiemem_array_request *requests, size_t n_requests)
{
    struct request *request = NULL;
    int status = instance_check(instance, CLIENT_QUICK);
    if (status == CUBIEMEM_OK) {
        status = request_create(requests, n_requests, &request);
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    struct cubiemem_client *client = instance->client;
    if (is_shared(instance)) {
        status = client_check(client, CLIENT_WAITS);
        if (status == CUBIEMEM_OK) {
            status = request_send(&client->channel, instance->id, request, client->timeout_ns);
        }
        request_unref(request);
        return status;
    }
    pthread_mutex_lock(&client->books);
    struct request *old = instance->queued;
    instance->queued = request;
    pthread_mutex_unlock(&client->books);
    request_unref(old);
    return CUBIEMEM_OK;
}

/* ----------------------------------------------------------- allocate */

/* What one allocate carries. */
struct batch {
    struct cubiemem_instance *trigger;
    const struct cubiemem_wait *wait; /* or NULL */
    int64_t wait_end;                 /* when its time is over */
    unsigned n_cancels;               /* of the trigger, when the call came */
    struct group *group;
    struct request_item *items;
    struct request **requests; /* the items', referenced */
    size_t n;
};

/* Books held. */
static int check_cancelled(const struct batch *batch)
{
    return batch->trigger->n_cancels == batch->n_cancels
               ? CUBIEMEM_OK
               : failure_set(CUBIEMEM_CANCELLED, "allocate of %.80s was cancelled",
                             batch->trigger->name);
}

/* The group's turn: one allocate at a time. Books held. */
static int begin_commit(struct cubiemem_client *client, struct batch *batch, int64_t deadline)
{
    struct group *group = batch->group;
    struct timespec end = clock_timespec(deadline);
    int status = CUBIEMEM_OK;
    while (group->committing && status == CUBIEMEM_OK) {
        if (pthread_cond_timedwait(&client->changed, &client->books, &end) == ETIMEDOUT) {
            return failure_set(CUBIEMEM_TIMEOUT, "another allocate of group %s takes too long",
                               group->name);
        }
        status = check_cancelled(batch);
    }
    group->committing = status == CUBIEMEM_OK || group->committing;
    return status;
}

static void end_commit(struct cubiemem_client *client, struct group *group)
{
    pthread_mutex_lock(&client->books);
    group->committing = false;
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->books);
}

/* The group's queued requests; books held. */
static int batch_collect(struct batch *batch)
{
    struct cubiemem_client *client = batch->trigger->client;
    size_t n = 0;
    for (struct cubiemem_instance *i = client->instances; i != NULL; i = i->next) {
        n += i->group == batch->group && i->queued != NULL;
    }
    batch->items = calloc(n + 1, sizeof *batch->items);
    batch->requests = calloc(n + 1, sizeof *batch->requests);
    if (batch->items == NULL || batch->requests == NULL) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory for a batch");
    }
    for (struct cubiemem_instance *i = client->instances; i != NULL; i = i->next) {
        if (i->group == batch->group && i->queued != NULL) {
            batch->requests[batch->n] = request_ref(i->queued);
            batch->items[batch->n] = (struct request_item){i->id, i->queued};
            batch->n++;
        }
    }
    return CUBIEMEM_OK;
}

/* Granted: what was queued is done with, unless something else is queued now. */
static void batch_consume(struct batch *batch)
{
    struct cubiemem_client *client = batch->trigger->client;
    pthread_mutex_lock(&client->books);
    for (size_t k = 0; k < batch->n; k++) {
        struct cubiemem_instance *instance = client_instance(client, batch->items[k].instance_id);
        if (instance != NULL && instance->queued == batch->requests[k]) {
            instance->queued = request_unref(instance->queued);
        }
    }
    pthread_mutex_unlock(&client->books);
}

static void batch_finish(struct batch *batch)
{
    for (size_t k = 0; k < batch->n; k++) {
        request_unref(batch->requests[k]);
    }
    free(batch->items);
    free(batch->requests);
}

/* The daemon wants dropped blocks back soon: the work in what may be replaced
 * has to be done before we ask. */
static int await_replaced(struct batch *batch, int64_t deadline)
{
    struct cubiemem_client *client = batch->trigger->client;
    int status = marks_wait(batch->trigger->owner, deadline);
    for (size_t k = 0; k < batch->n && status == CUBIEMEM_OK; k++) {
        pthread_mutex_lock(&client->books);
        struct cubiemem_instance *instance = client_instance(client, batch->items[k].instance_id);
        struct owner *owner = instance != NULL && instance->held.n > 0 ? instance->owner : NULL;
        if (owner != NULL) {
            owner->n_users++;
        }
        pthread_mutex_unlock(&client->books);
        if (owner == NULL) {
            continue;
        }
        status = marks_wait(owner, deadline);
        pthread_mutex_lock(&client->books);
        owner->n_users--;
        pthread_cond_broadcast(&client->changed);
        pthread_mutex_unlock(&client->books);
    }
    return status;
}

/* The answer is here, and the act role with it. */
static int take_grant(struct batch *batch, struct incoming *answer,
                      struct cubiemem_response **response_p)
{
    Cubiemem__ArrayResponse nothing = CUBIEMEM__ARRAY_RESPONSE__INIT;
    struct cubiemem_instance *trigger = batch->trigger;
    int status = failure_result(answer->message->result, "allocate");
    if (status != CUBIEMEM_OK) {
        return status;
    }
    batch_consume(batch);
    if (answer->message->response == NULL) {
        /* Nothing was queued, and nothing is cached: no arrays, no chunks. */
        nothing.instance_id = trigger->id;
        answer->message->response = &nothing;
        status = holding_apply(trigger->client, answer, response_p);
        answer->message->response = NULL;
        return status;
    }
    uint64_t grant = answer->message->response->grant;
    status = holding_apply(trigger->client, answer, response_p);
    if (status == CUBIEMEM_OK) {
        marks_deliver(trigger->owner, grant);
    }
    return status;
}

static int commit(struct batch *batch, int64_t deadline, struct cubiemem_response **response_p)
{
    struct cubiemem_client *client = batch->trigger->client;
    struct parts parts;
    struct incoming *answer = NULL;
    int status = await_replaced(batch, deadline);
    if (status == CUBIEMEM_OK) {
        pthread_mutex_lock(&client->books);
        status = check_cancelled(batch);
        pthread_mutex_unlock(&client->books);
    }
    if (status == CUBIEMEM_OK) {
        /* What has passed on this side counts, too. */
        struct cubiemem_wait left = {.size = sizeof left};
        if (batch->wait != NULL) {
            left.timeout_ns = clock_left(batch->wait_end);
            left.max_chunks = batch->wait->max_chunks;
        }
        status = parts_allocate(&parts, batch->trigger->id, batch->wait != NULL ? &left : NULL,
                                batch->items, batch->n);
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    status = channel_call_ordered(&client->channel, parts.messages, parts.n, deadline, &answer);
    parts_finish(&parts);
    if (status == CUBIEMEM_OK) {
        status = take_grant(batch, answer, response_p);
        incoming_destroy(answer);
        channel_acted(&client->channel);
    }
    return status;
}

static int check_wait(const struct cubiemem_wait *wait)
{
    if (wait != NULL && wait->size != sizeof *wait) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "cubiemem_wait: .size is %zu, not %zu",
                           wait->size, sizeof *wait);
    }
    if (wait != NULL && wait->timeout_ns < 0) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "a time to wait may not be negative");
    }
    return CUBIEMEM_OK;
}

/* The wait is the daemon's; its answer may take the client's time-out beyond it. */
static int64_t deadline_of(const struct cubiemem_client *client, const struct cubiemem_wait *wait)
{
    int64_t time;
    if (__builtin_add_overflow(client->timeout_ns, wait != NULL ? wait->timeout_ns : 0, &time)) {
        return INT64_MAX;
    }
    return clock_deadline(time);
}

int cubiemem_allocate(struct cubiemem_instance *instance, const struct cubiemem_wait *wait,
                      struct cubiemem_response **response_p)
{
    int status = instance_check(instance, CLIENT_WAITS);
    if (status == CUBIEMEM_OK && response_p == NULL) {
        status = failure_set(CUBIEMEM_INVALID_REQUEST, "nowhere to put the response");
    }
    if (status == CUBIEMEM_OK) {
        status = check_wait(wait);
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    struct cubiemem_client *client = instance->client;
    int64_t deadline = deadline_of(client, wait);
    pthread_mutex_lock(&client->books);
    struct batch batch = {.trigger = instance,
                          .wait = wait,
                          .wait_end = clock_deadline(wait != NULL ? wait->timeout_ns : 0),
                          .n_cancels = instance->n_cancels,
                          .group = instance->group};
    status = begin_commit(client, &batch, deadline);
    if (status != CUBIEMEM_OK) {
        pthread_mutex_unlock(&client->books);
        return status;
    }
    status = batch_collect(&batch);
    pthread_mutex_unlock(&client->books);
    if (status == CUBIEMEM_OK) {
        status = commit(&batch, deadline, response_p);
    }
    batch_finish(&batch);
    end_commit(client, batch.group);
    return status;
}

int cubiemem_cancel(struct cubiemem_instance *instance)
{
    Cubiemem__Cancel cancel = CUBIEMEM__CANCEL__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    int status = instance_check(instance, CLIENT_QUICK);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    pthread_mutex_lock(&instance->client->books);
    instance->n_cancels++; /* for one that has not got its turn yet */
    pthread_cond_broadcast(&instance->client->changed);
    pthread_mutex_unlock(&instance->client->books);
    message.cancel = &cancel;
    cancel.has_instance_id = true;
    cancel.instance_id = instance->id;
    return client_tell(instance->client, &message);
}

int cubiemem_take_response(struct cubiemem_instance *instance,
                           struct cubiemem_response **response_p)
{
    int status = instance_check(instance, CLIENT_QUICK);
    if (status == CUBIEMEM_OK && response_p == NULL) {
        status = failure_set(CUBIEMEM_INVALID_REQUEST, "nowhere to put the response");
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    pthread_mutex_lock(&instance->client->books);
    (void)holding_has_untaken(instance);
    struct cubiemem_response *response = instance->response;
    int failed = instance->response_status;
    instance->response = NULL;
    if (response == NULL) { /* what could be applied is told of before */
        instance->response_status = CUBIEMEM_OK;
    } else { /* with the books held: a grant that replaces it closes again */
        marks_deliver(instance->owner, response->grant);
        atomic_store(&instance->bereft, failed != CUBIEMEM_OK);
    }
    pthread_mutex_unlock(&instance->client->books);
    if (response == NULL) {
        return failed != CUBIEMEM_OK
                   ? failure_set(failed, "what another member of the group was granted for %.80s "
                                         "could not be mapped: queue it again", instance->name)
                   : failure_set(CUBIEMEM_NOT_FOUND, "no response waits for %.80s",
                                 instance->name);
    }
    *response_p = response;
    return CUBIEMEM_OK;
}

/* ------------------------------------------------------------ release */

static int tell_release(struct cubiemem_instance *instance, const char *const *labels,
                        size_t n_labels, uint64_t grant)
{
    Cubiemem__Release release = CUBIEMEM__RELEASE__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    size_t at = 0;
    int status;
    message.release = &release;
    release.has_instance_id = release.has_grant = true;
    release.instance_id = instance->id;
    release.grant = grant;
    release.has_all = release.all = labels == NULL;
    do {
        /* 128 labels of 255 bytes fit into a packet. */
        release.labels = labels != NULL ? (char **)(uintptr_t)(labels + at) : NULL;
        release.n_labels = labels == NULL ? 0 : n_labels - at < 128 ? n_labels - at : 128;
        at += release.n_labels;
        status = client_tell(instance->client, &message);
    } while (status == CUBIEMEM_OK && labels != NULL && at < n_labels);
    return status;
}

int cubiemem_release(struct cubiemem_instance *instance, const char *const *labels,
                     size_t n_labels)
{
    int status = instance_check(instance, CLIENT_QUICK);
    for (size_t i = 0; status == CUBIEMEM_OK && labels != NULL && i < n_labels; i++) {
        if (labels[i] == NULL || strlen(labels[i]) > LIMIT_LABEL) {
            status = failure_set(CUBIEMEM_INVALID_REQUEST, "label %zu is none", i);
        }
    }
    if (status != CUBIEMEM_OK || (labels != NULL && n_labels == 0)) {
        return status;
    }
    pthread_mutex_lock(&instance->client->books);
    status = holding_drop(instance, labels, n_labels);
    uint64_t grant = instance->grant; /* one that comes now is not meant */
    if (status == CUBIEMEM_OK && labels == NULL) {
        atomic_store(&instance->bereft, false);
    }
    pthread_mutex_unlock(&instance->client->books);
    return status == CUBIEMEM_OK ? tell_release(instance, labels, n_labels, grant) : status;
}
