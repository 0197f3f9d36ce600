/*
 * blocks - lent memory as this process maps it
 *
 * Reserve, map each segment, set access; undone in reverse. Room in the list of
 * loose segments is made beforehand, so that undoing never allocates.
 */
#include "blocks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checked.h"
#include "cubiemem.h"
#include "failure.h"

/* --------------------------------------------------- loose segments */

bool segment_list_reserve(struct segment_list *list, size_t n)
{
    if (list->capacity - list->n >= n) {
        return true;
    }
    struct segment_view *grown = realloc(list->segments, (list->n + n) * sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    list->segments = grown;
    list->capacity = list->n + n;
    return true;
}

static bool segment_list_take(struct segment_list *list, uint64_t id,
                              struct segment_view *segment_p)
{
    for (size_t i = 0; i < list->n; i++) {
        if (list->segments[i].id == id) {
            *segment_p = list->segments[i];
            list->segments[i] = list->segments[--list->n];
            return true;
        }
    }
    return false;
}

void segment_list_release(struct segment_list *list, struct context *context)
{
    struct context_guard guard;
    if (list->n == 0 || context_enter(context, &guard) != CUBIEMEM_OK) {
        return;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->segments[i].handle != 0) {
            context->driver.cuMemRelease(list->segments[i].handle);
            list->segments[i].handle = 0;
        }
    }
    context_leave(context, &guard);
}

void segment_list_finish(struct segment_list *list)
{
    free(list->segments);
    *list = (struct segment_list){0};
}

/* ------------------------------------------------------------- map */

static void block_free(struct block_view *block)
{
    free(block->segments);
    free(block);
}

/* The segments' sizes add up to the block's, as multiples of the granularity. */
static bool description_is_sane(const Cubiemem__Block *description, uint64_t granularity)
{
    uint64_t sum = 0;
    if (description->block_id == 0 || description->size == 0 ||
        description->size % granularity != 0) {
        return false;
    }
    if (description->kind == CUBIEMEM__HANDLE_KIND__HANDLE_LEGACY) {
        return description->has_legacy_handle && description->legacy_handle.len == 64;
    }
    for (size_t i = 0; i < description->n_segments; i++) {
        uint64_t size = description->segments[i]->size;
        if (size == 0 || size % granularity != 0 || !checked_add(sum, size, &sum)) {
            return false;
        }
    }
    return description->kind == CUBIEMEM__HANDLE_KIND__HANDLE_VMM_FD && sum == description->size;
}

/* Every segment becomes the block's, imported or taken from `loose`. */
static int collect_segments(struct context *context, const Cubiemem__Block *description,
                            struct incoming *incoming, struct segment_list *loose,
                            struct block_view *block)
{
    for (size_t i = 0; i < description->n_segments; i++) {
        const Cubiemem__Segment *from = description->segments[i];
        struct segment_view segment = {.id = from->segment_id, .size = from->size};
        if (from->held) {
            if (!segment_list_take(loose, from->segment_id, &segment) ||
                segment.size != from->size) {
                return failure_set(CUBIEMEM_INTERNAL, "the daemon lent a segment again that is "
                                                      "not held here");
            }
            block->segments[block->n_segments++] = segment;
            continue;
        }
        int fd = incoming_steal_fd(incoming);
        if (fd < 0) {
            return failure_set(CUBIEMEM_NO_FDS, "a segment's descriptor did not arrive");
        }
        CUresult result = context->driver.cuMemImportFromShareableHandle(
            &segment.handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        close(fd);
        if (result != CUDA_SUCCESS) {
            return failure_cuda(&context->driver, result, "cannot import a segment of %llu bytes",
                                (unsigned long long)segment.size);
        }
        block->segments[block->n_segments++] = segment;
    }
    return CUBIEMEM_OK;
}

/* Map all segments at the block's address; *mapped_p says how far it came. */
static CUresult map_segments(struct context *context, const struct block_view *block,
                             uint64_t *mapped_p)
{
    struct driver *driver = &context->driver;
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = context->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    for (size_t i = 0; i < block->n_segments; i++) {
        const struct segment_view *segment = &block->segments[i];
        CUresult result = driver->cuMemMap(block->address + *mapped_p, segment->size, 0,
                                           segment->handle, 0);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        *mapped_p += segment->size;
    }
    return driver->cuMemSetAccess(block->address, block->size, &access, 1);
}

static CUresult unmap_segments(struct context *context, const struct block_view *block,
                               uint64_t mapped)
{
    uint64_t at = 0;
    CUresult first = CUDA_SUCCESS;
    for (size_t i = 0; i < block->n_segments && at < mapped; i++) {
        CUresult result = context->driver.cuMemUnmap(block->address + at,
                                                     block->segments[i].size);
        first = first != CUDA_SUCCESS ? first : result;
        at += block->segments[i].size;
    }
    return first;
}

static int map_vmm(struct context *context, const Cubiemem__Block *description,
                   struct incoming *incoming, struct segment_list *loose,
                   struct block_view *block)
{
    struct driver *driver = &context->driver;
    uint64_t mapped = 0;
    if (!segment_list_reserve(loose, description->n_segments)) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to map a block");
    }
    int status = collect_segments(context, description, incoming, loose, block);
    if (status != CUBIEMEM_OK) {
        goto err_segments;
    }
    CUresult result = driver->cuMemAddressReserve(&block->address, block->size, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        status = failure_cuda(driver, result, "cannot reserve %llu bytes of addresses",
                              (unsigned long long)block->size);
        goto err_segments;
    }
    result = map_segments(context, block, &mapped);
    if (result != CUDA_SUCCESS) {
        status = failure_cuda(driver, result, "cannot map a block of %llu bytes",
                              (unsigned long long)block->size);
        goto err_map;
    }
    return CUBIEMEM_OK;

err_map:
    unmap_segments(context, block, mapped);
    driver->cuMemAddressFree(block->address, block->size);
err_segments:
    for (size_t i = 0; i < block->n_segments; i++) {
        loose->segments[loose->n++] = block->segments[i];
    }
    block->n_segments = 0;
    return status;
}

static int open_legacy(struct context *context, const Cubiemem__Block *description,
                       struct block_view *block)
{
    CUipcMemHandle handle;
    memcpy(block->handle, description->legacy_handle.data, sizeof block->handle);
    memcpy(&handle, block->handle, sizeof handle);
    block->legacy = true;
    block->handle_offset = description->legacy_offset;
    CUresult result = context->driver.cuIpcOpenMemHandle(&block->opened, handle,
                                                         CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUDA_SUCCESS) {
        return failure_cuda(&context->driver, result, "cannot open a legacy handle of %llu bytes",
                            (unsigned long long)block->size);
    }
    block->address = block->opened + block->handle_offset;
    return CUBIEMEM_OK;
}

int block_map(struct context *context, const Cubiemem__Block *description, uint64_t granularity,
              struct incoming *incoming, struct segment_list *loose, struct block_view **block_p)
{
    struct context_guard guard;
    if (!description_is_sane(description, granularity)) {
        return failure_set(CUBIEMEM_INTERNAL, "the daemon described a block that cannot be");
    }
    struct block_view *block = calloc(1, sizeof *block);
    if (block == NULL) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to map a block");
    }
    block->id = description->block_id;
    block->size = description->size;
    block->generation = description->generation;
    block->segments = calloc(description->n_segments + 1, sizeof *block->segments);
    int status = block->segments == NULL
                     ? failure_set(CUBIEMEM_HOST_MEMORY, "no memory to map a block")
                     : context_enter(context, &guard);
    if (status != CUBIEMEM_OK) {
        block_free(block);
        return status;
    }
    status = description->kind == CUBIEMEM__HANDLE_KIND__HANDLE_LEGACY
                 ? open_legacy(context, description, block)
                 : map_vmm(context, description, incoming, loose, block);
    context_leave(context, &guard);
    if (status != CUBIEMEM_OK) {
        block_free(block);
        return status;
    }
    *block_p = block;
    return CUBIEMEM_OK;
}

int block_unmap(struct context *context, struct block_view *block, struct segment_list *loose)
{
    struct context_guard guard;
    if (!segment_list_reserve(loose, block->n_segments)) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to unmap a block");
    }
    int status = context_enter(context, &guard);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    CUresult result = block->legacy ? context->driver.cuIpcCloseMemHandle(block->opened)
                                    : unmap_segments(context, block, block->size);
    if (result == CUDA_SUCCESS && !block->legacy) {
        context->driver.cuMemAddressFree(block->address, block->size);
    }
    context_leave(context, &guard);
    if (result != CUDA_SUCCESS) {
        return failure_cuda(&context->driver, result, "cannot unmap a block of %llu bytes",
                            (unsigned long long)block->size);
    }
    for (size_t i = 0; i < block->n_segments; i++) {
        loose->segments[loose->n++] = block->segments[i];
    }
    block_free(block);
    return CUBIEMEM_OK;
}

void block_forget(struct block_view *block)
{
    block_free(block);
}
