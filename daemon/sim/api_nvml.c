/*
 * api_nvml - what NVML says of a simulated GPU
 *
 * Its memory, by uuid, of every GPU of the run directory, whatever
 * CUDA_VISIBLE_DEVICES hides. It needs no cuInit() and holds nothing of the
 * device.
 */
#include "api.h"

#include "device.h"

/* nvmlReturn_t */
#define NVML_ERROR_UNINITIALIZED 1
#define NVML_ERROR_INVALID_ARGUMENT 2
#define NVML_ERROR_NOT_FOUND 6
#define NVML_ERROR_ARGUMENT_VERSION_MISMATCH 25

static unsigned int n_users;

int nvmlInit_v2(void)
{
    char why[256];
    int result = call_enter_nvml(CALL_nvmlInit);

    if (result == 0 && cubiemem_sim_set_run_dir_again(why, sizeof(why)) < 0) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    }
    if (result == 0) {
        sim_lock();
        if (!call_is_initialised()) {
            device_scan();
        }
        n_users++;
        sim_unlock();
    }
    return result;
}

int nvmlShutdown(void)
{
    int result = call_enter_nvml(CALL_nvmlShutdown);

    sim_lock();
    if (result == 0 && n_users == 0) {
        result = NVML_ERROR_UNINITIALIZED;
    } else if (result == 0) {
        n_users--;
    }
    sim_unlock();
    return result;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    int result = call_enter_nvml(CALL_nvmlDeviceGetHandleByUUID);
    struct gpu *gpu;

    if (result != 0) {
        return result;
    }
    if (!uuid || !device) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    sim_lock();
    gpu = device_gpu_by_uuid(uuid);
    if (n_users == 0) {
        result = NVML_ERROR_UNINITIALIZED;
    } else if (!gpu) {
        result = NVML_ERROR_NOT_FOUND;
    } else {
        *device = gpu;
    }
    sim_unlock();
    return result;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct nvml_memory *memory)
{
    int result = call_enter_nvml(CALL_nvmlDeviceGetMemoryInfo);
    struct gpu *gpu;

    if (result != 0) {
        return result;
    }
    if (!memory) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (memory->version != NVML_MEMORY_VERSION) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    sim_lock();
    gpu = device_gpu_by_handle(device);
    if (n_users == 0) {
        result = NVML_ERROR_UNINITIALIZED;
    } else if (!gpu) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    } else {
        memory->total = gpu->size;
        memory->reserved = 0;
        memory->free = gpu_free(gpu);
        memory->used = memory->total - memory->free;
    }
    sim_unlock();
    return result;
}
