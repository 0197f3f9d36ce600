/*
 * pinned - page-locked host memory of one array
 *
 * A memfd, allocated, mapped, registered; the descriptor is not kept.
 */
#include "pinned.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checked.h"
#include "failure.h"

static int fill(int fd, uint64_t size)
{
    int result;
    do {
        result = fallocate(fd, 0, 0, (off_t)size);
    } while (result != 0 && errno == EINTR);
    return result;
}

static int make_memory(uint64_t size, void **memory_p)
{
    int status = CUBIEMEM_OK;
    int fd = memfd_create("cubiemem-pinned", MFD_CLOEXEC);
    if (fd < 0) {
        return failure_system(errno == EMFILE || errno == ENFILE ? CUBIEMEM_NO_FDS
                                                                 : CUBIEMEM_SYSTEM,
                              errno, "cannot make a file for pinned host memory");
    }
    if (fill(fd, size) != 0) {
        status = failure_system(CUBIEMEM_HOST_MEMORY, errno,
                                "cannot get %llu bytes of pinned host memory",
                                (unsigned long long)size);
        goto out;
    }
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        status = failure_system(CUBIEMEM_HOST_MEMORY, errno,
                                "cannot map %llu bytes of pinned host memory",
                                (unsigned long long)size);
        goto out;
    }
    *memory_p = memory;
out:
    close(fd);
    return status == CUBIEMEM_OK ? status : failure_asked(status, size);
}

int pinned_create(struct context *context, uint64_t nbytes, struct pinned **pinned_p)
{
    struct context_guard guard;
    uint64_t size;
    if (nbytes == 0 || !checked_round_up(nbytes, (uint64_t)sysconf(_SC_PAGESIZE), &size) ||
        size > INT64_MAX) {
        return failure_set(CUBIEMEM_TOO_LARGE, "pinned array of %llu bytes",
                           (unsigned long long)nbytes);
    }
    struct pinned *pinned = calloc(1, sizeof *pinned);
    if (pinned == NULL) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory for a pinned array");
    }
    pinned->nbytes = nbytes;
    pinned->size = size;
    int status = make_memory(size, &pinned->memory);
    if (status != CUBIEMEM_OK) {
        goto err_free;
    }
    status = context_enter(context, &guard);
    if (status != CUBIEMEM_OK) {
        goto err_unmap;
    }
    CUresult result = context->driver.cuMemHostRegister(
        pinned->memory, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    context_leave(context, &guard);
    if (result != CUDA_SUCCESS) {
        status = failure_cuda(&context->driver, result,
                              "the driver cannot pin %llu bytes of host memory (not the GPU's "
                              "memory: see ulimit -l, the cgroup and the container's limits)",
                              (unsigned long long)size);
        if (status == CUBIEMEM_CUDA) {
            status = failure_asked(failure_recode(CUBIEMEM_HOST_MEMORY), size);
        }
        goto err_unmap;
    }
    *pinned_p = pinned;
    return CUBIEMEM_OK;

err_unmap:
    munmap(pinned->memory, size);
err_free:
    free(pinned);
    return status;
}

struct pinned *pinned_destroy(struct pinned *pinned, struct context *context)
{
    struct context_guard guard;
    if (pinned != NULL) {
        if (context_enter(context, &guard) == CUBIEMEM_OK) {
            context->driver.cuMemHostUnregister(pinned->memory);
            context_leave(context, &guard);
        }
        munmap(pinned->memory, pinned->size);
        free(pinned);
    }
    return NULL;
}
