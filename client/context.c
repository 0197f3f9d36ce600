/*
 * context - the device as this process sees it: driver, primary context
 *
 * Devices are found by UUID: ordinals are what CUDA_VISIBLE_DEVICES makes of
 * them, in every process otherwise.
 */
#include "context.h"

#include <stdio.h>
#include <string.h>

#include "failure.h"

static int load(struct context *context, bool simulated, const char *run_dir)
{
    char why[512];
    if (context->loaded) {
        return CUBIEMEM_OK;
    }
    if (driver_load(simulated ? DRIVER_SIM : DRIVER_CUDA, DRIVER_PART_CUDA, run_dir,
                    &context->driver, why, sizeof why) != 0) {
        return failure_set(CUBIEMEM_NOT_FOUND, "no driver for the daemon's device: %s", why);
    }
    CUresult result = context->driver.cuInit(0);
    if (result != CUDA_SUCCESS) {
        int status = failure_cuda(&context->driver, result, "cuInit");
        driver_unload(&context->driver);
        return status;
    }
    context->loaded = true;
    return CUBIEMEM_OK;
}

static int find_device(struct context *context, const char *uuid)
{
    struct driver *driver = &context->driver;
    int n = 0;
    CUresult result = driver->cuDeviceGetCount(&n);
    if (result != CUDA_SUCCESS) {
        return failure_cuda(driver, result, "cannot count the devices");
    }
    char seen[256] = "";
    for (int i = 0; i < n; i++) {
        CUdevice device;
        CUuuid found;
        char text[UUID_TEXT_SIZE];
        if (driver->cuDeviceGet(&device, i) != CUDA_SUCCESS ||
            driver->cuDeviceGetUuid(&found, device) != CUDA_SUCCESS) {
            continue;
        }
        uuid_format(&found, text);
        if (strcmp(text, uuid) == 0) {
            context->device = device;
            return CUBIEMEM_OK;
        }
        size_t used = strlen(seen);
        snprintf(seen + used, sizeof seen - used, "%s%s", used > 0 ? ", " : "", text);
    }
    return failure_set(CUBIEMEM_DEVICE_MISMATCH,
                       "the daemon's device %s is not among those that this process sees (%s): "
                       "see CUDA_VISIBLE_DEVICES",
                       uuid, n > 0 ? seen : "none");
}

int context_open(struct context *context, bool simulated, const char *run_dir, const char *uuid)
{
    struct driver *driver = &context->driver;
    if (context->ready) {
        return CUBIEMEM_OK;
    }
    int status = load(context, simulated, run_dir);
    if (status == CUBIEMEM_OK) {
        status = find_device(context, uuid);
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    CUresult result = driver->cuDevicePrimaryCtxRetain(&context->context, context->device);
    if (result != CUDA_SUCCESS) {
        return failure_cuda(driver, result, "cannot make a context on device %s", uuid);
    }
    struct context_guard guard;
    status = context_enter(context, &guard);
    if (status != CUBIEMEM_OK) {
        goto release;
    }
    result = driver->cuEventCreate(&context->probe, CU_EVENT_DISABLE_TIMING);
    context_leave(context, &guard);
    if (result != CUDA_SUCCESS) {
        status = failure_cuda(driver, result, "cannot make an event on device %s", uuid);
        goto release;
    }
    int supported = 0;
    driver->cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                 context->device);
    context->stream_values = supported != 0;
    snprintf(context->uuid, sizeof context->uuid, "%s", uuid);
    context->ready = true;
    return CUBIEMEM_OK;

release:
    driver->cuDevicePrimaryCtxRelease(context->device);
    return status;
}

void context_close(struct context *context)
{
    struct context_guard guard;
    if (context->ready) {
        if (context_enter(context, &guard) == CUBIEMEM_OK) {
            context->driver.cuEventDestroy(context->probe);
            context_leave(context, &guard);
        }
        context->driver.cuDevicePrimaryCtxRelease(context->device);
        context->ready = false;
    }
    if (context->loaded) {
        driver_unload(&context->driver);
        context->loaded = false;
    }
}

int context_push(struct context *context, struct context_guard *guard)
{
    CUcontext current = NULL;
    guard->pushed = false;
    if (context->driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
        current == context->context) {
        return CUBIEMEM_OK;
    }
    CUresult result = context->driver.cuCtxPushCurrent(context->context);
    if (result != CUDA_SUCCESS) {
        return failure_cuda(&context->driver, result, "cannot use the device's context");
    }
    guard->pushed = true;
    return CUBIEMEM_OK;
}

void context_pop(struct context *context, struct context_guard *guard)
{
    CUcontext popped;
    if (guard->pushed) {
        context->driver.cuCtxPopCurrent(&popped);
    }
}

int context_enter(struct context *context, struct context_guard *guard)
{
    int status = context_push(context, guard);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    guard->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = context->driver.cuThreadExchangeStreamCaptureMode(&guard->mode);
    if (result != CUDA_SUCCESS) {
        context_pop(context, guard);
        return failure_cuda(&context->driver, result, "cannot change the capture mode");
    }
    return CUBIEMEM_OK;
}

void context_leave(struct context *context, struct context_guard *guard)
{
    context->driver.cuThreadExchangeStreamCaptureMode(&guard->mode);
    context_pop(context, guard);
}

int context_probe(struct context *context)
{
    struct context_guard guard;
    int status = context_enter(context, &guard);
    if (status != CUBIEMEM_OK) {
        return CUBIEMEM_DEVICE_LOST;
    }
    CUresult result = context->driver.cuEventQuery(context->probe);
    context_leave(context, &guard);
    if (result == CUDA_SUCCESS) {
        return CUBIEMEM_OK;
    }
    failure_cuda(&context->driver, result, "the device does not answer");
    return CUBIEMEM_DEVICE_LOST;
}
