/*
 * api_device - the driver's functions about itself, its devices and contexts
 *
 * Thin: arguments are checked here, the work is done by device.c and context.c.
 * What a real device would say of itself (attributes) is what our programs ask
 * for: segments, exportable as fds, and 64-bit stream memory operations.
 */
#include "api.h"

#include <stdio.h>
#include <string.h>

#include "context.h"
#include "device.h"
#include "stream.h"

/* clang-format off */
static const struct {
    CUresult error;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUDA_ERROR_UNMAP_FAILED, "CUDA_ERROR_UNMAP_FAILED", "unmap failed"},
    {CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {CUDA_ERROR_NOT_MAPPED, "CUDA_ERROR_NOT_MAPPED", "resource not mapped"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "ecc uncorrectable"},
    {CUDA_ERROR_UNSUPPORTED_LIMIT, "CUDA_ERROR_UNSUPPORTED_LIMIT", "unsupported limit"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "launch timeout"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system driver mismatch"},
    {CUDA_ERROR_MPS_CONNECTION_FAILED, "CUDA_ERROR_MPS_CONNECTION_FAILED", "mps connection failed"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "stream capture unjoined"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};
/* clang-format on */

/* --- the driver --- */

CUresult cuInit(unsigned int flags)
{
    CUresult result = call_enter(CALL_cuInit);
    char why[256];

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!call_is_initialised() && cubiemem_sim_set_run_dir_again(why, sizeof(why)) < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    sim_lock();
    if (!call_is_initialised()) {
        result = device_scan() < 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
        call_set_initialised(result == CUDA_SUCCESS);
    }
    return api_leave(result);
}

CUresult cuDriverGetVersion(int *version)
{
    CUresult result = call_enter(CALL_cuDriverGetVersion);

    if (result == CUDA_SUCCESS && !version) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *version = 13000;
    }
    return result;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    CUresult result = call_enter(CALL_cuGetErrorName);

    for (size_t i = 0; result == CUDA_SUCCESS && i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].error == error) {
            *text = errors[i].name;
            return CUDA_SUCCESS;
        }
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    CUresult result = call_enter(CALL_cuGetErrorString);

    for (size_t i = 0; result == CUDA_SUCCESS && i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].error == error) {
            *text = errors[i].text;
            return CUDA_SUCCESS;
        }
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

/* --- devices --- */

CUresult cuDeviceGetCount(int *count)
{
    CUresult result = api_enter(CALL_cuDeviceGetCount, count != NULL);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    *count = (int)device_count();
    return api_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = api_enter(CALL_cuDeviceGet, device != NULL);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!device_gpu(ordinal)) {
        return api_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    *device = ordinal;
    return api_leave(CUDA_SUCCESS);
}

/* Enter a call about a device. */
static CUresult enter_device(enum sim_call call, bool valid, CUdevice device, struct gpu **gpu_p)
{
    CUresult result = api_enter(call, valid);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    *gpu_p = device_gpu(device);
    return *gpu_p ? CUDA_SUCCESS : api_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    struct gpu *gpu;
    CUresult result = enter_device(CALL_cuDeviceGetName, name && length > 0, device, &gpu);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    snprintf(name, (size_t)length, "Simulated GPU %s", gpu->name);
    return api_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    struct gpu *gpu;
    CUresult result = enter_device(CALL_cuDeviceGetUuid, uuid != NULL, device, &gpu);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    *uuid = gpu->uuid;
    return api_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    struct gpu *gpu;
    CUresult result = enter_device(CALL_cuDeviceGetAttribute, value != NULL, device, &gpu);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        *value = 1;
        break;
    default:
        *value = 0;
        break;
    }
    return api_leave(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *size, CUdevice device)
{
    struct gpu *gpu;
    CUresult result = enter_device(CALL_cuDeviceTotalMem, size != NULL, device, &gpu);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    *size = gpu->size;
    return api_leave(CUDA_SUCCESS);
}

/* --- contexts --- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    struct gpu *gpu;
    CUresult result = enter_device(CALL_cuDevicePrimaryCtxRetain, context != NULL, device, &gpu);

    return result == CUDA_SUCCESS ? api_leave(context_retain(gpu, context)) : result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    struct gpu *gpu;
    CUresult result = enter_device(CALL_cuDevicePrimaryCtxRelease, true, device, &gpu);

    return result == CUDA_SUCCESS ? api_leave(context_release(gpu)) : result;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    struct gpu *gpu;
    CUresult result = enter_device(CALL_cuDevicePrimaryCtxGetState, flags && active, device, &gpu);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    *flags = 0;
    *active = context_is_active(gpu);
    return api_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = api_enter(CALL_cuCtxGetCurrent, context != NULL);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    *context = context_current();
    return api_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = api_enter(CALL_cuCtxSetCurrent, true);

    return result == CUDA_SUCCESS ? api_leave(context_set(context)) : result;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    struct gpu *gpu = NULL;
    CUresult result = api_enter(CALL_cuCtxGetDevice, device != NULL);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = context_gpu(&gpu);
    for (CUdevice i = 0; result == CUDA_SUCCESS && i < (CUdevice)device_count(); i++) {
        if (device_gpu(i) == gpu) {
            *device = i;
        }
    }
    return api_leave(result);
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = api_enter(CALL_cuCtxPushCurrent, true);

    return result == CUDA_SUCCESS ? api_leave(context_push(context)) : result;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult result = api_enter(CALL_cuCtxPopCurrent, true);

    return result == CUDA_SUCCESS ? api_leave(context_pop(context)) : result;
}

CUresult cuCtxSynchronize(void)
{
    CUresult result = api_enter(CALL_cuCtxSynchronize, true);

    return result == CUDA_SUCCESS ? api_leave(stream_synchronize_all()) : result;
}
