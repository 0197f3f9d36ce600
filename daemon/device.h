/*
 * device - the GPU of this daemon, without a context on it
 *
 * Creates, exports and releases segments and reads the free memory; one code for
 * the GPU and for the simulated device, which differ in the driver that was loaded.
 * Makes no CUDA context (DESIGN 3.1) and maps nothing. Calls of the driver may take
 * long, so all but device_open() and device_close() belong on a device thread.
 *
 * Functions may be called from several threads at once.
 */
#ifndef DEVICE_H
#define DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "endpoint.h"
#include "segment.h"

struct device {
    struct driver driver;
    CUdevice device;
    int ordinal; /* as this process sees it (CUDA_VISIBLE_DEVICES) */
    char uuid[UUID_TEXT_SIZE];
    char name[96];
    bool simulated;
    bool exclusive;       /* compute mode forbids a second context: no legacy handles */
    uint64_t total;       /* bytes that can be handed out */
    uint64_t granularity; /* bytes; of every segment's size */

    char run_dir[ENDPOINT_PATH_MAX]; /* where the simulated GPU's file lies */
    CUmemAllocationProp prop;
    void *nvml; /* nvmlDevice_t */
    _Atomic uint64_t next_id;
};

/*
 * device_spec_check() - is this text a --device at all?
 *
 * Return: CUBIEMEM_OK, or INVALID_REQUEST with one line in why. Touches nothing.
 */
int device_spec_check(const char *spec, char *why, size_t why_size);

/*
 * device_open() - load the driver and find the device
 * @spec:    "sim[:SIZE][,NAME]" (1GiB, sim0), "cuda:ORDINAL" or "GPU-UUID"
 * @run_dir: directory of the simulated GPU's file
 *
 * A GPU that is asked for is never replaced by the simulation.
 *
 * Return: CUBIEMEM_OK; INVALID_REQUEST (no such form); NOT_FOUND (no driver, no such
 * GPU); CUDA or SYSTEM. Except for OK, why gets one line and *device_p is untouched.
 */
int device_open(const char *spec, const char *run_dir, struct device *device_p, char *why,
                size_t why_size);

/*
 * device_open_uuid() - the same device in another process, by its UUID
 *
 * For the legacy helper; does not load NVML, so device_memory() does not work.
 */
int device_open_uuid(const char *uuid, bool simulated, const char *run_dir,
                     struct device *device_p, char *why, size_t why_size);

/* Unloads the driver. No segment may be left. Zeroed is fine. */
void device_close(struct device *device);

/* The cubiemem status of a driver's answer: OK, NO_MEMORY, DEVICE_LOST, NO_FDS, CUDA.  */
int device_status(CUresult result);

/*
 * device_segment_create() - make one segment and export it: both or none
 * @size: bytes, a multiple of the granularity, not 0
 *
 * Return: CUBIEMEM_OK; NO_MEMORY, NO_FDS, HOST_MEMORY, DEVICE_LOST, CUDA, or
 * INVALID_REQUEST for a bad size. *result_p is written in every case: the driver's
 * answer, CUDA_SUCCESS where it was not the driver that failed.
 */
int device_segment_create(struct device *device, uint64_t size, struct segment **segment_p,
                          CUresult *result_p);

/*
 * device_segment_let_go() - give the driver its memory back, keep the struct
 *
 * Closes the descriptor and releases the handle; the driver keeps the pages until the
 * last process that maps them is gone. The struct is for the caller to free(). A second
 * call does nothing.
 *
 * Return: the driver's answer to cuMemRelease.
 */
CUresult device_segment_let_go(struct device *device, struct segment *segment);

/* let go and free; NULL is fine. */
void device_segment_destroy(struct device *device, struct segment *segment);

/*
 * device_memory() - what NVML says of the whole device
 *
 * Return: CUBIEMEM_OK, DEVICE_LOST or CUDA.
 */
int device_memory(struct device *device, uint64_t *total_p, uint64_t *free_p);

#endif
