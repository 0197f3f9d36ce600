/*
 * hostmem - host memory that the device may use
 *
 * A list of ranges, nothing more: the simulated device sees host memory at the
 * program's addresses, and what works on it runs in the program (hostwork.c). A
 * range must be mapped when it is registered and must not overlap another one.
 */
#include "hostmem.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "space.h"

struct range {
    struct range *next;
    const struct gpu *gpu;
    uint64_t address, size;
};

static struct range *ranges;

/* mincore() knows of each page whether it is mapped at all. */
static bool is_mapped(uint64_t address, uint64_t size)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char resident[256];
    uint64_t at = address - address % page;
    uint64_t end = address + size;

    while (at < end) {
        uint64_t step = end - at < page * sizeof(resident) ? end - at : page * sizeof(resident);

        if (mincore((void *)(uintptr_t)at, step, resident) < 0) {
            return false;
        }
        at += step;
    }
    return true;
}

CUresult hostmem_register(const struct gpu *gpu, uint64_t address, uint64_t size)
{
    struct range *range;
    uint64_t end;

    if (size == 0 || __builtin_add_overflow(address, size, &end) ||
        space_overlaps(address, size) || !is_mapped(address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (range = ranges; range; range = range->next) {
        if (address < range->address + range->size && range->address < end) {
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        }
    }
    range = malloc(sizeof(*range));
    if (!range) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *range = (struct range){ranges, gpu, address, size};
    ranges = range;
    return CUDA_SUCCESS;
}

static void drop(struct range **at)
{
    struct range *range = *at;

    *at = range->next;
    free(range);
}

CUresult hostmem_unregister(uint64_t address)
{
    for (struct range **at = &ranges; *at; at = &(*at)->next) {
        if ((*at)->address == address) {
            drop(at);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

bool hostmem_covers(uint64_t address, uint64_t size)
{
    uint64_t end;

    if (__builtin_add_overflow(address, size, &end)) {
        return false;
    }
    for (const struct range *range = ranges; range; range = range->next) {
        if (address >= range->address && end <= range->address + range->size) {
            return true;
        }
    }
    return false;
}

void hostmem_forget(const struct gpu *gpu)
{
    struct range **at = &ranges;

    while (*at) {
        if ((*at)->gpu == gpu) {
            drop(at);
        } else {
            at = &(*at)->next;
        }
    }
}
