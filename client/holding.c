/*
 * holding - what an instance holds, as it comes and goes
 *
 * The order of a grant: dropped blocks are unmapped, their segments are loose;
 * new blocks are mapped from descriptors and loose segments; the labels change
 * hands; loose segments that are left over are given back. If a step fails, the
 * new blocks are unmapped again, and the grant's arrays are released: the
 * daemon's books and these agree again after one message.
 */
#include "holding.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "failure.h"
#include "protocol_limits.h"
#include "response.h"
#include "status.h"

/* A grant on its way into an instance. */
struct grant {
    struct cubiemem_client *client;
    struct cubiemem_instance *instance;
    const Cubiemem__ArrayResponse *message;
    struct incoming *incoming;
    struct segment_list loose; /* held, mapped nowhere */
    uint64_t *closed;          /* dropped blocks that are told whole: legacy, or unmapped before */
    size_t n_closed;
    struct block_view *fresh; /* mapped for this grant */
    struct placements placements;
};

/* ----------------------------------------------------------- blocks */

/* Blocks come in the same order again and again: look behind the last find first. */
static struct block_view *find_block(struct block_view *list, uint64_t id,
                                     struct block_view **hint)
{
    for (struct block_view *block = *hint; block != NULL; block = block->next) {
        if (block->id == id) {
            *hint = block;
            return block;
        }
    }
    for (struct block_view *block = list; block != NULL; block = block->next) {
        if (block->id == id) {
            *hint = block;
            return block;
        }
    }
    return NULL;
}

/* Take a block out of its instance and unmap it. */
static int drop_block(struct cubiemem_instance *instance, struct block_view *block,
                      struct segment_list *loose)
{
    struct block_view *next = block->next;
    struct block_view **link = &instance->blocks;
    while (*link != block) {
        link = &(*link)->next;
    }
    int status = block_unmap(&instance->client->context, block, loose);
    if (status == CUBIEMEM_OK) {
        *link = next;
    }
    return status;
}

static void count_arrays(struct cubiemem_instance *instance)
{
    for (struct block_view *block = instance->blocks; block != NULL; block = block->next) {
        block->n_arrays = 0;
    }
    for (size_t i = 0; i < instance->held.n; i++) {
        if (instance->held.items[i].block != NULL) {
            instance->held.items[i].block->n_arrays++;
        }
    }
}

/* Arrays in blocks that are gone are gone. */
static void forget_arrays_in(struct cubiemem_instance *instance, const struct block_view *block)
{
    struct placements *held = &instance->held;
    size_t kept = 0;
    for (size_t i = 0; i < held->n; i++) {
        if (held->items[i].block == block) {
            free(held->items[i].label);
        } else {
            held->items[kept++] = held->items[i];
        }
    }
    held->n = kept;
}

int holding_drop(struct cubiemem_instance *instance, const char *const *labels, size_t n_labels)
{
    struct context *context = &instance->client->context;
    struct segment_list loose = {0};
    struct placements removed;
    int status = CUBIEMEM_OK;
    if (!placements_remove(&instance->held, labels, n_labels, &removed)) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to release arrays");
    }
    count_arrays(instance);
    struct block_view *next;
    for (struct block_view *block = instance->blocks; block != NULL; block = next) {
        next = block->next;
        if (block->n_arrays > 0) {
            continue;
        }
        int result = drop_block(instance, block, &loose);
        status = status != CUBIEMEM_OK ? status : result;
    }
    segment_list_release(&loose, context);
    segment_list_finish(&loose);
    placements_finish(&removed, context);
    return status;
}

void holding_forget(struct cubiemem_instance *instance)
{
    while (instance->blocks != NULL) {
        struct block_view *next = instance->blocks->next;
        block_forget(instance->blocks);
        instance->blocks = next;
    }
    for (size_t i = 0; i < instance->held.n; i++) {
        free(instance->held.items[i].label);
    }
    free(instance->held.items);
    instance->held = (struct placements){0};
}

/* ------------------------------------------------------- giving back */

/* Is the segment part of a block that this grant brought? */
static bool is_granted(const Cubiemem__ArrayResponse *message, uint64_t id)
{
    for (size_t i = 0; i < message->n_blocks; i++) {
        for (size_t j = 0; j < message->blocks[i]->n_segments; j++) {
            if (message->blocks[i]->segments[j]->segment_id == id) {
                return true;
            }
        }
    }
    return false;
}

static void send_give_back(struct cubiemem_client *client, const struct segment_list *loose,
                           const Cubiemem__ArrayResponse *granted, uint64_t *closed,
                           size_t n_closed, uint64_t yield_id)
{
    Cubiemem__GiveBack give_back = CUBIEMEM__GIVE_BACK__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    uint64_t ids[1024];
    size_t i = 0;
    message.give_back = &give_back;
    give_back.segment_ids = ids;
    give_back.block_ids = closed;
    give_back.n_block_ids = n_closed;
    /* In messages of at most 1024; the last one answers the yield. */
    do {
        give_back.n_segment_ids = 0;
        for (; i < loose->n && give_back.n_segment_ids < 1024; i++) {
            if (granted == NULL || !is_granted(granted, loose->segments[i].id)) {
                ids[give_back.n_segment_ids++] = loose->segments[i].id;
            }
        }
        give_back.has_yield_id = yield_id != 0 && i == loose->n;
        give_back.yield_id = yield_id;
        if (give_back.n_segment_ids > 0 || give_back.n_block_ids > 0 ||
            give_back.has_yield_id) {
            (void)client_tell(client, &message);
        }
        give_back.n_block_ids = 0;
    } while (i < loose->n);
}

/* The grant's labels back, all that it placed. */
static void send_release(struct cubiemem_client *client, const Cubiemem__ArrayResponse *response)
{
    Cubiemem__Release release = CUBIEMEM__RELEASE__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    char *labels[128];
    message.release = &release;
    release.has_instance_id = release.has_grant = true;
    release.instance_id = response->instance_id;
    release.grant = response->grant;
    release.labels = labels;
    for (size_t i = 0; i < response->n_arrays;) {
        release.n_labels = 0;
        while (i < response->n_arrays && release.n_labels < 128) {
            labels[release.n_labels++] = response->arrays[i++]->label;
        }
        (void)client_tell(client, &message);
    }
}

/* ------------------------------------------------------------ grants */

static int drop_replaced(struct grant *grant)
{
    struct cubiemem_instance *instance = grant->instance;
    const Cubiemem__ArrayResponse *message = grant->message;
    struct block_view *hint = NULL;
    grant->closed = calloc(message->n_dropped_blocks + 1, sizeof *grant->closed);
    if (grant->closed == NULL) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to apply a grant");
    }
    int first = CUBIEMEM_OK;
    for (size_t i = 0; i < message->n_dropped_blocks; i++) {
        struct block_view *block = find_block(instance->blocks, message->dropped_blocks[i], &hint);
        if (block == NULL) { /* released, and the grant was made before that was heard */
            grant->closed[grant->n_closed++] = message->dropped_blocks[i];
            continue;
        }
        bool legacy = block->legacy;
        uint64_t id = block->id;
        hint = NULL;
        forget_arrays_in(instance, block);
        int status = drop_block(instance, block, &grant->loose);
        if (status == CUBIEMEM_OK && legacy) {
            grant->closed[grant->n_closed++] = id;
        }
        first = first != CUBIEMEM_OK ? first : status;
    }
    return first;
}

static int map_new(struct grant *grant)
{
    const Cubiemem__ArrayResponse *message = grant->message;
    struct block_view *hint = NULL;
    struct block_view **last = &grant->fresh;
    if (message->device_uuid != NULL && message->n_blocks > 0 &&
        strcmp(message->device_uuid, grant->client->context.uuid) != 0) {
        return failure_set(CUBIEMEM_DEVICE_MISMATCH,
                           "memory of device %.47s was granted, and this process uses %s",
                           message->device_uuid, grant->client->context.uuid);
    }
    for (size_t i = 0; i < message->n_blocks; i++) {
        const Cubiemem__Block *description = message->blocks[i];
        if (find_block(grant->instance->blocks, description->block_id, &hint) != NULL) {
            continue; /* stays as it is */
        }
        int status = block_map(&grant->client->context, description,
                               grant->client->device.granularity, grant->incoming, &grant->loose,
                               last);
        if (status != CUBIEMEM_OK) {
            return status;
        }
        last = &(*last)->next;
    }
    return CUBIEMEM_OK;
}

/* What was registered before is kept, but for one that has to come as zeros. */
static int place_pinned(struct grant *grant, const Cubiemem__ArrayPlacement *from,
                        struct placement *place)
{
    struct placement *before =
        from->zeroed ? NULL : placements_find(&grant->instance->held, from->label);
    uint64_t nbytes = place->array.nbytes;
    if (nbytes == 0) {
        return CUBIEMEM_OK;
    }
    if (before != NULL && before->pinned != NULL && before->pinned->nbytes == nbytes) {
        place->pinned = before->pinned;
    } else {
        int status = pinned_create(&grant->client->context, nbytes, &place->pinned);
        if (status != CUBIEMEM_OK) {
            return status;
        }
    }
    place->pinned->refs++;
    place->array.pointer = place->pinned->memory;
    return CUBIEMEM_OK;
}

static int place_device(struct grant *grant, const Cubiemem__ArrayPlacement *from,
                        struct placement *place, struct block_view **hint)
{
    if (from->block_id == 0) {
        return from->nbytes == 0
                   ? CUBIEMEM_OK
                   : failure_set(CUBIEMEM_INTERNAL, "array %s was granted without memory",
                                 from->label);
    }
    struct block_view *block = find_block(grant->fresh, from->block_id, hint);
    if (block == NULL) {
        block = find_block(grant->instance->blocks, from->block_id, hint);
    }
    if (block == NULL || from->offset > block->size || from->nbytes > block->size - from->offset) {
        return failure_set(CUBIEMEM_INTERNAL, "array %s was granted in a block that does not hold "
                                              "it", from->label);
    }
    place->block = block;
    place->array.block_id = block->id;
    place->array.offset = from->offset;
    if (from->nbytes > 0) {
        place->array.pointer = (void *)(uintptr_t)(block->address + from->offset);
    }
    return CUBIEMEM_OK;
}

static int place_array(struct grant *grant, const Cubiemem__ArrayPlacement *from,
                       struct placement *place, struct block_view **hint)
{
    int dtype = 0;
    if (from->label == NULL || strlen(from->label) > LIMIT_LABEL ||
        from->n_shape > CUBIEMEM_MAX_RANK || from->dtype == NULL ||
        !dtype_from_name(from->dtype, &dtype)) {
        return failure_set(CUBIEMEM_INTERNAL, "the daemon described an array that cannot be");
    }
    place->label = strdup(from->label);
    if (place->label == NULL) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to apply a grant");
    }
    place->array = (struct cubiemem_array){
        .size = sizeof place->array,
        .nbytes = from->nbytes,
        .dtype = dtype,
        .memory = from->memory == CUBIEMEM__MEMORY__PINNED ? CUBIEMEM_PINNED : CUBIEMEM_DEVICE,
        .rank = (uint32_t)from->n_shape,
        .grant = grant->message->grant,
    };
    if (from->n_shape > 0) {
        memcpy(place->array.shape, from->shape, from->n_shape * sizeof *from->shape);
    }
    return place->array.memory == CUBIEMEM_PINNED ? place_pinned(grant, from, place)
                                                  : place_device(grant, from, place, hint);
}

static int place_all(struct grant *grant)
{
    const Cubiemem__ArrayResponse *message = grant->message;
    struct block_view *hint = NULL;
    if (!placements_init(&grant->placements, message->n_arrays)) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to apply a grant");
    }
    grant->placements.n = 0;
    for (size_t i = 0; i < message->n_arrays; i++) {
        struct placement *place = &grant->placements.items[grant->placements.n++];
        int status = place_array(grant, message->arrays[i], place, &hint);
        if (status != CUBIEMEM_OK) {
            return status;
        }
    }
    placements_sort(&grant->placements);
    if (placements_have_twins(&grant->placements)) {
        return failure_set(CUBIEMEM_INTERNAL, "the daemon placed one label twice");
    }
    return CUBIEMEM_OK;
}

/* Everything is mapped and placed: the labels change hands. */
static int commit(struct grant *grant, struct cubiemem_response **response_p)
{
    struct cubiemem_instance *instance = grant->instance;
    struct placements replaced;
    struct cubiemem_response *response = response_create(grant->message, &grant->placements);
    if (response == NULL) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to apply a grant");
    }
    if (!placements_merge(&instance->held, &grant->placements, &replaced)) {
        cubiemem_response_free(response);
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to apply a grant");
    }
    placements_finish(&replaced, &grant->client->context);
    struct block_view **last = &instance->blocks;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = grant->fresh;
    grant->fresh = NULL;
    *response_p = response;
    return CUBIEMEM_OK;
}

/* Undo what is mapped, and let go of the labels. The record of the failure is
 * the first one's, whatever goes wrong here. */
static void reject(struct grant *grant)
{
    const Cubiemem__ArrayResponse *message = grant->message;
    struct cubiemem_instance *instance = grant->instance;
    failure_hold(true);
    placements_finish(&grant->placements, &grant->client->context);
    while (grant->fresh != NULL) {
        struct block_view *next = grant->fresh->next;
        if (block_unmap(&grant->client->context, grant->fresh, &grant->loose) != CUBIEMEM_OK) {
            grant->fresh->next = instance->blocks; /* to be tried again with the rest */
            instance->blocks = grant->fresh;
        }
        grant->fresh = next;
    }
    const char **labels = calloc(message->n_arrays + 1, sizeof *labels);
    for (size_t i = 0; labels != NULL && i < message->n_arrays; i++) {
        labels[i] = message->arrays[i]->label != NULL ? message->arrays[i]->label : "";
    }
    if (labels != NULL) {
        (void)holding_drop(instance, labels, message->n_arrays);
    }
    free(labels);
    failure_hold(false);
}

static int apply_locked(struct grant *grant, struct cubiemem_response **response_p)
{
    int status = drop_replaced(grant);
    if (status == CUBIEMEM_OK && grant->incoming->fds_lost) {
        status = failure_set(CUBIEMEM_NO_FDS,
                             "no file descriptors are left to receive the memory: raise "
                             "RLIMIT_NOFILE (ulimit -n) and queue the arrays again");
    }
    if (status == CUBIEMEM_OK) {
        status = map_new(grant);
    }
    if (status == CUBIEMEM_OK) {
        status = place_all(grant);
    }
    if (status == CUBIEMEM_OK) {
        status = commit(grant, response_p);
    }
    return status;
}

/* The instance, with its owner in use so that neither goes away. Books held;
 * NULL if there is none. */
static struct cubiemem_instance *use_instance(struct cubiemem_client *client, uint64_t id)
{
    struct cubiemem_instance *instance = client_instance(client, id);
    while (instance != NULL && instance->owner->evicting) {
        pthread_cond_wait(&client->changed, &client->books);
        instance = client_instance(client, id);
    }
    if (instance != NULL) {
        instance->owner->n_users++;
    }
    return instance;
}

static void unuse_instance(struct cubiemem_instance *instance)
{
    instance->owner->n_users--;
    pthread_cond_broadcast(&instance->client->changed);
}

/* Does the grant put something else in the place of a pinned array? */
static bool replaces_pinned(const struct grant *grant)
{
    const Cubiemem__ArrayResponse *message = grant->message;
    for (size_t i = 0; i < message->n_arrays; i++) {
        const Cubiemem__ArrayPlacement *array = message->arrays[i];
        const struct placement *before =
            array->label != NULL ? placements_find(&grant->instance->held, array->label) : NULL;
        if (before != NULL && before->pinned != NULL &&
            (array->memory != CUBIEMEM__MEMORY__PINNED || array->zeroed ||
             array->nbytes != before->pinned->nbytes)) {
            return true;
        }
    }
    return false;
}

static bool replaces(const struct grant *grant)
{
    return grant->message->n_dropped_blocks > 0 || replaces_pinned(grant);
}

/* Nobody may work in what is unmapped. Who calls allocate knows what he replaces;
 * that of another member comes at any time, so what is begun has to end, and nothing
 * begins before the grant is taken. Books held; open while it waits. False: the client
 * is being closed, and the work has not ended. */
static bool await_work(struct cubiemem_instance *instance)
{
    struct cubiemem_client *client = instance->client;
    bool is_own = instance->group->committing, ended;
    failure_hold(true); /* that a slice of the wait is over is nobody's failure */
    do { /* again if an earlier grant was taken meanwhile, which opens it */
        pthread_mutex_unlock(&client->books);
        do {
            int64_t look_again = clock_deadline(CLOCK_SECOND_NS / 10);
            /* A dead context ends the wait, too: then nothing runs. */
            ended = (is_own || marks_close(instance->owner, look_again)) &&
                    marks_wait(instance->owner, look_again) != CUBIEMEM_TIMEOUT;
        } while (!ended && !channel_is_closing(&client->channel));
        pthread_mutex_lock(&client->books);
    } while (ended && !is_own && !marks_are_closed(instance->owner));
    failure_hold(false);
    return ended;
}

/* The response and what it describes change in one step: who took one in between would
 * be let into memory that is there no more. Of earlier ones that nobody took it says, too,
 * where their arrays are. Books held. */
static int keep_response(struct cubiemem_instance *instance, struct cubiemem_response *response,
                         int status)
{
    struct cubiemem_response *before = instance->response;
    if (status == CUBIEMEM_OK && before != NULL &&
        !placements_add_described(&response->arrays, &before->arrays)) {
        /* Then its place is not known, and it has to be asked for anew. */
        status = failure_set(CUBIEMEM_HOST_MEMORY, "no memory to keep a response");
        cubiemem_response_free(response);
        response = NULL;
        atomic_store(&instance->bereft, true);
    }
    if (response != NULL) {
        cubiemem_response_free(before);
        instance->response = response;
    }
    instance->response_status = status;
    return status;
}

bool holding_has_untaken(struct cubiemem_instance *instance)
{
    struct cubiemem_response *response = instance->response;
    if (response == NULL || response->arrays.n == 0) {
        return false; /* a mere notice of others' grant stays */
    }
    placements_keep_held(&response->arrays, &instance->held);
    if (response->arrays.n == 0) {
        instance->response = NULL;
        cubiemem_response_free(response);
        return false;
    }
    return true;
}

/* Books held, but for while it waits. What is rejected takes away what the grant left
 * in its place, too: that is waited for as what is replaced. */
static int apply_and_keep(struct grant *grant, struct cubiemem_response **response_p)
{
    struct cubiemem_instance *instance = grant->instance;
    struct cubiemem_response *response = NULL;
    bool is_answer = response_p != NULL, takes_away = replaces(grant);
    if (takes_away && !await_work(instance)) {
        return failure_set(CUBIEMEM_DISCONNECTED, "the client is closed");
    }
    if (takes_away) {
        atomic_store(&instance->bereft, true);
    }
    instance->grant = grant->message->grant;
    int status = apply_locked(grant, &response);
    if (status != CUBIEMEM_OK) {
        failure_hold(true);
        if (!takes_away && !is_answer) {
            (void)await_work(instance); /* closed in between: the memory stays mapped */
        }
        failure_hold(false);
        atomic_store(&instance->bereft, instance->bereft || instance->held.n > 0);
        reject(grant);
    }
    segment_list_release(&grant->loose, &grant->client->context);
    if (!is_answer) {
        return keep_response(instance, response, status);
    }
    if (status == CUBIEMEM_OK) {
        atomic_store(&instance->bereft, instance->bereft && holding_has_untaken(instance));
        *response_p = response;
    }
    return status;
}

bool holding_waits(struct cubiemem_client *client, const struct incoming *event)
{
    const Cubiemem__DaemonMessage *message = event->message;
    if (message->response == NULL && message->yield == NULL) {
        return false;
    }
    pthread_mutex_lock(&client->books);
    const struct cubiemem_instance *instance =
        client_instance(client, message->response != NULL ? message->response->instance_id
                                                          : message->yield->instance_id);
    bool waits = instance != NULL && !instance->group->committing &&
                 marks_have_begun(instance->owner) &&
                 (message->response == NULL || instance->held.n > 0);
    pthread_mutex_unlock(&client->books);
    return waits;
}

int holding_apply(struct cubiemem_client *client, struct incoming *incoming,
                  struct cubiemem_response **response_p)
{
    struct grant grant = {
        .client = client,
        .message = incoming->message->response,
        .incoming = incoming,
    };
    pthread_mutex_lock(&client->books);
    grant.instance = use_instance(client, grant.message->instance_id);
    if (grant.instance == NULL) {
        pthread_mutex_unlock(&client->books);
        return failure_set(CUBIEMEM_NOT_REGISTERED, "the instance is gone");
    }
    int status = apply_and_keep(&grant, response_p);
    unuse_instance(grant.instance);
    pthread_mutex_unlock(&client->books);

    failure_hold(true);
    send_give_back(client, &grant.loose, grant.message, grant.closed, grant.n_closed, 0);
    if (status != CUBIEMEM_OK) {
        send_release(client, grant.message);
    }
    failure_hold(false);
    segment_list_finish(&grant.loose);
    free(grant.closed);
    return status;
}

void holding_yield(struct cubiemem_client *client, const Cubiemem__Yield *yield)
{
    struct segment_list loose = {0};
    struct block_view *hint = NULL;
    pthread_mutex_lock(&client->books);
    struct cubiemem_instance *instance = use_instance(client, yield->instance_id);
    uint64_t *closed = calloc(yield->n_block_ids + 1, sizeof *closed);
    size_t n_closed = 0;
    /* Without memory nothing is unmapped, and the answer names no segment. */
    if (instance != NULL && closed != NULL && await_work(instance)) {
        /* It may be refused in the end, and the arrays are gone all the same. */
        atomic_store(&instance->bereft, true);
        for (size_t i = 0; i < yield->n_block_ids; i++) {
            struct block_view *block = find_block(instance->blocks, yield->block_ids[i], &hint);
            if (block == NULL) { /* as in drop_replaced() */
                closed[n_closed++] = yield->block_ids[i];
                continue;
            }
            bool legacy = block->legacy;
            hint = NULL;
            forget_arrays_in(instance, block);
            if (drop_block(instance, block, &loose) == CUBIEMEM_OK && legacy) {
                closed[n_closed++] = yield->block_ids[i];
            }
        }
        segment_list_release(&loose, &client->context);
    }
    if (instance != NULL) {
        unuse_instance(instance);
    }
    pthread_mutex_unlock(&client->books);
    send_give_back(client, &loose, NULL, closed, n_closed, yield->yield_id);
    segment_list_finish(&loose);
    free(closed);
}
