/*
 * device - the simulated GPUs that this process sees
 *
 * A process sees every simulated GPU of its run directory, in the order of their
 * names; CUDA_VISIBLE_DEVICES filters and reorders what the driver's functions
 * see, with numbers or the beginnings of uuids, up to the first that means
 * nothing. NVML is not concerned. The set is fixed by cuInit(), as on the real
 * driver; a GPU that this process adds later comes last.
 */
#include "device.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "context.h"
#include "driver.h"
#include "segment.h"

static char run_dir[GPU_PATH_SIZE];
static struct gpu *gpus[N_GPUS];
static size_t n_gpus;
static struct gpu *visible[N_GPUS];
static size_t n_visible;

static struct gpu *find_by_name(const char *name)
{
    for (size_t i = 0; i < n_gpus; i++) {
        if (strcmp(gpus[i]->name, name) == 0) {
            return gpus[i];
        }
    }
    return NULL;
}

/* --- visible devices --- */

static bool is_visible(const struct gpu *gpu)
{
    for (size_t i = 0; i < n_visible; i++) {
        if (visible[i] == gpu) {
            return true;
        }
    }
    return false;
}

/* The GPU that one item of CUDA_VISIBLE_DEVICES means, or NULL. */
static struct gpu *gpu_by_item(const char *item, size_t length)
{
    struct gpu *found = NULL;
    char text[UUID_TEXT_SIZE];
    char *end;
    unsigned long number;

    if (length == 0) {
        return NULL;
    }
    if (*item >= '0' && *item <= '9') {
        number = strtoul(item, &end, 10);
        return end == item + length && number < n_gpus ? gpus[number] : NULL;
    }
    for (size_t i = 0; i < n_gpus; i++) {
        uuid_format(&gpus[i]->uuid, text);
        if (length > 4 && length < sizeof(text) && strncasecmp(text, item, length) == 0) {
            if (found) {
                return NULL;
            }
            found = gpus[i];
        }
    }
    return found;
}

static void choose_visible(void)
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");

    n_visible = 0;
    if (!at) {
        for (size_t i = 0; i < n_gpus; i++) {
            visible[n_visible++] = gpus[i];
        }
        return;
    }
    while (n_visible < N_GPUS) {
        size_t length = strcspn(at, ",");
        struct gpu *gpu = gpu_by_item(at, length);

        if (!gpu) {
            return;
        }
        if (is_visible(gpu)) {
            /* named twice: no device at all, as on the real driver */
            n_visible = 0;
            return;
        }
        visible[n_visible++] = gpu;
        if (at[length] != ',') {
            return;
        }
        at += length + 1;
    }
}

/* --- the list --- */

/* Move a GPU into the list; without memory it is closed. */
static bool append(struct gpu *gpu)
{
    unsigned int number = 0;
    struct gpu *copy = malloc(sizeof(*copy));

    if (!copy) {
        gpu_close(gpu);
        return false;
    }
    *copy = *gpu;
    for (size_t i = 0; i < n_gpus; i++) {
        if (gpus[i]->number == number) {
            number++;
            i = (size_t)-1;
        }
    }
    copy->number = number;
    gpus[n_gpus++] = copy;
    return true;
}

static void close_nth(size_t i)
{
    gpu_close(gpus[i]);
    free(gpus[i]);
    memmove(&gpus[i], &gpus[i + 1], (n_gpus - i - 1) * sizeof(gpus[0]));
    n_gpus--;
    n_visible = 0;
    call_set_initialised(false);
}

static int is_gpu_file(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return length > 8 && strncmp(entry->d_name, "sim-", 4) == 0 &&
           strcmp(entry->d_name + length - 4, ".gpu") == 0;
}

static int by_name(const void *a, const void *b)
{
    const struct gpu *const *left = a;
    const struct gpu *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

int device_scan(void)
{
    struct dirent **entries = NULL;
    int n = scandir(run_dir, &entries, is_gpu_file, alphasort);
    int n_lost = 0;

    for (int i = 0; i < n; i++) {
        struct gpu gpu;
        char name[GPU_NAME_SIZE];
        size_t length = strlen(entries[i]->d_name) - 8;

        if (length < sizeof(name) && n_gpus < N_GPUS) {
            memcpy(name, entries[i]->d_name + 4, length);
            name[length] = '\0';
            if (gpu_name_is_valid(name) && !find_by_name(name) &&
                gpu_open(run_dir, name, &gpu) == 0 && !append(&gpu)) {
                n_lost++;
            }
        }
        free(entries[i]);
    }
    free(entries);
    qsort(gpus, n_gpus, sizeof(gpus[0]), by_name);
    choose_visible();
    if (n_lost > 0) {
        return -ENOMEM;
    }
    return n_visible > 0 ? 0 : -ENODEV;
}

size_t device_count(void)
{
    return n_visible;
}

struct gpu *device_gpu(CUdevice device)
{
    return device >= 0 && (size_t)device < n_visible ? visible[device] : NULL;
}

struct gpu *device_gpu_by_uuid(const char *uuid)
{
    char text[UUID_TEXT_SIZE];

    for (size_t i = 0; i < n_gpus; i++) {
        uuid_format(&gpus[i]->uuid, text);
        if (strcmp(text, uuid) == 0) {
            return gpus[i];
        }
    }
    return NULL;
}

struct gpu *device_gpu_by_handle(const void *handle)
{
    for (size_t i = 0; i < n_gpus; i++) {
        if (gpus[i] == handle) {
            return gpus[i];
        }
    }
    return NULL;
}

struct gpu *device_find_memory(const struct memlock_id *memory, struct gpu_ref *ref_p,
                               struct gpu_place *place_p)
{
    for (size_t i = 0; i < n_gpus; i++) {
        if (gpu_find(gpus[i], memory, ref_p, place_p)) {
            return gpus[i];
        }
    }
    return NULL;
}

/* Is this process free to see other GPUs? */
static bool is_idle(void)
{
    return !segments_exist() && !contexts_exist();
}

/* Let go of GPUs whose files were removed or replaced. */
static void drop_stale(void)
{
    for (size_t i = n_gpus; i-- > 0;) {
        if (!gpu_is_current(gpus[i])) {
            close_nth(i);
        }
    }
}

static void close_all(void)
{
    while (n_gpus > 0) {
        close_nth(n_gpus - 1);
    }
    n_visible = 0;
    call_set_initialised(false);
}

void device_forked(bool used)
{
    if (!used) {
        close_all();
        return;
    }
    for (size_t i = 0; i < n_gpus; i++) {
        gpu_forked(gpus[i]);
    }
}

/* --- the run directory --- */

static bool choose_run_dir(const char *given, char path_p[GPU_PATH_SIZE])
{
    const char *from_environment = getenv("CUBIEMEM_RUNDIR");
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int length;

    if (given) {
        length = snprintf(path_p, GPU_PATH_SIZE, "%s", given);
    } else if (from_environment && *from_environment) {
        length = snprintf(path_p, GPU_PATH_SIZE, "%s", from_environment);
    } else if (access("/run/cubiemem", X_OK) == 0 || !runtime || !*runtime) {
        length = snprintf(path_p, GPU_PATH_SIZE, "/run/cubiemem");
    } else {
        length = snprintf(path_p, GPU_PATH_SIZE, "%s/cubiemem", runtime);
    }
    return length > 0 && length < GPU_PATH_SIZE;
}

/* The environment's faults hold from the first use of the library on. */
static int set_first_faults(char *why, size_t why_size)
{
    static bool done;
    char detail[256];

    if (done) {
        return 0;
    }
    if (fault_set(getenv("CUBIEMEM_SIM_FAULTS"), detail, sizeof(detail)) < 0) {
        snprintf(why, why_size, "CUBIEMEM_SIM_FAULTS: %s", detail);
        return -1;
    }
    done = true;
    return 0;
}

int cubiemem_sim_set_run_dir(const char *given, char *why, size_t why_size)
{
    char path[GPU_PATH_SIZE];
    int result = -1;

    sim_lock();
    if (set_first_faults(why, why_size) < 0) {
        result = -1;
    } else if (!choose_run_dir(given, path)) {
        snprintf(why, why_size, "the run directory's path is longer than a path can be");
    } else if (strcmp(path, run_dir) == 0) {
        if (is_idle()) {
            drop_stale();
        }
        result = 0;
    } else if (!is_idle()) {
        snprintf(why, why_size, "simulated GPUs of %s are in use; no others can be used", run_dir);
    } else {
        close_all();
        memcpy(run_dir, path, sizeof(run_dir));
        result = 0;
    }
    sim_unlock();
    return result;
}

int cubiemem_sim_set_run_dir_again(char *why, size_t why_size)
{
    char path[GPU_PATH_SIZE];

    sim_lock();
    memcpy(path, run_dir, sizeof(path));
    sim_unlock();
    return cubiemem_sim_set_run_dir(*path ? path : NULL, why, why_size);
}

static int add_locked(const char *name, uint64_t size, char *why, size_t why_size)
{
    struct gpu *gpu = find_by_name(name);
    struct gpu added;
    int result;

    if (gpu && gpu->size == size) {
        return 0;
    }
    if (gpu && !is_idle()) {
        snprintf(why, why_size, "this process uses %s with %llu bytes already", name,
                 (unsigned long long)gpu->size);
        return -1;
    }
    for (size_t i = 0; gpu && i < n_gpus; i++) {
        if (gpus[i] == gpu) {
            close_nth(i);
            gpu = NULL;
        }
    }
    if (n_gpus == N_GPUS) {
        snprintf(why, why_size, "no more than %d simulated GPUs", N_GPUS);
        return -1;
    }
    result = gpu_add(run_dir, name, size, &added);
    if (result == -EBUSY) {
        snprintf(why, why_size, "the simulated GPU %s exists with another size and is in use",
                 name);
        return -1;
    }
    if (result < 0) {
        snprintf(why, why_size, "cannot make %s/sim-%s.gpu: %s", run_dir, name, strerror(-result));
        return -1;
    }
    if (!append(&added)) {
        snprintf(why, why_size, "not enough host memory for the simulated GPU %s", name);
        return -1;
    }
    if (!call_is_initialised()) {
        qsort(gpus, n_gpus, sizeof(gpus[0]), by_name);
        choose_visible();
    } else if (!getenv("CUDA_VISIBLE_DEVICES")) {
        visible[n_visible++] = gpus[n_gpus - 1];
    }
    return 0;
}

static int ordinal_of(const char *name)
{
    for (size_t i = 0; i < n_visible; i++) {
        if (strcmp(visible[i]->name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

int cubiemem_sim_add(const char *name, uint64_t size, int *ordinal_p, char *why, size_t why_size)
{
    int result = -1;
    int ordinal = -1;

    if (!gpu_name_is_valid(name)) {
        snprintf(why, why_size,
                 "a simulated GPU's name has 1 to %d letters, digits, '-' and '_', not '%s'",
                 GPU_NAME_SIZE - 1, name);
        return -1;
    }
    if (size < GPU_GRANULARITY || size % GPU_GRANULARITY) {
        snprintf(why, why_size, "a simulated GPU's size is a multiple of 2 MiB, not %llu bytes",
                 (unsigned long long)size);
        return -1;
    }
    if (cubiemem_sim_set_run_dir_again(why, why_size) < 0) {
        return -1;
    }
    sim_lock();
    if (!call_is_initialised()) {
        /* the ordinal counts the others of the directory */
        device_scan();
    }
    if (add_locked(name, size, why, why_size) == 0) {
        ordinal = ordinal_of(name);
        result = ordinal < 0 ? -1 : 0;
        if (result < 0) {
            snprintf(why, why_size, "CUDA_VISIBLE_DEVICES hides the simulated GPU %s", name);
        }
    }
    sim_unlock();
    if (result == 0) {
        *ordinal_p = ordinal;
    }
    return result;
}
