/*
 * space - the device addresses of this process
 *
 * A device address is a host address: a reservation is an inaccessible mapping
 * of the process, a mapped segment lies in it as shared memory, and access rights
 * are those of the pages. So a program's CPU "kernels" use device pointers as
 * they are, and what the real device would refuse (no access set, read-only)
 * faults here as well.
 *
 * Mappings are not inherited by a forked child: it has no device, and what keeps
 * its dead parent's memory is the GPU's file (gpu.c). The process's engine maps
 * the same segments elsewhere and is told of each change; an unmapping is over
 * only when the engine has let go.
 */
#include "space.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "call.h"
#include "context.h"

struct reservation {
    uint64_t address, size;
};

/* Sorted by address, without overlaps. */
static struct space_mapping *mappings;
static size_t n_mappings, mappings_room;
static struct reservation *reservations;
static size_t n_reservations, reservations_room;

static bool range_is_valid(uint64_t address, uint64_t size)
{
    uint64_t end;

    return size > 0 && !__builtin_add_overflow(address, size, &end);
}

static bool range_is_aligned(uint64_t address, uint64_t size)
{
    return range_is_valid(address, size) && address % GPU_GRANULARITY == 0 &&
           size % GPU_GRANULARITY == 0;
}

/* --- arrays --- */

/* The first mapping that ends behind an address. */
static size_t first_behind(uint64_t address)
{
    size_t low = 0;
    size_t high = n_mappings;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (mappings[middle].address + mappings[middle].size > address) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static bool make_room(void **array, size_t size, size_t n, size_t *room)
{
    size_t wanted = *room ? *room * 2 : 16;
    void *grown;

    if (n < *room) {
        return true;
    }
    grown = realloc(*array, wanted * size);
    if (!grown) {
        return false;
    }
    *array = grown;
    *room = wanted;
    return true;
}

static bool insert_mapping(const struct space_mapping *mapping)
{
    size_t i = first_behind(mapping->address);

    if (!make_room((void **)&mappings, sizeof(*mappings), n_mappings, &mappings_room)) {
        return false;
    }
    memmove(&mappings[i + 1], &mappings[i], (n_mappings - i) * sizeof(*mappings));
    mappings[i] = *mapping;
    n_mappings++;
    segment_get(mapping->segment);
    return true;
}

static void delete_mapping(size_t i)
{
    struct segment *segment = mappings[i].segment;

    memmove(&mappings[i], &mappings[i + 1], (n_mappings - i - 1) * sizeof(*mappings));
    n_mappings--;
    segment_put(segment);
}

/* --- the process's pages --- */

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* An inaccessible range of an alignment; at the hint if that is free. */
static uint64_t map_nothing(uint64_t size, uint64_t alignment, uint64_t hint)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint64_t room, start, aligned;
    void *map = MAP_FAILED;

    if (hint && hint % alignment == 0) {
        map = mmap(pointer(hint), size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (map != MAP_FAILED && (uintptr_t)map == hint) {
            return hint;
        }
        if (map != MAP_FAILED) {
            munmap(map, size);
        }
    }
    if (__builtin_add_overflow(size, alignment, &room)) {
        return 0;
    }
    map = mmap(NULL, room, PROT_NONE, flags, -1, 0);
    if (map == MAP_FAILED) {
        return 0;
    }
    start = (uintptr_t)map;
    aligned = (start + alignment - 1) / alignment * alignment;
    if (aligned > start) {
        munmap(map, aligned - start);
    }
    if (start + room > aligned + size) {
        munmap(pointer(aligned + size), start + room - aligned - size);
    }
    return aligned;
}

static bool map_segment(uint64_t address, uint64_t size, const struct segment *segment,
                        int protection)
{
    void *map = mmap(pointer(address), size, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                     segment->fd, 0);

    if (map == MAP_FAILED) {
        return false;
    }
    madvise(map, size, MADV_DONTFORK);
    return true;
}

static void unmap_pages(uint64_t address, uint64_t size)
{
    /* Cannot fail for lack of memory where the range was one mapping. */
    mmap(pointer(address), size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* --- reservations --- */

CUresult space_reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *address_p)
{
    uint64_t address;

    if (alignment == 0) {
        alignment = GPU_GRANULARITY;
    }
    if (size == 0 || size % GPU_GRANULARITY || (alignment & (alignment - 1))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    alignment = alignment < GPU_GRANULARITY ? GPU_GRANULARITY : alignment;
    if (!make_room((void **)&reservations, sizeof(*reservations), n_reservations,
                   &reservations_room)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    address = map_nothing(size, alignment, hint);
    if (!address) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reservations[n_reservations++] = (struct reservation){address, size};
    *address_p = address;
    return CUDA_SUCCESS;
}

/* Does any mapping lie in the range? */
static bool has_mapping(uint64_t address, uint64_t size)
{
    size_t i = first_behind(address);

    return i < n_mappings && mappings[i].address < address + size;
}

CUresult space_unreserve(uint64_t address, uint64_t size)
{
    for (size_t i = 0; i < n_reservations; i++) {
        if (reservations[i].address != address) {
            continue;
        }
        if (reservations[i].size != size || has_mapping(address, size)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        munmap(pointer(address), size);
        reservations[i] = reservations[--n_reservations];
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static bool is_reserved(uint64_t address, uint64_t size)
{
    for (size_t i = 0; i < n_reservations; i++) {
        if (address >= reservations[i].address &&
            address + size <= reservations[i].address + reservations[i].size) {
            return true;
        }
    }
    return false;
}

bool space_overlaps(uint64_t address, uint64_t size)
{
    if (!range_is_valid(address, size) || has_mapping(address, size)) {
        return true;
    }
    for (size_t i = 0; i < n_reservations; i++) {
        if (address < reservations[i].address + reservations[i].size &&
            reservations[i].address < address + size) {
            return true;
        }
    }
    return false;
}

/* --- mappings --- */

CUresult space_map(uint64_t address, uint64_t size, struct segment *segment)
{
    struct space_mapping mapping = {.address = address, .size = size, .segment = segment,
                                    .kind = SPACE_VMM, .protection = PROT_NONE};

    if (!range_is_aligned(address, size) || size > segment->size || !is_reserved(address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (has_mapping(address, size)) {
        return CUDA_ERROR_ALREADY_MAPPED;
    }
    if (!insert_mapping(&mapping)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!map_segment(address, size, segment, PROT_NONE)) {
        delete_mapping(first_behind(address));
        return CUDA_ERROR_MAP_FAILED;
    }
    return CUDA_SUCCESS;
}

/* The mappings that make up a range exactly; false: they do not. */
static bool find_exactly(uint64_t address, uint64_t size, size_t *first_p, size_t *n_p)
{
    size_t i = first_behind(address);
    uint64_t at = address;

    *first_p = i;
    while (i < n_mappings && at < address + size && mappings[i].address == at &&
           mappings[i].kind == SPACE_VMM) {
        at += mappings[i++].size;
    }
    *n_p = i - *first_p;
    return at == address + size;
}

CUresult space_unmap(uint64_t address, uint64_t size)
{
    size_t first, n;

    if (!range_is_aligned(address, size) || !find_exactly(address, size, &first, &n)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (; n > 0; n--) {
        const struct space_mapping *mapping = &mappings[first];

        context_unmap(mapping->segment->gpu, mapping->address);
        unmap_pages(mapping->address, mapping->size);
        delete_mapping(first);
    }
    return CUDA_SUCCESS;
}

CUresult space_set_protection(uint64_t address, uint64_t size, int protection)
{
    size_t first, n;

    if (!range_is_aligned(address, size) || !find_exactly(address, size, &first, &n)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = first; i < first + n; i++) {
        struct space_mapping *mapping = &mappings[i];
        CUresult result;

        if (mprotect(pointer(mapping->address), mapping->size, protection) < 0) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        mapping->protection = protection;
        result = context_map(mapping);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

CUresult space_place(struct segment *segment, enum space_kind kind, uint64_t *address_p)
{
    struct space_mapping mapping = {.size = segment->size, .segment = segment, .kind = kind,
                                    .protection = PROT_READ | PROT_WRITE, .n_opens = 1};
    CUresult result;

    mapping.address = map_nothing(segment->size, GPU_GRANULARITY, 0);
    if (!mapping.address) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!insert_mapping(&mapping)) {
        munmap(pointer(mapping.address), mapping.size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = map_segment(mapping.address, mapping.size, segment, mapping.protection)
                 ? context_map(&mapping)
                 : CUDA_ERROR_MAP_FAILED;
    if (result != CUDA_SUCCESS) {
        space_remove(mapping.address);
        return result;
    }
    *address_p = mapping.address;
    return CUDA_SUCCESS;
}

void space_remove(uint64_t address)
{
    size_t i = first_behind(address);

    context_unmap(mappings[i].segment->gpu, address);
    munmap(pointer(address), mappings[i].size);
    delete_mapping(i);
}

void space_remove_kind(const struct gpu *gpu, enum space_kind kind)
{
    for (size_t i = n_mappings; i-- > 0;) {
        if (mappings[i].kind == kind && mappings[i].segment->gpu == gpu) {
            space_remove(mappings[i].address);
        }
    }
}

struct space_mapping *space_find(uint64_t address)
{
    size_t i = first_behind(address);

    return i < n_mappings && mappings[i].address <= address ? &mappings[i] : NULL;
}

struct space_mapping *space_find_segment(const struct segment *segment, enum space_kind kind)
{
    for (size_t i = 0; i < n_mappings; i++) {
        if (mappings[i].segment == segment && mappings[i].kind == kind) {
            return &mappings[i];
        }
    }
    return NULL;
}

struct gpu *space_check(uint64_t address, uint64_t size, bool for_writing)
{
    const int wanted = for_writing ? PROT_READ | PROT_WRITE : PROT_READ;
    const struct space_mapping *first = space_find(address);
    uint64_t at = address;

    if (!first || !range_is_valid(address, size)) {
        return NULL;
    }
    for (const struct space_mapping *mapping = first; at < address + size; mapping++) {
        if (mapping == mappings + n_mappings || mapping->address > at ||
            (mapping->protection & wanted) != wanted ||
            mapping->segment->gpu != first->segment->gpu) {
            return NULL;
        }
        at = mapping->address + mapping->size;
    }
    return first->segment->gpu;
}

CUresult space_replay(const struct gpu *gpu)
{
    for (size_t i = 0; i < n_mappings; i++) {
        if (mappings[i].segment->gpu == gpu && mappings[i].protection != PROT_NONE) {
            CUresult result = context_map(&mappings[i]);

            if (result != CUDA_SUCCESS) {
                return result;
            }
        }
    }
    return CUDA_SUCCESS;
}
