/*
 * api_memory - the driver's functions about memory
 *
 * Thin: arguments are checked here, handles are kept here, the work is done by
 * segment.c, space.c, legacy.c and hostmem.c. A handle that was imported may not
 * be exported again, as on the real driver.
 */
#include "api.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "context.h"
#include "hostmem.h"
#include "legacy.h"
#include "space.h"
#include "table.h"

struct handle {
    struct segment *segment;
    bool exportable;
};

static struct table handles;

/* A handle for a segment, whose reference it takes over, also on failure. */
static CUresult add_handle(struct segment *segment, bool exportable,
                           CUmemGenericAllocationHandle *handle_p)
{
    struct handle *handle = malloc(sizeof(*handle));
    uint64_t number = handle ? table_add(&handles, handle) : 0;

    if (!number) {
        free(handle);
        segment_put(segment);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (struct handle){segment, exportable};
    *handle_p = number;
    return CUDA_SUCCESS;
}

/* The GPU that a description of wanted memory means, or NULL. */
static struct gpu *gpu_of_prop(const CUmemAllocationProp *prop)
{
    bool valid = prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                 prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                 (prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
                  prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

    return valid ? device_gpu(prop->location.id) : NULL;
}

CUresult cuMemGetInfo_v2(size_t *free_size, size_t *total)
{
    struct gpu *gpu;
    CUresult result = api_enter(CALL_cuMemGetInfo, free_size && total);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = context_gpu(&gpu);
    if (result == CUDA_SUCCESS) {
        *free_size = gpu_free(gpu);
        *total = gpu->size;
    }
    return api_leave(result);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    CUresult result = api_enter(CALL_cuMemGetAllocationGranularity, granularity != NULL);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!gpu_of_prop(prop) || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *granularity = GPU_GRANULARITY;
    return api_leave(CUDA_SUCCESS);
}

/* --- segments --- */

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct segment *segment;
    struct gpu *gpu;
    CUresult result = api_enter_unsafe(CALL_cuMemCreate, handle && flags == 0);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    gpu = gpu_of_prop(prop);
    if (!gpu || size == 0 || size % GPU_GRANULARITY) {
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = segment_create(gpu, size, &segment);
    if (result == CUDA_SUCCESS) {
        result = add_handle(segment, prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE, handle);
    }
    return api_leave(result);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle number)
{
    struct handle *handle;
    CUresult result = api_enter(CALL_cuMemRelease, true);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    handle = table_remove(&handles, number);
    if (!handle) {
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    }
    segment_put(handle->segment);
    free(handle);
    return api_leave(CUDA_SUCCESS);
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle number,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    const struct handle *handle;
    bool valid = shareable && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0;
    CUresult result = api_enter(CALL_cuMemExportToShareableHandle, valid);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    handle = table_find(&handles, number);
    if (!handle || !handle->exportable) {
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return api_leave(segment_export(handle->segment, shareable));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    struct segment *segment;
    bool valid = handle && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUresult result = api_enter_unsafe(CALL_cuMemImportFromShareableHandle, valid);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = segment_import((int)(intptr_t)shareable, &segment);
    if (result == CUDA_SUCCESS) {
        result = add_handle(segment, false, handle);
    }
    return api_leave(result);
}

/* --- addresses --- */

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    uint64_t reserved;
    CUresult result = api_enter(CALL_cuMemAddressReserve, address && flags == 0);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = space_reserve(size, alignment, hint, &reserved);
    if (result == CUDA_SUCCESS) {
        *address = reserved;
    }
    return api_leave(result);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
    CUresult result = api_enter(CALL_cuMemAddressFree, true);

    return result == CUDA_SUCCESS ? api_leave(space_unreserve(address, size)) : result;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                  CUmemGenericAllocationHandle number, unsigned long long flags)
{
    const struct handle *handle;
    CUresult result = api_enter_unsafe(CALL_cuMemMap, offset == 0 && flags == 0);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    handle = table_find(&handles, number);
    return api_leave(handle ? space_map(address, size, handle->segment)
                            : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    CUresult result = api_enter_unsafe(CALL_cuMemUnmap, true);

    return result == CUDA_SUCCESS ? api_leave(space_unmap(address, size)) : result;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access,
                        size_t count)
{
    const struct space_mapping *mapping;
    int protection = PROT_NONE;
    CUresult result = api_enter_unsafe(CALL_cuMemSetAccess, access && count == 1);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    mapping = space_find(address);
    if (!mapping || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (device_gpu(access->location.id) != mapping->segment->gpu) {
        return api_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ) {
        protection = PROT_READ;
    } else if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        protection = PROT_READ | PROT_WRITE;
    } else if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        return api_leave(CUDA_ERROR_INVALID_VALUE);
    }
    return api_leave(space_set_protection(address, size, protection));
}

/* --- legacy --- */

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    uint64_t allocated;
    CUresult result = api_enter_unsafe(CALL_cuMemAlloc, address != NULL);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = legacy_alloc(size, &allocated);
    if (result == CUDA_SUCCESS) {
        *address = allocated;
    }
    return api_leave(result);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    CUresult result = api_enter_unsafe(CALL_cuMemFree, true);

    return result == CUDA_SUCCESS ? api_leave(legacy_free(address)) : result;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    CUresult result = api_enter(CALL_cuIpcGetMemHandle, handle != NULL);

    return result == CUDA_SUCCESS ? api_leave(legacy_export(address, handle)) : result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    uint64_t opened;
    CUresult result = api_enter_unsafe(CALL_cuIpcOpenMemHandle,
                                       address && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = legacy_open(&handle, &opened);
    if (result == CUDA_SUCCESS) {
        *address = opened;
    }
    return api_leave(result);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    CUresult result = api_enter_unsafe(CALL_cuIpcCloseMemHandle, true);

    return result == CUDA_SUCCESS ? api_leave(legacy_close(address)) : result;
}

/* --- host memory --- */

CUresult cuMemHostRegister_v2(void *pointer, size_t size, unsigned int flags)
{
    const unsigned int known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    struct gpu *gpu;
    CUresult result = api_enter_unsafe(CALL_cuMemHostRegister, pointer && !(flags & ~known));

    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = context_gpu(&gpu);
    return api_leave(result == CUDA_SUCCESS ? hostmem_register(gpu, (uintptr_t)pointer, size)
                                            : result);
}

CUresult cuMemHostUnregister(void *pointer)
{
    struct gpu *gpu;
    CUresult result = api_enter_unsafe(CALL_cuMemHostUnregister, pointer != NULL);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = context_gpu(&gpu);
    return api_leave(result == CUDA_SUCCESS ? hostmem_unregister((uintptr_t)pointer) : result);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned int flags)
{
    struct gpu *gpu;
    CUresult result = api_enter(CALL_cuMemHostGetDevicePointer, address && flags == 0);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = context_gpu(&gpu);
    if (result == CUDA_SUCCESS && !hostmem_covers((uintptr_t)pointer, 1)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *address = (uintptr_t)pointer;
    }
    return api_leave(result);
}
