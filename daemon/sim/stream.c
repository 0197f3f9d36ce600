/*
 * stream - streams, events and captures
 *
 * A stream is a lane of its context's engine. The legacy default stream (null and
 * 0x1) is lane 0; each thread that uses 0x2 has a stream of its own. An event is
 * a point in time, (lane, count), so waiting for one costs no operation of its
 * own unless the stream has to wait for others first.
 *
 * A stream under capture records nothing here: its operations are accepted and
 * dropped, and the graph is a token, since nobody launches graphs on the simulated
 * device. What a capture forbids is refused and invalidates it, by the rules of
 * the thread's and the capture's mode, so that code that must not disturb its
 * caller's capture can be tested.
 */
#include "stream.h"

#include <pthread.h>
#include <stdlib.h>

#include "call.h"
#include "context.h"
#include "table.h"

struct stream {
    struct link *link;
    uint64_t link_number;
    uint32_t lane;
    uint64_t capture; /* its number; 0: none */
    bool origin, invalidated;
    CUstreamCaptureMode mode;
    pthread_t thread; /* that began the capture */
};

struct event {
    struct link *link; /* NULL: its context is gone */
    uint32_t lane, number;
    bool recorded;
    uint64_t capture;
};

/* A thread's own default stream. */
struct thread_stream {
    uint64_t link_number;
    uint64_t handle;
};

static struct table streams, events;
static struct stream legacy[N_GPUS];
static uint64_t last_capture;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

/* --- which stream --- */

static void stream_free(struct stream *stream)
{
    stream->link->lanes[stream->lane].used = false;
    link_put(stream->link);
    free(stream);
}

static void thread_end(void *value)
{
    struct thread_stream *own = value;
    struct stream *stream;

    sim_lock();
    stream = table_remove(&streams, own->handle);
    if (stream) {
        stream_free(stream);
    }
    sim_unlock();
    free(own);
}

static void thread_init(void)
{
    pthread_key_create(&thread_key, thread_end);
}

static CUresult stream_make(struct link *link, bool blocking, uint64_t *handle_p)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    uint64_t handle = stream ? table_add(&streams, stream) : 0;
    uint32_t lane = handle ? link_take_lane(link, blocking) : QUEUE_N_LANES;

    if (lane == QUEUE_N_LANES) {
        if (handle) {
            table_remove(&streams, handle);
        }
        free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    link_get(link);
    *stream = (struct stream){.link = link, .link_number = link->number, .lane = lane};
    *handle_p = handle;
    return CUDA_SUCCESS;
}

static CUresult per_thread_stream(struct link *link, struct stream **stream_p)
{
    struct thread_stream *own;
    CUresult result = CUDA_SUCCESS;

    pthread_once(&thread_once, thread_init);
    own = pthread_getspecific(thread_key);
    if (!own) {
        own = calloc(1, sizeof(*own));
        if (!own || pthread_setspecific(thread_key, own) != 0) {
            free(own);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (own->link_number != link->number) {
        struct stream *last = table_remove(&streams, own->handle);

        if (last) {
            stream_free(last);
        }
        own->link_number = 0;
        result = stream_make(link, true, &own->handle);
    }
    if (result == CUDA_SUCCESS) {
        own->link_number = link->number;
        *stream_p = table_find(&streams, own->handle);
    }
    return result;
}

static CUresult stream_find(CUstream handle, struct stream **stream_p)
{
    struct stream *stream;
    struct link *link;
    CUresult result = context_link(&link);

    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (handle == CU_STREAM_PER_THREAD) {
            return per_thread_stream(link, stream_p);
        }
        stream = &legacy[link->gpu->number];
        if (stream->link_number != link->number) {
            *stream = (struct stream){.link = link, .link_number = link->number,
                                      .lane = LINK_LEGACY_LANE};
        }
    } else {
        stream = table_find(&streams, (uintptr_t)handle);
    }
    if (!stream) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *stream_p = stream;
    return CUDA_SUCCESS;
}

static bool is_legacy(const struct stream *stream)
{
    return stream->lane == LINK_LEGACY_LANE;
}

/* --- captures --- */

static void invalidate(uint64_t capture)
{
    struct stream *stream;

    for (uint32_t at = 0; (stream = table_next(&streams, &at));) {
        if (stream->capture == capture) {
            stream->invalidated = true;
        }
    }
}

CUresult capture_allows_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    const struct stream *stream;

    for (uint32_t at = 0; (stream = table_next(&streams, &at));) {
        bool own = stream->capture && pthread_equal(stream->thread, pthread_self()) &&
                   stream->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool global = stream->capture && stream->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

        if ((own && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
            (global && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
            invalidate(stream->capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

/* Work on the legacy stream would have to be ordered with a capture. */
static CUresult legacy_is_allowed(const struct stream *stream)
{
    const struct stream *other;

    if (!is_legacy(stream)) {
        return CUDA_SUCCESS;
    }
    for (uint32_t at = 0; (other = table_next(&streams, &at));) {
        if (other->capture && other->link == stream->link &&
            stream->link->lanes[other->lane].blocking) {
            invalidate(other->capture);
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    return CUDA_SUCCESS;
}

CUresult capture_begin(CUstream handle, CUstreamCaptureMode mode)
{
    struct stream *stream;
    CUresult result = stream_find(handle, &stream);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (is_legacy(stream)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (stream->capture || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return stream->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_VALUE;
    }
    stream->capture = ++last_capture;
    stream->mode = mode;
    stream->origin = true;
    stream->invalidated = false;
    stream->thread = pthread_self();
    return CUDA_SUCCESS;
}

CUresult capture_end(CUstream handle, CUgraph *graph_p)
{
    static char graph;
    struct stream *stream, *other;
    uint64_t capture;
    bool invalidated;
    CUresult result = stream_find(handle, &stream);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!stream->capture || !stream->origin) {
        return stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNMATCHED : CUDA_ERROR_ILLEGAL_STATE;
    }
    if (stream->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        !pthread_equal(stream->thread, pthread_self())) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    capture = stream->capture;
    invalidated = stream->invalidated;
    for (uint32_t at = 0; (other = table_next(&streams, &at));) {
        if (other->capture == capture) {
            other->capture = 0;
            other->origin = false;
        }
    }
    *graph_p = invalidated ? NULL : (CUgraph)&graph;
    return invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult capture_status(CUstream handle, CUstreamCaptureStatus *status_p)
{
    struct stream *stream;
    CUresult result = stream_find(handle, &stream);

    if (result == CUDA_SUCCESS) {
        result = legacy_is_allowed(stream);
    }
    if (result == CUDA_SUCCESS) {
        *status_p = !stream->capture      ? CU_STREAM_CAPTURE_STATUS_NONE
                    : stream->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                          : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    }
    return result;
}

CUresult capture_exchange_mode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = thread_mode;

    if (*mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* --- streams --- */

CUresult stream_create(unsigned int flags, CUstream *stream_p)
{
    struct link *link;
    uint64_t handle;
    CUresult result = context_link(&link);

    if (result == CUDA_SUCCESS && flags & ~(unsigned int)CU_STREAM_NON_BLOCKING) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = stream_make(link, !(flags & CU_STREAM_NON_BLOCKING), &handle);
    }
    if (result == CUDA_SUCCESS) {
        *stream_p = (CUstream)(uintptr_t)handle;
    }
    return result;
}

CUresult stream_destroy(CUstream handle)
{
    struct stream *stream = table_remove(&streams, (uintptr_t)handle);

    if (!stream) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (stream->capture) {
        invalidate(stream->capture);
    }
    stream_free(stream);
    return CUDA_SUCCESS;
}

CUresult stream_submit(CUstream handle, struct queue_op op)
{
    struct stream *stream;
    uint32_t number;
    CUresult result = stream_find(handle, &stream);

    if (result == CUDA_SUCCESS) {
        result = legacy_is_allowed(stream);
    }
    if (result == CUDA_SUCCESS && stream->capture) {
        return stream->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    }
    return result == CUDA_SUCCESS ? link_submit(stream->link, stream->lane, op, &number) : result;
}

/* The point at which all that a stream now has to do is done. */
static CUresult stream_mark(const struct stream *stream, uint32_t *number_p)
{
    struct link *link = stream->link;
    bool alone = is_legacy(stream) ? !link_legacy_is_busy(link)
                                   : !link->lanes[stream->lane].blocking ||
                                         link_lane_reached(link, LINK_LEGACY_LANE,
                                                           link_lane_end(link, LINK_LEGACY_LANE));

    if (alone) {
        *number_p = link_lane_end(link, stream->lane);
        return link_error(link);
    }
    return link_submit(link, stream->lane, (struct queue_op){.kind = OP_NOTHING}, number_p);
}

static CUresult wait_for(struct link *link, uint32_t lane, uint32_t number)
{
    CUresult result;

    link_get(link);
    sim_unlock();
    result = link_wait(link, &link->queue->lanes[lane].completed, number);
    sim_lock();
    link_put(link);
    return result;
}

/* A stream whose completion may be asked for now. */
static CUresult find_to_wait(CUstream handle, struct stream **stream_p)
{
    CUresult result = stream_find(handle, stream_p);

    if (result == CUDA_SUCCESS) {
        result = legacy_is_allowed(*stream_p);
    }
    if (result == CUDA_SUCCESS && (*stream_p)->capture) {
        invalidate((*stream_p)->capture);
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult stream_synchronize(CUstream handle)
{
    struct stream *stream;
    uint32_t number;
    CUresult result = find_to_wait(handle, &stream);

    if (result == CUDA_SUCCESS) {
        result = stream_mark(stream, &number);
    }
    return result == CUDA_SUCCESS ? wait_for(stream->link, stream->lane, number) : result;
}

CUresult stream_query(CUstream handle)
{
    struct stream *stream;
    bool busy;
    CUresult result = find_to_wait(handle, &stream);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    busy = is_legacy(stream) ? link_legacy_is_busy(stream->link)
                             : !link_lane_reached(stream->link, stream->lane,
                                                  link_lane_end(stream->link, stream->lane));
    result = link_error(stream->link);
    if (result == CUDA_SUCCESS) {
        __atomic_load_n(&stream->link->host_order, __ATOMIC_ACQUIRE);
        result = busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    }
    return result;
}

CUresult stream_synchronize_all(void)
{
    uint32_t numbers[QUEUE_N_LANES];
    struct link *link;
    CUresult result = context_link(&link);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = capture_allows_unsafe();
    for (uint32_t i = 0; i < QUEUE_N_LANES; i++) {
        numbers[i] = link_lane_end(link, i);
    }
    link_get(link);
    for (uint32_t i = 0; result == CUDA_SUCCESS && i < QUEUE_N_LANES; i++) {
        result = wait_for(link, i, numbers[i]);
    }
    link_put(link);
    return result;
}

/* --- events --- */

static CUresult event_find(CUevent handle, struct event **event_p)
{
    struct event *event = table_find(&events, (uintptr_t)handle);

    if (!event) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!event->link) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *event_p = event;
    return CUDA_SUCCESS;
}

CUresult event_create(CUevent *event_p)
{
    struct link *link;
    struct event *event;
    uint64_t handle;
    CUresult result = context_link(&link);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    event = calloc(1, sizeof(*event));
    handle = event ? table_add(&events, event) : 0;
    if (!handle) {
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    link_get(link);
    event->link = link;
    *event_p = (CUevent)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult event_destroy(CUevent handle)
{
    struct event *event = table_remove(&events, (uintptr_t)handle);

    if (!event) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->link) {
        link_put(event->link);
    }
    free(event);
    return CUDA_SUCCESS;
}

CUresult event_record(CUevent handle, CUstream stream_handle)
{
    struct event *event;
    struct stream *stream;
    uint64_t capture = 0;
    uint32_t lane = 0;
    uint32_t number = 0;
    CUresult result = event_find(handle, &event);

    if (result == CUDA_SUCCESS) {
        result = stream_find(stream_handle, &stream);
    }
    if (result == CUDA_SUCCESS && stream->link != event->link) {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    if (result == CUDA_SUCCESS) {
        result = legacy_is_allowed(stream);
    }
    if (result == CUDA_SUCCESS) {
        lane = stream->lane;
        capture = stream->capture;
        result = capture ? CUDA_SUCCESS : stream_mark(stream, &number);
    }
    /* The lock may have been given up, and the event destroyed. */
    if (result == CUDA_SUCCESS) {
        result = event_find(handle, &event);
    }
    if (result == CUDA_SUCCESS) {
        event->lane = lane;
        event->number = number;
        event->capture = capture;
        event->recorded = true;
    }
    return result;
}

/* An event that may be asked. */
static CUresult find_to_ask(CUevent handle, struct event **event_p)
{
    CUresult result = event_find(handle, event_p);

    if (result == CUDA_SUCCESS && (*event_p)->capture) {
        invalidate((*event_p)->capture);
        result = CUDA_ERROR_CAPTURED_EVENT;
    }
    return result;
}

CUresult event_query(CUevent handle)
{
    struct event *event;
    CUresult result = find_to_ask(handle, &event);

    if (result == CUDA_SUCCESS && event->recorded &&
        !link_lane_reached(event->link, event->lane, event->number)) {
        result = CUDA_ERROR_NOT_READY;
    }
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) {
        CUresult error = link_error(event->link);

        __atomic_load_n(&event->link->host_order, __ATOMIC_ACQUIRE);
        result = error != CUDA_SUCCESS ? error : result;
    }
    return result;
}

CUresult event_synchronize(CUevent handle)
{
    struct event *event;
    CUresult result = find_to_ask(handle, &event);

    return result == CUDA_SUCCESS && event->recorded
               ? wait_for(event->link, event->lane, event->number)
               : result;
}

/* The stream takes part in the capture in which the event was recorded. */
static CUresult join_capture(struct stream *stream, const struct event *event)
{
    const struct stream *origin;

    if (stream->capture && stream->capture != event->capture) {
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    for (uint32_t at = 0; (origin = table_next(&streams, &at));) {
        if (origin->capture == event->capture && origin->origin && stream != origin) {
            stream->capture = origin->capture;
            stream->mode = origin->mode;
            stream->thread = origin->thread;
            stream->invalidated = origin->invalidated;
        }
    }
    return CUDA_SUCCESS;
}

CUresult stream_wait_event(CUstream stream_handle, CUevent handle)
{
    struct event *event;
    struct stream *stream;
    uint32_t number;
    CUresult result = event_find(handle, &event);

    if (result == CUDA_SUCCESS) {
        result = stream_find(stream_handle, &stream);
    }
    if (result == CUDA_SUCCESS) {
        result = legacy_is_allowed(stream);
    }
    if (result != CUDA_SUCCESS || !event->recorded) {
        return result;
    }
    if (event->capture) {
        return join_capture(stream, event);
    }
    if (stream->capture) {
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (stream->link != event->link) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (link_lane_reached(event->link, event->lane, event->number) ||
        event->lane == stream->lane) {
        return CUDA_SUCCESS;
    }
    return link_submit(stream->link, stream->lane,
                       (struct queue_op){.kind = OP_WAIT_LANE, .to = event->lane,
                                         .value = event->number},
                       &number);
}

/* --- the end of a context --- */

void streams_destroy(const struct link *link)
{
    struct stream *stream;
    struct event *event;

    for (uint32_t at = 0; (stream = table_next(&streams, &at));) {
        if (stream->link == link) {
            table_remove_at(&streams, at - 1);
            stream_free(stream);
        }
    }
    for (uint32_t at = 0; (event = table_next(&events, &at));) {
        if (event->link == link) {
            link_put(event->link);
            event->link = NULL;
        }
    }
}
