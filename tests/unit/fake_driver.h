/*
 * fake_driver - the few driver functions that the device layer calls, in a test's hand
 *
 * Segments are memfds. A test counts calls, makes the n-th creation fail, and holds
 * releases at a gate for as long as it likes, which no real time-out could do as
 * well. What the simulated driver can do by itself is tested with that one.
 */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "device.h"

#define FAKE_GRANULARITY (2ull << 20)
#define FAKE_TOTAL (64ull << 20)

static struct {
    _Atomic int n_create, n_release, n_live;
    _Atomic int fail_create_at; /* the n-th creation fails; 0: none */
    _Atomic int fail_export_at;
    _Atomic int n_export;
    _Atomic uint64_t used;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool gate_closed;
    _Atomic int n_at_gate;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

static uint64_t fake_sizes[4096]; /* by handle */

static CUresult CUDAAPI fake_create(CUmemGenericAllocationHandle *handle, size_t size,
                                    const CUmemAllocationProp *prop, unsigned long long flags)
{
    (void)prop;
    (void)flags;
    const int n = atomic_fetch_add(&fake.n_create, 1) + 1;
    if (n == fake.fail_create_at || fake.used + size > FAKE_TOTAL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake.used += size;
    fake.n_live++;
    fake_sizes[n % 4096] = size;
    *handle = (CUmemGenericAllocationHandle)n;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI fake_export(void *shareable, CUmemGenericAllocationHandle handle,
                                    CUmemAllocationHandleType type, unsigned long long flags)
{
    (void)handle;
    (void)type;
    (void)flags;
    if (++fake.n_export == fake.fail_export_at) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    int fd = memfd_create("fake", 0);
    if (fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    memcpy(shareable, &fd, sizeof(fd));
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI fake_release(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&fake.lock);
    fake.n_at_gate++;
    while (fake.gate_closed) {
        pthread_cond_wait(&fake.opened, &fake.lock);
    }
    fake.n_at_gate--;
    pthread_mutex_unlock(&fake.lock);
    fake.used -= fake_sizes[handle % 4096];
    fake.n_release++;
    fake.n_live--;
    return CUDA_SUCCESS;
}

static int fake_memory(void *device, struct nvml_memory *memory)
{
    (void)device;
    memory->total = FAKE_TOTAL;
    memory->used = fake.used;
    memory->free = FAKE_TOTAL - fake.used;
    return 0;
}

static inline void fake_gate(bool closed)
{
    pthread_mutex_lock(&fake.lock);
    fake.gate_closed = closed;
    pthread_cond_broadcast(&fake.opened);
    pthread_mutex_unlock(&fake.lock);
}

static inline void fake_device_init(struct device *device)
{
    memset(device, 0, sizeof(*device));
    device->driver.cuMemCreate = fake_create;
    device->driver.cuMemExportToShareableHandle = fake_export;
    device->driver.cuMemRelease = fake_release;
    device->driver.nvmlDeviceGetMemoryInfo = fake_memory;
    device->total = FAKE_TOTAL;
    device->granularity = FAKE_GRANULARITY;
    atomic_init(&device->next_id, 1);
    fake.n_create = fake.n_release = fake.n_live = 0;
    fake.fail_create_at = fake.fail_export_at = fake.n_export = 0;
    fake.used = 0;
    fake_gate(false);
}

#endif
