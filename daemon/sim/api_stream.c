/*
 * api_stream - the driver's functions that put work on streams, and events
 *
 * Thin: arguments are checked here against what is mapped, operations are made
 * here, the work is done by stream.c and the engine. Which side performs an
 * operation depends on the memory: the device's in the engine; host memory, and
 * functions, in the program. An asynchronous copy of memory that is not
 * registered is over when the call returns.
 */
#include "api.h"

#include "context.h"
#include "hostmem.h"
#include "space.h"
#include "stream.h"

/* Is this the current context's device's memory, ready to be read or written? */
static bool is_device(uint64_t address, uint64_t size, bool for_writing)
{
    struct gpu *gpu;

    return context_gpu(&gpu) == CUDA_SUCCESS && space_check(address, size, for_writing) == gpu;
}

/* A pointer into device addresses with nothing (or no access) behind it. */
static bool is_bad(uint64_t address, uint64_t size, bool for_writing)
{
    return address == 0 || (space_overlaps(address, size) && !space_check(address, size, for_writing));
}

/* Queue it; if it may not go on by itself, wait for it. */
static CUresult submit(CUstream stream, struct queue_op op, bool wait)
{
    CUstreamCaptureStatus status;
    CUresult result = stream_submit(stream, op);

    if (result == CUDA_SUCCESS && wait) {
        result = capture_status(stream, &status);
        if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE) {
            result = stream_synchronize(stream);
        }
    }
    return result;
}

/* --- copies --- */

static CUresult copy(uint64_t to, uint64_t from, uint64_t size, CUstream stream, bool wait)
{
    struct queue_op op = {.kind = OP_COPY, .to = to, .from = from, .size = size};
    struct gpu *gpu;
    CUresult result = context_gpu(&gpu);

    if (result != CUDA_SUCCESS || size == 0) {
        return result;
    }
    if (is_bad(to, size, true) || is_bad(from, size, false)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_device(to, size, true) || !is_device(from, size, false)) {
        op.kind = OP_HOST_COPY;
        wait |= !space_overlaps(to, size) && !hostmem_covers(to, size);
        wait |= !space_overlaps(from, size) && !hostmem_covers(from, size);
    }
    return submit(stream, op, wait);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
    CUresult result = api_enter(CALL_cuMemcpyHtoD, true);

    return result == CUDA_SUCCESS ? api_leave(copy(to, (uintptr_t)from, size, NULL, true)) : result;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
    CUresult result = api_enter(CALL_cuMemcpyDtoH, true);

    return result == CUDA_SUCCESS ? api_leave(copy((uintptr_t)to, from, size, NULL, true)) : result;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    CUresult result = api_enter(CALL_cuMemcpyAsync, true);

    return result == CUDA_SUCCESS ? api_leave(copy(to, from, size, stream, false)) : result;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    CUresult result = api_enter(CALL_cuMemcpyHtoDAsync, true);

    return result == CUDA_SUCCESS ? api_leave(copy(to, (uintptr_t)from, size, stream, false))
                                  : result;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    CUresult result = api_enter(CALL_cuMemcpyDtoHAsync, true);

    return result == CUDA_SUCCESS ? api_leave(copy((uintptr_t)to, from, size, stream, false))
                                  : result;
}

/* --- fills --- */

static CUresult fill(uint64_t address, uint64_t value, uint64_t n, uint64_t width, CUstream stream,
                     bool wait)
{
    struct queue_op op = {.kind = OP_FILL, .to = address, .from = width, .value = value};
    struct gpu *gpu;
    CUresult result = context_gpu(&gpu);

    if (result != CUDA_SUCCESS || n == 0) {
        return result;
    }
    if (__builtin_mul_overflow(n, width, &op.size) || address % width ||
        !is_device(address, op.size, true)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return submit(stream, op, wait);
}

CUresult cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t n)
{
    CUresult result = api_enter(CALL_cuMemsetD8, true);

    return result == CUDA_SUCCESS ? api_leave(fill(address, value, n, 1, NULL, true)) : result;
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t n, CUstream stream)
{
    CUresult result = api_enter(CALL_cuMemsetD8Async, true);

    return result == CUDA_SUCCESS ? api_leave(fill(address, value, n, 1, stream, false)) : result;
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t n, CUstream stream)
{
    CUresult result = api_enter(CALL_cuMemsetD32Async, true);

    return result == CUDA_SUCCESS ? api_leave(fill(address, value, n, 4, stream, false)) : result;
}

/* --- stream memory operations, delays, functions --- */

/* The operation on a word, by the side that reaches it. */
static CUresult word(CUstream stream, struct queue_op op, uint32_t host_kind, bool for_writing)
{
    if (op.to % sizeof(uint64_t)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_device(op.to, sizeof(uint64_t), for_writing)) {
        if (!hostmem_covers(op.to, sizeof(uint64_t))) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        op.kind = host_kind;
    }
    return stream_submit(stream, op);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned int flags)
{
    const struct queue_op op = {.kind = OP_WRITE64, .to = address, .value = value};
    CUresult result = api_enter(CALL_cuStreamWriteValue64,
                                !(flags & ~(unsigned int)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));

    return result == CUDA_SUCCESS ? api_leave(word(stream, op, OP_HOST_WRITE64, true)) : result;
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned int flags)
{
    const struct queue_op op = {.kind = OP_WAIT64, .to = address, .value = value, .from = flags};
    bool valid = (flags & ~(unsigned int)CU_STREAM_WAIT_VALUE_FLUSH) <= CU_STREAM_WAIT_VALUE_NOR;
    CUresult result = api_enter(CALL_cuStreamWaitValue64, valid);

    return result == CUDA_SUCCESS ? api_leave(word(stream, op, OP_HOST_WAIT64, false)) : result;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *arg)
{
    const struct queue_op op = {.kind = OP_HOST_FUNCTION, .to = (uintptr_t)fn,
                                .from = (uintptr_t)arg};
    CUresult result = api_enter(CALL_cuLaunchHostFunc, fn != NULL);

    return result == CUDA_SUCCESS ? api_leave(stream_submit(stream, op)) : result;
}

CUresult cubiememSimDelay(CUstream stream, uint64_t ns)
{
    const struct queue_op op = {.kind = OP_DELAY, .value = ns};
    CUresult result = api_enter(CALL_simDelay, true);

    return result == CUDA_SUCCESS ? api_leave(stream_submit(stream, op)) : result;
}

/* --- streams --- */

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    CUresult result = api_enter(CALL_cuStreamCreate, stream != NULL);

    return result == CUDA_SUCCESS ? api_leave(stream_create(flags, stream)) : result;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    CUresult result = api_enter(CALL_cuStreamDestroy, true);

    return result == CUDA_SUCCESS ? api_leave(stream_destroy(stream)) : result;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    CUresult result = api_enter(CALL_cuStreamSynchronize, true);

    return result == CUDA_SUCCESS ? api_leave(stream_synchronize(stream)) : result;
}

CUresult cuStreamQuery(CUstream stream)
{
    CUresult result = api_enter(CALL_cuStreamQuery, true);

    return result == CUDA_SUCCESS ? api_leave(stream_query(stream)) : result;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    CUresult result = api_enter(CALL_cuStreamWaitEvent, flags == 0);

    return result == CUDA_SUCCESS ? api_leave(stream_wait_event(stream, event)) : result;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    CUresult result = api_enter(CALL_cuStreamIsCapturing, status != NULL);

    return result == CUDA_SUCCESS ? api_leave(capture_status(stream, status)) : result;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    CUresult result = api_enter(CALL_cuStreamBeginCapture, true);

    return result == CUDA_SUCCESS ? api_leave(capture_begin(stream, mode)) : result;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    CUresult result = api_enter(CALL_cuStreamEndCapture, graph != NULL);

    return result == CUDA_SUCCESS ? api_leave(capture_end(stream, graph)) : result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult result = api_enter(CALL_cuThreadExchangeStreamCaptureMode, mode != NULL);

    return result == CUDA_SUCCESS ? api_leave(capture_exchange_mode(mode)) : result;
}

/* --- events --- */

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    CUresult result = api_enter(CALL_cuEventCreate, event && flags < CU_EVENT_INTERPROCESS);

    return result == CUDA_SUCCESS ? api_leave(event_create(event)) : result;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    CUresult result = api_enter(CALL_cuEventDestroy, true);

    return result == CUDA_SUCCESS ? api_leave(event_destroy(event)) : result;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    CUresult result = api_enter(CALL_cuEventRecord, true);

    return result == CUDA_SUCCESS ? api_leave(event_record(event, stream)) : result;
}

CUresult cuEventQuery(CUevent event)
{
    CUresult result = api_enter(CALL_cuEventQuery, true);

    return result == CUDA_SUCCESS ? api_leave(event_query(event)) : result;
}

CUresult cuEventSynchronize(CUevent event)
{
    CUresult result = api_enter(CALL_cuEventSynchronize, true);

    return result == CUDA_SUCCESS ? api_leave(event_synchronize(event)) : result;
}
