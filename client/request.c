/*
 * request - what an instance has queued, and the messages that carry it
 *
 * The rules of a request alone are proto/array.h's; here are only the
 * program's structs, with sizes of their own version, and the cut into packets.
 */
#include "request.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "protocol_limits.h"
#include "status.h"

#define PART_SIZE 60000u /* bytes of requests in a packet; the rest is for the envelope */

/* ------------------------------------------------------------ check */

/* The fields up to total_runs were there in the first version. */
#define REQUEST_SIZE_0 offsetof(struct cubiemem_array_request, zeroed)
#define has_field(from, field) \
    ((from)->size >= offsetof(struct cubiemem_array_request, field) + sizeof((from)->field))

static int check_struct(const struct cubiemem_array_request *first,
                        const struct cubiemem_array_request *from, size_t i)
{
    if (from->size != first->size) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "array %zu: .size is %zu, but the first's is "
                                                     "%zu", i, from->size, first->size);
    }
    if (from->label == NULL) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "array %zu has no label", i);
    }
    if (from->rank > LIMIT_RANK) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "array %.80s has %u dimensions; %u are "
                                                     "allowed", from->label, from->rank,
                           LIMIT_RANK);
    }
    if (from->rank > 0 && from->shape == NULL) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "array %.80s has no shape", from->label);
    }
    return CUBIEMEM_OK;
}

static void describe(const struct cubiemem_array_request *from, struct array *to)
{
    /* The copies are made by arrays_copy(); these are only looked at. */
    to->label = (char *)(uintptr_t)from->label;
    to->shape = (int64_t *)(uintptr_t)from->shape;
    to->rank = from->rank;
    to->dtype = from->dtype;
    to->memory = from->memory == 0 ? CUBIEMEM_DEVICE : from->memory;
    to->axis = from->chunk_axis_index;
    to->unchunkable = from->unchunkable != 0;
    to->total_runs = from->total_runs == 0 ? 1 : from->total_runs;
    to->zeroed = has_field(from, zeroed) && from->zeroed != 0;
}

static int check_all(const struct array *arrays, size_t n)
{
    size_t culprit = 0;
    const char *why = "malformed";
    int status = arrays_check(arrays, n, &culprit, &why);
    if (status == CUBIEMEM_OK) {
        return CUBIEMEM_OK;
    }
    return failure_set(status, "array %zu (%.80s): %s", culprit,
                       culprit < n ? arrays[culprit].label : "?", why);
}

int request_create(const struct cubiemem_array_request *arrays, size_t n,
                   struct request **request_p)
{
    int status = CUBIEMEM_OK;
    if (n > LIMIT_ARRAYS_PER_BATCH) {
        return failure_set(CUBIEMEM_LIMIT, "%zu arrays; a batch may have %u", n,
                           LIMIT_ARRAYS_PER_BATCH);
    }
    if (n > 0 && (arrays == NULL || arrays->size < REQUEST_SIZE_0)) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "%zu arrays, and no (or no whole) "
                                                     "cubiemem_array_request", n);
    }
    struct array *views = calloc(n + 1, sizeof *views);
    struct request *request = calloc(1, sizeof *request);
    if (views == NULL || request == NULL) {
        status = failure_set(CUBIEMEM_HOST_MEMORY, "no memory for a request of %zu arrays", n);
    }
    for (size_t i = 0; i < n && status == CUBIEMEM_OK; i++) {
        /* A program of another version has structs of another size. */
        const struct cubiemem_array_request *from =
            (const void *)((const char *)arrays + i * arrays->size);
        status = check_struct(arrays, from, i);
        if (status == CUBIEMEM_OK) {
            describe(from, &views[i]);
        }
    }
    if (status == CUBIEMEM_OK) {
        status = check_all(views, n);
    }
    if (status == CUBIEMEM_OK && n > 0) {
        request->arrays = arrays_copy(views, n);
        if (request->arrays == NULL) {
            status = failure_set(CUBIEMEM_HOST_MEMORY, "no memory for a request of %zu arrays", n);
        }
    }
    free(views);
    if (status != CUBIEMEM_OK) {
        free(request);
        return status;
    }
    atomic_init(&request->refs, 1);
    request->n = n;
    *request_p = request;
    return CUBIEMEM_OK;
}

struct request *request_ref(struct request *request)
{
    atomic_fetch_add(&request->refs, 1);
    return request;
}

struct request *request_unref(struct request *request)
{
    if (request != NULL && atomic_fetch_sub(&request->refs, 1) == 1) {
        free(request->arrays);
        free(request);
    }
    return NULL;
}

/* ---------------------------------------------------------- messages */

/* What has its default is left out: fewer bytes, and less to decode. */
static Cubiemem__ArrayRequest *encode_array(struct arena *arena, const struct array *array)
{
    Cubiemem__ArrayRequest *to = arena_alloc(arena, 1, sizeof *to);
    if (to == NULL) {
        return NULL;
    }
    cubiemem__array_request__init(to);
    to->label = array->label;
    to->dtype = (char *)(uintptr_t)dtype_name(array->dtype);
    to->n_shape = array->rank;
    to->shape = array->shape;
    to->has_memory = array->memory == CUBIEMEM_PINNED;
    to->memory = CUBIEMEM__MEMORY__PINNED;
    if (array->axis == CUBIEMEM_AXIS_NONE) {
        to->has_no_chunk_axis = to->no_chunk_axis = true;
    } else {
        to->has_chunk_axis_index = array->axis != to->chunk_axis_index;
        to->chunk_axis_index = array->axis;
    }
    to->has_unchunkable = to->unchunkable = array->unchunkable;
    to->has_total_runs = array->total_runs != to->total_runs;
    to->total_runs = array->total_runs;
    to->has_zeroed = to->zeroed = array->zeroed;
    return to;
}

/* Where the next array goes. */
struct writer {
    struct parts *parts;
    size_t capacity;   /* of parts->messages */
    uint64_t trigger;  /* 0: QueueRequests */
    size_t n_items;
    size_t size;       /* bytes in the current part */
    Cubiemem__ArrayRequests *requests; /* current; NULL: none in this part yet */
};

static bool new_part(struct writer *writer)
{
    struct parts *parts = writer->parts;
    if (parts->n == writer->capacity) {
        size_t capacity = writer->capacity == 0 ? 4 : writer->capacity * 2;
        Cubiemem__ClientMessage *grown =
            arena_alloc(&parts->arena, capacity, sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        if (parts->n > 0) {
            memcpy(grown, parts->messages, parts->n * sizeof *grown);
        }
        parts->messages = grown;
        writer->capacity = capacity;
    }
    Cubiemem__ClientMessage *message = &parts->messages[parts->n];
    cubiemem__client_message__init(message);
    if (writer->trigger != 0) {
        message->allocate = arena_alloc(&parts->arena, 1, sizeof *message->allocate);
        if (message->allocate == NULL) {
            return false;
        }
        cubiemem__allocate__init(message->allocate);
        message->allocate->has_instance_id = true;
        message->allocate->instance_id = writer->trigger;
        message->allocate->requests = arena_alloc(&parts->arena, writer->n_items + 1,
                                                  sizeof *message->allocate->requests);
        if (message->allocate->requests == NULL) {
            return false;
        }
    } else {
        message->queue_requests = arena_alloc(&parts->arena, 1, sizeof *message->queue_requests);
        if (message->queue_requests == NULL) {
            return false;
        }
        cubiemem__queue_requests__init(message->queue_requests);
    }
    parts->n++;
    writer->size = 0;
    writer->requests = NULL;
    return true;
}

/* Open an item in the current part. */
static bool open_item(struct writer *writer, const struct request_item *item)
{
    Cubiemem__ClientMessage *message = &writer->parts->messages[writer->parts->n - 1];
    Cubiemem__ArrayRequests *requests = arena_alloc(&writer->parts->arena, 1, sizeof *requests);
    if (requests == NULL) {
        return false;
    }
    cubiemem__array_requests__init(requests);
    requests->has_instance_id = true;
    requests->instance_id = item->instance_id;
    requests->arrays = arena_alloc(&writer->parts->arena, item->request->n + 1,
                                   sizeof *requests->arrays);
    if (requests->arrays == NULL) {
        return false;
    }
    if (message->allocate != NULL) {
        message->allocate->requests[message->allocate->n_requests++] = requests;
    } else {
        message->queue_requests->requests = requests;
    }
    writer->size += 16;
    writer->requests = requests;
    return true;
}

static bool write_item(struct writer *writer, const struct request_item *item)
{
    if (writer->size > PART_SIZE - 1024 && !new_part(writer)) {
        return false;
    }
    if (!open_item(writer, item)) {
        return false;
    }
    for (size_t i = 0; i < item->request->n; i++) {
        Cubiemem__ArrayRequest *array = encode_array(&writer->parts->arena,
                                                     &item->request->arrays[i]);
        if (array == NULL) {
            return false;
        }
        /* No less than it takes: a varint has at most 10 bytes. */
        size_t size = strlen(array->label) + 10 * array->n_shape + 96;
        if (writer->size + size > PART_SIZE &&
            (!new_part(writer) || !open_item(writer, item))) {
            return false;
        }
        writer->requests->arrays[writer->requests->n_arrays++] = array;
        writer->size += size;
    }
    return true;
}

static int write_all(struct writer *writer, const struct request_item *items)
{
    *writer->parts = (struct parts){0};
    bool written = new_part(writer);
    for (size_t i = 0; i < writer->n_items && written; i++) {
        written = write_item(writer, &items[i]);
    }
    if (!written) {
        parts_finish(writer->parts);
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to encode a request");
    }
    return CUBIEMEM_OK;
}

int parts_allocate(struct parts *parts, uint64_t trigger, const struct cubiemem_wait *wait,
                   const struct request_item *items, size_t n_items)
{
    struct writer writer = {.parts = parts, .trigger = trigger, .n_items = n_items};
    int status = write_all(&writer, items);
    if (status == CUBIEMEM_OK && wait != NULL) {
        Cubiemem__Allocate *allocate = parts->messages[0].allocate;
        allocate->has_wait_ns = allocate->has_max_chunks = true;
        allocate->wait_ns = wait->timeout_ns;
        allocate->max_chunks = wait->max_chunks;
    }
    return status;
}

int parts_queue(struct parts *parts, const struct request_item *item)
{
    struct writer writer = {.parts = parts, .n_items = 1};
    return write_all(&writer, item);
}

void parts_finish(struct parts *parts)
{
    arena_finish(&parts->arena);
    *parts = (struct parts){0};
}
