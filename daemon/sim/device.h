/* device - the simulated GPUs that this process sees */
#ifndef DAEMON_SIM_DEVICE_H
#define DAEMON_SIM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "gpu.h"

#define N_GPUS 16

/* All under the process's lock. */
int device_scan(void);
size_t device_count(void);
/* The GPU of an ordinal as CUDA_VISIBLE_DEVICES numbers them, or NULL. */
struct gpu *device_gpu(CUdevice device);
/* A GPU by its uuid's text, visible or not, or NULL. */
struct gpu *device_gpu_by_uuid(const char *uuid);
/* What NVML calls a device, if it is one. */
struct gpu *device_gpu_by_handle(const void *handle);
/* The GPU whose books know this memory, or NULL. */
struct gpu *device_find_memory(const struct memlock_id *memory, struct gpu_ref *ref_p,
                               struct gpu_place *place_p);
/* In a forked child; used: the driver was in use before the fork. */
void device_forked(bool used);

#endif
