/*
 * driver - the run-time tables of CUDA driver and NVML symbols, for both sides
 *
 * libcuda and libnvidia-ml are loaded, never linked; on the simulated device
 * libcubiemem-sim.so fills the same tables. Everything that touches a device
 * goes through a `struct driver`.
 *
 * The symbols are the driver's own exported names (with their _v2 and so on),
 * called by the names below without the suffix: driver->cuMemCreate(...).
 */
#ifndef PROTO_DRIVER_H
#define PROTO_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_decl.h"

/* clang-format off */
/* X(member, exported symbol, parameters) - all return CUresult */
#define DRIVER_CUDA_MAP(X)                                                                        \
    X(cuInit, cuInit, (unsigned int flags))                                                       \
    X(cuDriverGetVersion, cuDriverGetVersion, (int *version))                                     \
    X(cuGetErrorName, cuGetErrorName, (CUresult error, const char **text))                        \
    X(cuGetErrorString, cuGetErrorString, (CUresult error, const char **text))                    \
    X(cuDeviceGetCount, cuDeviceGetCount, (int *count))                                           \
    X(cuDeviceGet, cuDeviceGet, (CUdevice *device, int ordinal))                                  \
    X(cuDeviceGetName, cuDeviceGetName, (char *name, int length, CUdevice device))                \
    X(cuDeviceGetUuid, cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device))                       \
    X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device)) \
    X(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t *size, CUdevice device))                     \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))  \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                 \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active)) \
    X(cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext *context))                                     \
    X(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext context))                                      \
    X(cuCtxGetDevice, cuCtxGetDevice, (CUdevice *device))                                         \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext context))                                 \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext *context))                                  \
    X(cuCtxSynchronize, cuCtxSynchronize, (void))                                                 \
    X(cuMemGetInfo, cuMemGetInfo_v2, (size_t *free, size_t *total))                               \
    X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, (size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)) \
    X(cuMemCreate, cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)) \
    X(cuMemRelease, cuMemRelease, (CUmemGenericAllocationHandle handle))                          \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)) \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)) \
    X(cuMemAddressReserve, cuMemAddressReserve, (CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags)) \
    X(cuMemAddressFree, cuMemAddressFree, (CUdeviceptr address, size_t size))                     \
    X(cuMemMap, cuMemMap, (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
    X(cuMemUnmap, cuMemUnmap, (CUdeviceptr address, size_t size))                                 \
    X(cuMemSetAccess, cuMemSetAccess, (CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count)) \
    X(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr *address, size_t size))                             \
    X(cuMemFree, cuMemFree_v2, (CUdeviceptr address))                                             \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, (CUipcMemHandle *handle, CUdeviceptr address))        \
    X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, (CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)) \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, (CUdeviceptr address))                            \
    X(cuMemHostRegister, cuMemHostRegister_v2, (void *pointer, size_t size, unsigned int flags))  \
    X(cuMemHostUnregister, cuMemHostUnregister, (void *pointer))                                  \
    X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, (CUdeviceptr *address, void *pointer, unsigned int flags)) \
    X(cuMemcpyHtoD, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t size))             \
    X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t size))                   \
    X(cuMemcpyAsync, cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)) \
    X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t size, CUstream stream)) \
    X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t size, CUstream stream)) \
    X(cuMemsetD8, cuMemsetD8_v2, (CUdeviceptr address, unsigned char value, size_t n))            \
    X(cuMemsetD8Async, cuMemsetD8Async, (CUdeviceptr address, unsigned char value, size_t n, CUstream stream)) \
    X(cuMemsetD32Async, cuMemsetD32Async, (CUdeviceptr address, unsigned int value, size_t n, CUstream stream)) \
    X(cuStreamCreate, cuStreamCreate, (CUstream *stream, unsigned int flags))                     \
    X(cuStreamDestroy, cuStreamDestroy_v2, (CUstream stream))                                     \
    X(cuStreamSynchronize, cuStreamSynchronize, (CUstream stream))                                \
    X(cuStreamQuery, cuStreamQuery, (CUstream stream))                                            \
    X(cuStreamWriteValue64, cuStreamWriteValue64_v2, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)) \
    X(cuStreamWaitValue64, cuStreamWaitValue64_v2, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)) \
    X(cuStreamWaitEvent, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags)) \
    X(cuStreamIsCapturing, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status)) \
    X(cuStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode)) \
    X(cuStreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph *graph))                  \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *mode)) \
    X(cuLaunchHostFunc, cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *arg))              \
    X(cuEventCreate, cuEventCreate, (CUevent *event, unsigned int flags))                         \
    X(cuEventDestroy, cuEventDestroy_v2, (CUevent event))                                         \
    X(cuEventRecord, cuEventRecord, (CUevent event, CUstream stream))                             \
    X(cuEventQuery, cuEventQuery, (CUevent event))                                                \
    X(cuEventSynchronize, cuEventSynchronize, (CUevent event))

/* X(member, exported symbol, parameters) - all return int (nvmlReturn_t) */
#define DRIVER_NVML_MAP(X)                                                                        \
    X(nvmlInit, nvmlInit_v2, (void))                                                              \
    X(nvmlShutdown, nvmlShutdown, (void))                                                         \
    X(nvmlDeviceGetHandleByUUID, nvmlDeviceGetHandleByUUID, (const char *uuid, void **device))    \
    X(nvmlDeviceGetMemoryInfo, nvmlDeviceGetMemoryInfo_v2, (void *device, struct nvml_memory *memory))
/* clang-format on */

/* nvmlMemory_v2_t */
struct nvml_memory {
    unsigned int version; /* NVML_MEMORY_VERSION */
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
};
#define NVML_MEMORY_VERSION (sizeof(struct nvml_memory) | (2u << 24))

struct driver {
#define DRIVER_MEMBER(member, symbol, parameters) CUresult(CUDAAPI *member) parameters;
    DRIVER_CUDA_MAP(DRIVER_MEMBER)
#undef DRIVER_MEMBER
#define DRIVER_MEMBER(member, symbol, parameters) int (*member) parameters;
    DRIVER_NVML_MAP(DRIVER_MEMBER)
#undef DRIVER_MEMBER
    bool simulated;
    /* Simulated device only, else NULL (see daemon/sim/sim.h). */
    CUresult (*simDelay)(CUstream stream, uint64_t ns);
    void *cuda_library, *nvml_library;
};

enum driver_kind { DRIVER_CUDA, DRIVER_SIM };
enum driver_parts { DRIVER_PART_CUDA = 1, DRIVER_PART_NVML = 2 };

/*
 * Load a driver's tables. DRIVER_CUDA: libcuda.so.1 and, if asked for,
 * libnvidia-ml.so.1. DRIVER_SIM: libcubiemem-sim.so from $CUBIEMEM_SIM (the
 * library's path), else from beside the object that this code is linked into;
 * run_dir is the directory of the simulated GPUs' files (NULL: the
 * environment's).
 *
 * Return: 0, or -1 with one line in why: which library or symbol is missing.
 */
int driver_load(enum driver_kind kind, enum driver_parts parts, const char *run_dir,
                struct driver *driver_p, char *why, size_t why_size);
void driver_unload(struct driver *driver);

/*
 * Make the simulated GPU `name` of run_dir with this size, or adopt it where it
 * exists with it; what another process may still hold is never replaced by one
 * of another size. The ordinal is this process's, under CUDA_VISIBLE_DEVICES.
 * Before cuInit() or after it.
 *
 * Return: 0, or -1 with one line in why.
 */
int driver_sim_add(struct driver *driver, const char *run_dir, const char *name, uint64_t size,
                   int *ordinal_p, char *why, size_t why_size);

/* "CUDA_ERROR_OUT_OF_MEMORY (out of memory)", written to buffer and returned */
const char *driver_error(const struct driver *driver, CUresult error, char buffer[128]);

#define UUID_TEXT_SIZE 48
/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
void uuid_format(const CUuuid *uuid, char text_p[UUID_TEXT_SIZE]);

/* The properties with which a segment is created: pinned device memory of this
 * ordinal, exportable as a file descriptor. */
CUmemAllocationProp segment_prop(CUdevice device);

#endif
