/*
 * capture - streams under capture
 *
 * A stream under capture records nothing here: its operations are accepted and
 * dropped, and the graph is a token, since nobody launches graphs on the simulated
 * device. What a capture forbids is refused and invalidates it, by the rules of
 * the thread's and the capture's mode, so that code that must not disturb its
 * caller's capture can be tested.
 */
#include "stream_inner.h"

static uint64_t last_capture;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void capture_invalidate(uint64_t capture)
{
    struct stream *stream;

    for (uint32_t at = 0; (stream = stream_next(&at));) {
        if (stream->capture == capture) {
            stream->invalidated = true;
        }
    }
}

CUresult capture_allows_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    const struct stream *stream;

    for (uint32_t at = 0; (stream = stream_next(&at));) {
        bool own = stream->capture && pthread_equal(stream->thread, pthread_self()) &&
                   stream->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool global = stream->capture && stream->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

        if ((own && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
            (global && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
            capture_invalidate(stream->capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult capture_allows(const struct stream *stream)
{
    const struct stream *other;

    if (!stream_is_legacy(stream)) {
        return CUDA_SUCCESS;
    }
    for (uint32_t at = 0; (other = stream_next(&at));) {
        if (other->capture && other->link == stream->link &&
            stream->link->lanes[other->lane].blocking) {
            capture_invalidate(other->capture);
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
    if (stream_is_legacy(stream)) {
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
    for (uint32_t at = 0; (other = stream_next(&at));) {
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
        result = capture_allows(stream);
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

CUresult capture_join(struct stream *stream, uint64_t capture)
{
    const struct stream *origin;

    if (stream->capture && stream->capture != capture) {
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    for (uint32_t at = 0; (origin = stream_next(&at));) {
        if (origin->capture == capture && origin->origin && stream != origin) {
            stream->capture = origin->capture;
            stream->mode = origin->mode;
            stream->thread = origin->thread;
            stream->invalidated = origin->invalidated;
        }
    }
    return CUDA_SUCCESS;
}
