/*
 * stream - lanes of work and who may use them
 *
 * A stream is a lane of its context's engine. The legacy default stream (null and
 * 0x1) is lane 0; each thread that uses 0x2 has a stream of its own. Points in
 * a stream's time are event.c's affair, streams under capture capture.c's.
 */
#include "stream_inner.h"

#include <pthread.h>
#include <stdlib.h>

#include "call.h"
#include "context.h"
#include "table.h"

/* A thread's own default stream. */
struct thread_stream {
    uint64_t link_number;
    uint64_t handle;
};

static struct table streams;
static struct stream legacy[N_GPUS];
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

CUresult stream_find(CUstream handle, struct stream **stream_p)
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

bool stream_is_legacy(const struct stream *stream)
{
    return stream->lane == LINK_LEGACY_LANE;
}

struct stream *stream_next(uint32_t *at)
{
    return table_next(&streams, at);
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
        capture_invalidate(stream->capture);
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
        result = capture_allows(stream);
    }
    if (result == CUDA_SUCCESS && stream->capture) {
        return stream->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    }
    return result == CUDA_SUCCESS ? link_submit(stream->link, stream->lane, op, &number) : result;
}

CUresult stream_mark(const struct stream *stream, uint32_t *number_p)
{
    struct link *link = stream->link;
    bool alone = stream_is_legacy(stream) ? !link_legacy_is_busy(link)
                                   : !link->lanes[stream->lane].blocking ||
                                         link_lane_reached(link, LINK_LEGACY_LANE,
                                                           link_lane_end(link, LINK_LEGACY_LANE));

    if (alone) {
        *number_p = link_lane_end(link, stream->lane);
        return link_error(link);
    }
    return link_submit(link, stream->lane, (struct queue_op){.kind = OP_NOTHING}, number_p);
}

CUresult stream_wait(struct link *link, uint32_t lane, uint32_t number)
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
        result = capture_allows(*stream_p);
    }
    if (result == CUDA_SUCCESS && (*stream_p)->capture) {
        capture_invalidate((*stream_p)->capture);
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
    return result == CUDA_SUCCESS ? stream_wait(stream->link, stream->lane, number) : result;
}

CUresult stream_query(CUstream handle)
{
    struct stream *stream;
    bool busy;
    CUresult result = find_to_wait(handle, &stream);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    busy = stream_is_legacy(stream) ? link_legacy_is_busy(stream->link)
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
        result = stream_wait(link, i, numbers[i]);
    }
    link_put(link);
    return result;
}

/* --- the end of a context --- */

void streams_destroy(const struct link *link)
{
    struct stream *stream;

    for (uint32_t at = 0; (stream = table_next(&streams, &at));) {
        if (stream->link == link) {
            table_remove_at(&streams, at - 1);
            stream_free(stream);
        }
    }
    events_destroy(link);
}
