/*
 * driver - load a driver's functions into the table
 *
 * One loop over one list of names per library. The rule: all or nothing; a
 * driver that lacks a symbol is closed again and the first missing symbol is
 * named. The libraries are opened but never unmapped (RTLD_NODELETE): both the
 * NVIDIA driver and the simulated one may have threads of their own that
 * outlive driver_unload().
 *
 * What the functions do, and in which order they are called, is their callers'
 * affair.
 */
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIM_LIBRARY "libcubiemem-sim.so"
#define PATH_SIZE 4096

struct symbol {
    const char *name;
    size_t offset; /* of the pointer in struct driver */
};

static const struct symbol cuda_symbols[] = {
#define DRIVER_SYMBOL(member, symbol, parameters) {#symbol, offsetof(struct driver, member)},
    DRIVER_CUDA_MAP(DRIVER_SYMBOL)
};

static const struct symbol nvml_symbols[] = {
    DRIVER_NVML_MAP(DRIVER_SYMBOL)
#undef DRIVER_SYMBOL
};

#define N_ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))

__attribute__((format(printf, 3, 4))) static int driver_fail(char *why, size_t why_size,
                                                             const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, why_size, format, arguments);
    va_end(arguments);
    return -1;
}

static int load_symbols(void *library, const char *path, const struct symbol *symbols, size_t n,
                        struct driver *driver, char *why, size_t why_size)
{
    for (size_t i = 0; i < n; i++) {
        void *function = dlsym(library, symbols[i].name);

        if (!function) {
            return driver_fail(why, why_size, "%s has no symbol %s; a newer driver is needed", path,
                               symbols[i].name);
        }
        memcpy((char *)driver + symbols[i].offset, &function, sizeof(function));
    }
    return 0;
}

static void *load_library(const char *path, char *why, size_t why_size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (!library) {
        driver_fail(why, why_size, "cannot load %s: %s", path, dlerror());
    }
    return library;
}

/* The simulated driver's library: $CUBIEMEM_SIM, else beside the object that
 * this function is linked into, else in the lib directory next to that one. */
static int sim_path(char path_p[PATH_SIZE], char *why, size_t why_size)
{
    const char *places[] = {"", "../lib/"};
    const char *chosen = getenv("CUBIEMEM_SIM");
    char self[PATH_SIZE];
    Dl_info info;
    char *slash;

    if (chosen && *chosen) {
        if ((size_t)snprintf(path_p, PATH_SIZE, "%s", chosen) >= PATH_SIZE) {
            return driver_fail(why, why_size, "CUBIEMEM_SIM is longer than a path can be");
        }
        return 0;
    }
    if (!dladdr((const void *)cuda_symbols, &info) || !info.dli_fname ||
        !realpath(info.dli_fname, self)) {
        /* A program that was found in PATH knows itself by its bare name. */
        ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

        if (length < 0) {
            return driver_fail(why, why_size,
                               "cannot tell where " SIM_LIBRARY " is; set CUBIEMEM_SIM to its path");
        }
        self[length] = '\0';
    }
    slash = strrchr(self, '/');
    *(slash ? slash + 1 : self) = '\0';
    for (size_t i = 0; i < N_ELEMENTS(places); i++) {
        int length = snprintf(path_p, PATH_SIZE, "%s%s" SIM_LIBRARY, self, places[i]);

        if (length > 0 && length < PATH_SIZE && access(path_p, R_OK) == 0) {
            return 0;
        }
    }
    return driver_fail(why, why_size,
                       "no " SIM_LIBRARY " in %s or %s../lib; set CUBIEMEM_SIM to its path", self,
                       self);
}

static int sim_set_run_dir(const struct driver *driver, const char *run_dir, char *why,
                           size_t why_size)
{
    int (*set)(const char *, char *, size_t) =
        (int (*)(const char *, char *, size_t))dlsym(driver->cuda_library,
                                                     "cubiemem_sim_set_run_dir");

    if (!set) {
        return driver_fail(why, why_size, "the simulated driver has no cubiemem_sim_set_run_dir");
    }
    return set(run_dir, why, why_size);
}

static int load_sim(enum driver_parts parts, const char *run_dir, struct driver *driver, char *why,
                    size_t why_size)
{
    char path[PATH_SIZE];

    if (sim_path(path, why, why_size) < 0) {
        return -1;
    }
    driver->simulated = true;
    driver->cuda_library = load_library(path, why, why_size);
    if (!driver->cuda_library ||
        load_symbols(driver->cuda_library, path, cuda_symbols, N_ELEMENTS(cuda_symbols), driver,
                     why, why_size) < 0) {
        return -1;
    }
    if ((parts & DRIVER_PART_NVML) &&
        load_symbols(driver->cuda_library, path, nvml_symbols, N_ELEMENTS(nvml_symbols), driver,
                     why, why_size) < 0) {
        return -1;
    }
    driver->simDelay =
        (CUresult(*)(CUstream, uint64_t))dlsym(driver->cuda_library, "cubiememSimDelay");
    if (!driver->simDelay) {
        return driver_fail(why, why_size, "%s is not the simulated driver", path);
    }
    return sim_set_run_dir(driver, run_dir, why, why_size);
}

static int load_nvidia(enum driver_parts parts, struct driver *driver, char *why, size_t why_size)
{
    if (parts & DRIVER_PART_CUDA) {
        driver->cuda_library = load_library("libcuda.so.1", why, why_size);
        if (!driver->cuda_library ||
            load_symbols(driver->cuda_library, "libcuda.so.1", cuda_symbols,
                         N_ELEMENTS(cuda_symbols), driver, why, why_size) < 0) {
            return -1;
        }
    }
    if (parts & DRIVER_PART_NVML) {
        driver->nvml_library = load_library("libnvidia-ml.so.1", why, why_size);
        if (!driver->nvml_library ||
            load_symbols(driver->nvml_library, "libnvidia-ml.so.1", nvml_symbols,
                         N_ELEMENTS(nvml_symbols), driver, why, why_size) < 0) {
            return -1;
        }
    }
    return 0;
}

int driver_load(enum driver_kind kind, enum driver_parts parts, const char *run_dir,
                struct driver *driver_p, char *why, size_t why_size)
{
    struct driver driver = {0};
    int result = kind == DRIVER_SIM ? load_sim(parts, run_dir, &driver, why, why_size)
                                    : load_nvidia(parts, &driver, why, why_size);

    if (result < 0) {
        driver_unload(&driver);
        return -1;
    }
    *driver_p = driver;
    return 0;
}

void driver_unload(struct driver *driver)
{
    if (driver->cuda_library) {
        dlclose(driver->cuda_library);
    }
    if (driver->nvml_library) {
        dlclose(driver->nvml_library);
    }
    memset(driver, 0, sizeof(*driver));
}

int driver_sim_add(struct driver *driver, const char *run_dir, const char *name, uint64_t size,
                   int *ordinal_p, char *why, size_t why_size)
{
    int (*add)(const char *, uint64_t, int *, char *, size_t);

    if (!driver->simulated) {
        return driver_fail(why, why_size, "a simulated GPU needs the simulated driver");
    }
    if (sim_set_run_dir(driver, run_dir, why, why_size) < 0) {
        return -1;
    }
    add = (int (*)(const char *, uint64_t, int *, char *, size_t))dlsym(driver->cuda_library,
                                                                        "cubiemem_sim_add");
    if (!add) {
        return driver_fail(why, why_size, "the simulated driver has no cubiemem_sim_add");
    }
    return add(name, size, ordinal_p, why, why_size);
}

const char *driver_error(const struct driver *driver, CUresult error, char buffer[128])
{
    const char *name = NULL;
    const char *text = NULL;

    if (!driver->cuGetErrorName || driver->cuGetErrorName(error, &name) != CUDA_SUCCESS || !name) {
        snprintf(buffer, 128, "CUDA error %d", (int)error);
    } else if (driver->cuGetErrorString(error, &text) != CUDA_SUCCESS || !text) {
        snprintf(buffer, 128, "%s", name);
    } else {
        snprintf(buffer, 128, "%s (%s)", name, text);
    }
    return buffer;
}

void uuid_format(const CUuuid *uuid, char text_p[UUID_TEXT_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    char *at = text_p;

    memcpy(at, "GPU-", 4);
    at += 4;
    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        unsigned char byte = (unsigned char)uuid->bytes[i];

        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *at++ = '-';
        }
        *at++ = digits[byte >> 4];
        *at++ = digits[byte & 15];
    }
    *at = '\0';
}

CUmemAllocationProp segment_prop(CUdevice device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}
