/*
 * event - points in the time of a stream
 *
 * An event is a point in time, (lane, count), so waiting for one costs no
 * operation of its own unless the stream has to wait for others first. It
 * outlives its stream, and its context as a handle that is told so.
 */
#include <stdlib.h>

#include "context.h"
#include "stream_inner.h"
#include "table.h"

struct event {
    struct link *link; /* NULL: its context is gone */
    uint32_t lane, number;
    bool recorded;
    uint64_t capture;
};

static struct table events;

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
        result = capture_allows(stream);
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
        capture_invalidate((*event_p)->capture);
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
               ? stream_wait(event->link, event->lane, event->number)
               : result;
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
        result = capture_allows(stream);
    }
    if (result != CUDA_SUCCESS || !event->recorded) {
        return result;
    }
    if (event->capture) {
        return capture_join(stream, event->capture);
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

void events_destroy(const struct link *link)
{
    struct event *event;

    for (uint32_t at = 0; (event = table_next(&events, &at));) {
        if (event->link == link) {
            link_put(event->link);
            event->link = NULL;
        }
    }
}
