/*
 * device - the GPU of this daemon, without a context on it
 *
 * What a --device text means, how the driver is brought up for it, and the few calls that
 * need no context. A failure keeps its cause: the driver's answer travels beside
 * our status, and nothing half made is left behind.
 */
#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "checked.h"
#include "cubiemem.h"

#define SIM_DEFAULT_SIZE (1ull << 30)
#define SIM_DEFAULT_NAME "sim0"
#define SIM_MAX_NAME 63u
#define MAX_ORDINAL 1023u
#define NVML_ERROR_GPU_LOST 15
#define CUDA_ERROR_STUB 34 /* CUDA_ERROR_STUB_LIBRARY, not in every cuda.h */

enum spec_kind { SPEC_SIM, SPEC_ORDINAL, SPEC_UUID };

struct spec {
    enum spec_kind kind;
    uint64_t size; /* sim */
    char name[SIM_MAX_NAME + 1];
    int ordinal;
    char uuid[UUID_TEXT_SIZE];
};

__attribute__((format(printf, 4, 5))) static int fail(int status, char *why, size_t why_size,
                                                      const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, why_size, format, arguments);
    va_end(arguments);
    return status;
}

/* ------------------------------------------------------------------ spec */

static bool sim_name_is_good(const char *name)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    const size_t length = strspn(name, good);

    return length > 0 && length <= SIM_MAX_NAME && name[length] == '\0' && name[0] != '.';
}

/* What follows "sim": "[:SIZE][,NAME]" */
static int spec_parse_sim(const char *text, struct spec *spec, char *why, size_t why_size)
{
    char size[32];
    const char *name = SIM_DEFAULT_NAME;

    spec->kind = SPEC_SIM;
    spec->size = SIM_DEFAULT_SIZE;
    if (*text == ':') {
        const size_t length = strcspn(++text, ",");
        if (length < sizeof(size)) {
            memcpy(size, text, length);
            size[length] = '\0';
        }
        if (length >= sizeof(size) || !size_parse(size, &spec->size) || spec->size == 0) {
            return fail(CUBIEMEM_INVALID_REQUEST, why, why_size,
                        "sim:SIZE wants a size such as 64MiB, above 0");
        }
        text += length;
    }
    if (*text == ',') {
        name = text + 1;
    }
    if (!sim_name_is_good(name)) {
        return fail(CUBIEMEM_INVALID_REQUEST, why, why_size,
                    "sim,NAME wants 1 to %u letters, digits, '_', '-' or '.'", SIM_MAX_NAME);
    }
    memcpy(spec->name, name, strlen(name) + 1);
    return CUBIEMEM_OK;
}

/* What follows "cuda:" */
static int spec_parse_ordinal(const char *text, struct spec *spec, char *why, size_t why_size)
{
    const size_t length = strspn(text, "0123456789");

    if (length == 0 || length > 4 || text[length] != '\0' ||
        strtoul(text, NULL, 10) > MAX_ORDINAL) {
        return fail(CUBIEMEM_INVALID_REQUEST, why, why_size,
                    "cuda:ORDINAL wants a number such as 0");
    }
    spec->kind = SPEC_ORDINAL;
    spec->ordinal = (int)strtoul(text, NULL, 10);
    return CUBIEMEM_OK;
}

static bool uuid_is_well_formed(const char *text)
{
    static const char form[] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

    if (strlen(text) != sizeof(form) - 1) {
        return false;
    }
    for (size_t i = 0; i < sizeof(form) - 1; i++) {
        const bool fits = form[i] == 'x' ? strchr("0123456789abcdefABCDEF", text[i]) != NULL
                                         : text[i] == form[i];
        if (!fits) {
            return false;
        }
    }
    return true;
}

static int spec_parse(const char *text, struct spec *spec_p, char *why, size_t why_size)
{
    struct spec spec = {0};
    int status = CUBIEMEM_OK;

    if (strncmp(text, "sim", 3) == 0 && (text[3] == '\0' || text[3] == ':' || text[3] == ',')) {
        status = spec_parse_sim(text + 3, &spec, why, why_size);
    } else if (strncmp(text, "cuda:", 5) == 0) {
        status = spec_parse_ordinal(text + 5, &spec, why, why_size);
    } else if (uuid_is_well_formed(text)) {
        spec.kind = SPEC_UUID;
        memcpy(spec.uuid, text, strlen(text) + 1);
    } else {
        status = fail(CUBIEMEM_INVALID_REQUEST, why, why_size,
                      "sim[:SIZE][,NAME], cuda:ORDINAL or a UUID as nvidia-smi -L shows it "
                      "(GPU-...) is wanted");
    }
    if (status == CUBIEMEM_OK) {
        *spec_p = spec;
    }
    return status;
}

int device_spec_check(const char *spec, char *why, size_t why_size)
{
    struct spec parsed;
    return spec_parse(spec, &parsed, why, why_size);
}

/* --------------------------------------------------------------- statuses */

int device_status(CUresult result)
{
    switch ((int)result) {
    case CUDA_SUCCESS:
        return CUBIEMEM_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return CUBIEMEM_NO_MEMORY;
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
        return CUBIEMEM_DEVICE_LOST;
    default:
        return CUBIEMEM_CUDA;
    }
}

static int cuda_failed(const struct device *device, CUresult result, const char *call, char *why,
                       size_t why_size)
{
    char text[128];

    return fail(device_status(result), why, why_size, "%s: %s", call,
                driver_error(&device->driver, result, text));
}

/* --------------------------------------------------------------- opening */

static int driver_init(struct device *device, char *why, size_t why_size)
{
    CUresult result = device->driver.cuInit(0);

    if (result == CUDA_SUCCESS) {
        return CUBIEMEM_OK;
    }
    int status = cuda_failed(device, result, "cuInit", why, why_size);
    switch ((int)result) {
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_STUB:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return CUBIEMEM_NOT_FOUND;
    default:
        return status;
    }
}

static bool read_uuid(const struct device *device, int ordinal, CUdevice *handle_p,
                      char uuid_p[UUID_TEXT_SIZE])
{
    CUuuid uuid;

    if (device->driver.cuDeviceGet(handle_p, ordinal) != CUDA_SUCCESS ||
        device->driver.cuDeviceGetUuid(&uuid, *handle_p) != CUDA_SUCCESS) {
        return false;
    }
    uuid_format(&uuid, uuid_p);
    return true;
}

static int find_uuid(struct device *device, const char *uuid, char *why, size_t why_size)
{
    int n = 0;

    if (device->driver.cuDeviceGetCount(&n) != CUDA_SUCCESS) {
        n = 0;
    }
    for (int i = 0; i < n; i++) {
        CUdevice handle;
        char text[UUID_TEXT_SIZE];
        if (read_uuid(device, i, &handle, text) && strcasecmp(text, uuid) == 0) {
            device->ordinal = i;
            device->device = handle;
            memcpy(device->uuid, text, sizeof(text));
            return CUBIEMEM_OK;
        }
    }
    return fail(CUBIEMEM_NOT_FOUND, why, why_size, "no GPU %s among the %d that can be seen here",
                uuid, n);
}

static int find_ordinal(struct device *device, int ordinal, char *why, size_t why_size)
{
    int n = 0;

    if (device->driver.cuDeviceGetCount(&n) != CUDA_SUCCESS || ordinal >= n) {
        return fail(CUBIEMEM_NOT_FOUND, why, why_size, "no GPU %d: %d can be seen here", ordinal,
                    n);
    }
    if (!read_uuid(device, ordinal, &device->device, device->uuid)) {
        return fail(CUBIEMEM_NOT_FOUND, why, why_size, "GPU %d does not tell its UUID", ordinal);
    }
    device->ordinal = ordinal;
    return CUBIEMEM_OK;
}

static int attribute(const struct device *device, CUdevice_attribute name)
{
    int value = 0;

    return device->driver.cuDeviceGetAttribute(&value, name, device->device) == CUDA_SUCCESS ? value
                                                                                            : 0;
}

/* What does not change about a device that was found. */
static int read_properties(struct device *device, char *why, size_t why_size)
{
    const struct driver *driver = &device->driver;
    size_t total, granularity;

    CUresult result = driver->cuDeviceGetName(device->name, sizeof(device->name), device->device);
    if (result != CUDA_SUCCESS) {
        return cuda_failed(device, result, "cuDeviceGetName", why, why_size);
    }
    device->name[sizeof(device->name) - 1] = '\0';
    result = driver->cuDeviceTotalMem(&total, device->device);
    if (result != CUDA_SUCCESS) {
        return cuda_failed(device, result, "cuDeviceTotalMem", why, why_size);
    }
    if (!attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
        !attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        return fail(CUBIEMEM_CUDA, why, why_size,
                    "%s cannot share memory by file descriptors (virtual memory management)",
                    device->name);
    }
    device->prop = segment_prop(device->device);
    result = driver->cuMemGetAllocationGranularity(&granularity, &device->prop,
                                                   CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS || granularity == 0) {
        return cuda_failed(device, result, "cuMemGetAllocationGranularity", why, why_size);
    }
    device->total = total;
    device->granularity = granularity;
    device->exclusive = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) != 0;
    return CUBIEMEM_OK;
}

static int open_nvml(struct device *device, char *why, size_t why_size)
{
    int error = device->driver.nvmlInit();

    if (error != 0) {
        return fail(CUBIEMEM_CUDA, why, why_size, "nvmlInit: NVML error %d", error);
    }
    error = device->driver.nvmlDeviceGetHandleByUUID(device->uuid, &device->nvml);
    if (error != 0) {
        device->driver.nvmlShutdown();
        return fail(CUBIEMEM_CUDA, why, why_size, "NVML does not know %s: error %d", device->uuid,
                    error);
    }
    return CUBIEMEM_OK;
}

static int set_run_dir(struct device *device, const char *run_dir, char *why, size_t why_size)
{
    const size_t length = strlen(run_dir);

    if (length >= sizeof(device->run_dir)) {
        return fail(CUBIEMEM_INVALID_REQUEST, why, why_size, "run directory of %zu bytes", length);
    }
    memcpy(device->run_dir, run_dir, length + 1);
    return CUBIEMEM_OK;
}

/* Find and read the device of a loaded driver. */
static int find(struct device *device, const struct spec *spec, bool with_nvml, char *why,
                size_t why_size)
{
    int status = driver_init(device, why, why_size);

    if (status == CUBIEMEM_OK) {
        status = spec->kind == SPEC_UUID ? find_uuid(device, spec->uuid, why, why_size)
                                         : find_ordinal(device, spec->ordinal, why, why_size);
    }
    if (status == CUBIEMEM_OK) {
        status = read_properties(device, why, why_size);
    }
    if (status == CUBIEMEM_OK && with_nvml) {
        status = open_nvml(device, why, why_size);
    }
    return status;
}

static int open_spec(struct spec *spec, bool simulated, const char *run_dir, bool with_nvml,
                     struct device *device_p, char *why, size_t why_size)
{
    struct device device = {.simulated = simulated, .next_id = 1};
    const enum driver_parts parts = with_nvml ? DRIVER_PART_CUDA | DRIVER_PART_NVML
                                              : DRIVER_PART_CUDA;

    int status = set_run_dir(&device, run_dir, why, why_size);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    if (driver_load(simulated ? DRIVER_SIM : DRIVER_CUDA, parts, run_dir, &device.driver, why,
                    why_size) != 0) {
        return CUBIEMEM_NOT_FOUND;
    }
    if (spec->kind == SPEC_SIM && driver_sim_add(&device.driver, run_dir, spec->name, spec->size,
                                                 &spec->ordinal, why, why_size) != 0) {
        status = CUBIEMEM_SYSTEM;
    }
    if (status == CUBIEMEM_OK) {
        status = find(&device, spec, with_nvml, why, why_size);
    }
    if (status != CUBIEMEM_OK) {
        driver_unload(&device.driver);
        return status;
    }
    *device_p = device;
    return CUBIEMEM_OK;
}

int device_open(const char *text, const char *run_dir, struct device *device_p, char *why,
                size_t why_size)
{
    struct spec spec;

    int status = spec_parse(text, &spec, why, why_size);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    return open_spec(&spec, spec.kind == SPEC_SIM, run_dir, true, device_p, why, why_size);
}

int device_open_uuid(const char *uuid, bool simulated, const char *run_dir,
                     struct device *device_p, char *why, size_t why_size)
{
    struct spec spec = {.kind = SPEC_UUID};

    if (!uuid_is_well_formed(uuid)) {
        return fail(CUBIEMEM_INVALID_REQUEST, why, why_size, "this is no UUID of a GPU");
    }
    memcpy(spec.uuid, uuid, strlen(uuid) + 1);
    return open_spec(&spec, simulated, run_dir, false, device_p, why, why_size);
}

void device_close(struct device *device)
{
    if (device->nvml != NULL) {
        device->driver.nvmlShutdown();
        device->nvml = NULL;
    }
    driver_unload(&device->driver);
}

/* -------------------------------------------------------------- segments */

/* What the driver does with descriptors may fail for lack of them, which its answer
 * does not say: so try to have a few, as it may need more than one at a time. */
static bool fds_are_short(void)
{
    int fds[4], n = 0;

    while (n < 4 && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
        n++;
    }
    bool are_short = n < 4 && (errno == EMFILE || errno == ENFILE);
    while (n > 0) {
        close(fds[--n]);
    }
    return are_short;
}

static int segment_fill(struct device *device, uint64_t size, struct segment *segment,
                        CUresult *result_p)
{
    const struct driver *driver = &device->driver;
    int fd = -1;

    *result_p = driver->cuMemCreate(&segment->handle, size, &device->prop, 0);
    if (*result_p != CUDA_SUCCESS) {
        return fds_are_short() ? CUBIEMEM_NO_FDS : device_status(*result_p);
    }
    *result_p = driver->cuMemExportToShareableHandle(&fd, segment->handle,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (*result_p != CUDA_SUCCESS) {
        int status = fds_are_short() ? CUBIEMEM_NO_FDS : device_status(*result_p);
        driver->cuMemRelease(segment->handle);
        return status;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC); /* fails for no open descriptor */
    segment->fd = fd;
    segment->size = size;
    return CUBIEMEM_OK;
}

int device_segment_create(struct device *device, uint64_t size, struct segment **segment_p,
                          CUresult *result_p)
{
    *result_p = CUDA_SUCCESS;
    if (size == 0 || size % device->granularity != 0) {
        return CUBIEMEM_INVALID_REQUEST;
    }
    struct segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    int status = segment_fill(device, size, segment, result_p);
    if (status != CUBIEMEM_OK) {
        free(segment);
        return status;
    }
    segment->id = atomic_fetch_add(&device->next_id, 1);
    *segment_p = segment;
    return CUBIEMEM_OK;
}

CUresult device_segment_let_go(struct device *device, struct segment *segment)
{
    if (segment->fd < 0) {
        return CUDA_SUCCESS;
    }
    close(segment->fd);
    segment->fd = -1;
    return device->driver.cuMemRelease(segment->handle);
}

void device_segment_destroy(struct device *device, struct segment *segment)
{
    if (segment != NULL) {
        device_segment_let_go(device, segment);
        free(segment);
    }
}

int device_memory(struct device *device, uint64_t *total_p, uint64_t *free_p)
{
    struct nvml_memory memory = {.version = NVML_MEMORY_VERSION};

    int error = device->driver.nvmlDeviceGetMemoryInfo(device->nvml, &memory);
    if (error != 0) {
        return error == NVML_ERROR_GPU_LOST ? CUBIEMEM_DEVICE_LOST : CUBIEMEM_CUDA;
    }
    *total_p = memory.total;
    *free_p = memory.free;
    return CUBIEMEM_OK;
}
