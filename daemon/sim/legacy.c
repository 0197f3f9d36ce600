/*
 * legacy - cuMemAlloc and the 64-byte handles
 *
 * An allocation is a segment that is made, mapped and owned by the context. Its
 * handle names the segment in the GPU's books; another process of the same user
 * gets the memory through /proc from the process that made it, as long as that
 * still has it, and not from another PID namespace. In the process that made
 * it a handle cannot be opened; elsewhere a second opening gives the same pointer
 * and counts. An interior pointer's handle is its allocation's.
 */
#include "legacy.h"

#include <string.h>
#include <unistd.h>

#include "call.h"
#include "context.h"
#include "space.h"
#include "stream.h"

#define HANDLE_MAGIC 0x31636970696d6973u /* "simipic1" */

struct legacy_handle {
    uint64_t magic;
    CUuuid gpu;
    struct gpu_ref ref;
};

_Static_assert(sizeof(struct legacy_handle) <= sizeof(CUipcMemHandle), "a handle has 64 bytes");

CUresult legacy_alloc(uint64_t size, uint64_t *address_p)
{
    struct segment *segment;
    struct gpu *gpu;
    uint64_t rounded;
    CUresult result = context_gpu(&gpu);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (__builtin_add_overflow(size, GPU_GRANULARITY - 1, &rounded)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = segment_create(gpu, rounded - rounded % GPU_GRANULARITY, &segment);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = space_place(segment, SPACE_ALLOC, address_p);
    /* From here on the mapping holds it. */
    segment_put(segment);
    return result;
}

CUresult legacy_free(uint64_t address)
{
    const struct space_mapping *mapping;
    CUresult result = stream_synchronize_all();

    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        return result;
    }
    mapping = address ? space_find(address) : NULL;
    if (address && (!mapping || mapping->address != address || mapping->kind != SPACE_ALLOC)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (mapping) {
        space_remove(address);
    }
    return result;
}

CUresult legacy_export(uint64_t address, CUipcMemHandle *handle_p)
{
    const struct space_mapping *mapping = space_find(address);
    struct legacy_handle handle = {.magic = HANDLE_MAGIC};
    struct gpu *gpu;
    CUresult result = context_gpu(&gpu);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!mapping || mapping->kind != SPACE_ALLOC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    handle.gpu = mapping->segment->gpu->uuid;
    handle.ref = mapping->segment->ref;
    gpu_mark_exported(mapping->segment->gpu, mapping->segment->ref);
    memset(handle_p, 0, sizeof(*handle_p));
    memcpy(handle_p, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

CUresult legacy_open(const CUipcMemHandle *opaque, uint64_t *address_p)
{
    struct legacy_handle handle;
    struct space_mapping *mapping;
    struct segment *segment;
    struct gpu *gpu;
    CUresult result = context_gpu(&gpu);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(&handle, opaque, sizeof(handle));
    if (handle.magic != HANDLE_MAGIC || memcmp(&handle.gpu, &gpu->uuid, sizeof(handle.gpu)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = segment_open(gpu, handle.ref, &segment);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    mapping = space_find_segment(segment, SPACE_IPC);
    if (segment->created) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (mapping) {
        mapping->n_opens++;
        *address_p = mapping->address;
    } else {
        result = space_place(segment, SPACE_IPC, address_p);
    }
    segment_put(segment);
    return result;
}

CUresult legacy_close(uint64_t address)
{
    struct space_mapping *mapping;
    CUresult result = stream_synchronize_all();

    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        return result;
    }
    mapping = space_find(address);
    if (!mapping || mapping->address != address || mapping->kind != SPACE_IPC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (--mapping->n_opens == 0) {
        space_remove(address);
    }
    return result;
}
