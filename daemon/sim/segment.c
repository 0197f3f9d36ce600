/*
 * segment - physical memory of a simulated GPU, as this process holds it
 *
 * A segment is a sealed memfd of the wanted size, populated when it is touched
 * (so that a large simulated GPU costs no memory until it is used; a machine
 * whose memory runs out for good kills somebody, as with any other memory). A
 * process has one object for each segment, however often it was imported; it is
 * booked in the GPU's file as long as the object has references.
 *
 * Handles are api_memory.c's, mappings space.c's. Who else holds the memory is
 * gpu.c's question.
 */
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "call.h"

#define SEGMENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static struct segment *segments;

static struct segment *find(const struct gpu *gpu, struct gpu_ref ref)
{
    struct segment *segment = segments;

    while (segment && (segment->gpu != gpu || segment->ref.index != ref.index ||
                       segment->ref.id != ref.id)) {
        segment = segment->next;
    }
    return segment;
}

static struct segment *add(struct gpu *gpu, struct gpu_ref ref, uint64_t size, int fd, bool created)
{
    struct segment *segment = malloc(sizeof(*segment));

    if (segment) {
        *segment = (struct segment){.next = segments, .gpu = gpu, .ref = ref, .size = size,
                                    .fd = fd, .n_refs = 1, .created = created};
        segments = segment;
    }
    return segment;
}

static int make_memory(uint64_t size)
{
    int fd = memfd_create("cubiemem-sim-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int saved;

    if (fd < 0) {
        return -errno;
    }
    if (ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, SEGMENT_SEALS) == 0 &&
        memlock_take(fd) == 0) {
        return fd;
    }
    saved = errno;
    close(fd);
    return -saved;
}

CUresult segment_create(struct gpu *gpu, uint64_t size, struct segment **segment_p)
{
    struct gpu_place place = {.size = size, .pid = getpid()};
    struct gpu_ref ref;
    int result = gpu_hold(gpu);

    if (result < 0) {
        return call_errno(result);
    }
    if (size > gpu->size) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    place.fd = make_memory(size);
    if (place.fd < 0) {
        return call_errno(place.fd);
    }
    result = memlock_identify(place.fd, &place.memory) < 0 ? -errno : gpu_book(gpu, &place, &ref);
    if (result < 0) {
        close(place.fd);
        return call_errno(result);
    }
    *segment_p = add(gpu, ref, size, place.fd, true);
    if (!*segment_p) {
        gpu_leave(gpu, ref, place.fd);
        close(place.fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Make fd, which is a reference to booked memory, ours. It is closed on failure. */
static CUresult adopt(struct gpu *gpu, struct gpu_ref ref, uint64_t size, int fd,
                      struct segment **segment_p)
{
    int result = gpu_hold(gpu);

    if (result == 0 && !gpu_join(gpu, ref)) {
        result = -EINVAL;
    }
    if (result == 0) {
        *segment_p = add(gpu, ref, size, fd, false);
        if (*segment_p) {
            return CUDA_SUCCESS;
        }
        gpu_leave(gpu, ref, -1);
        result = -ENOMEM;
    }
    close(fd);
    return call_errno(result);
}

CUresult segment_import(int fd, struct segment **segment_p)
{
    struct memlock_id memory;
    struct gpu_place place;
    struct gpu_ref ref;
    struct gpu *gpu;
    int copy;

    if (memlock_identify(fd, &memory) < 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    gpu = device_find_memory(&memory, &ref, &place);
    if (!gpu) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *segment_p = find(gpu, ref);
    if (*segment_p) {
        segment_get(*segment_p);
        return CUDA_SUCCESS;
    }
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return copy < 0 ? call_errno(-errno) : adopt(gpu, ref, place.size, copy, segment_p);
}

CUresult segment_open(struct gpu *gpu, struct gpu_ref ref, struct segment **segment_p)
{
    struct memlock_id memory;
    struct gpu_place place;
    char path[64];
    int fd;

    if (!gpu_place(gpu, ref, &place)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *segment_p = find(gpu, ref);
    if (*segment_p) {
        segment_get(*segment_p);
        return CUDA_SUCCESS;
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", place.pid, place.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* The number may be another process's or another file's by now. */
    if (memlock_identify(fd, &memory) < 0 || memory.inode != place.memory.inode ||
        memory.device != place.memory.device || memlock_take(fd) < 0) {
        close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return adopt(gpu, ref, place.size, fd, segment_p);
}

CUresult segment_export(struct segment *segment, int *fd_p)
{
    int fd = fcntl(segment->fd, F_DUPFD_CLOEXEC, 3);

    if (fd < 0) {
        return call_errno(-errno);
    }
    gpu_mark_exported(segment->gpu, segment->ref);
    *fd_p = fd;
    return CUDA_SUCCESS;
}

void segment_get(struct segment *segment)
{
    segment->n_refs++;
}

void segment_put(struct segment *segment)
{
    struct segment **at = &segments;

    if (--segment->n_refs > 0) {
        return;
    }
    while (*at != segment) {
        at = &(*at)->next;
    }
    *at = segment->next;
    gpu_leave(segment->gpu, segment->ref, segment->created ? segment->fd : -1);
    close(segment->fd);
    free(segment);
}

bool segments_exist(void)
{
    return segments != NULL;
}

void segments_forked(void)
{
    for (struct segment *segment = segments; segment; segment = segment->next) {
        close(segment->fd);
        segment->fd = -1;
    }
}
