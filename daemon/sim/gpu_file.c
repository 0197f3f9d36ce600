/*
 * gpu_file - making, finding and replacing the file of a simulated GPU
 *
 * A file gets its name only when it is complete, so whoever opens one finds all of
 * it; one of another boot or version is nobody's and makes way, and one of another
 * size does if nobody uses it. What the books in it mean is gpu.c's affair.
 */
#include "gpu_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPU_MAGIC "cubisim\1"

static void read_boot_id(char text_p[40])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length;

    memset(text_p, 0, 40);
    if (fd < 0) {
        return;
    }
    length = read(fd, text_p, 36);
    if (length < 0) {
        memset(text_p, 0, 40);
    }
    close(fd);
}

/* A version 4 uuid, the same for a name on every machine: FNV-1a, twice. */
static CUuuid uuid_of_name(const char *name)
{
    uint64_t halves[2] = {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u};
    unsigned char bytes[16];
    CUuuid uuid;

    for (size_t h = 0; h < 2; h++) {
        for (const char *c = name; *c; c++) {
            halves[h] = (halves[h] ^ (unsigned char)*c) * 0x100000001b3u;
        }
        halves[h] ^= halves[h] >> 32;
        halves[h] *= 0xd6e8feb86659fd93u;
        halves[h] ^= halves[h] >> 32;
    }
    memcpy(bytes, halves, sizeof(bytes));
    bytes[6] = (unsigned char)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (unsigned char)((bytes[8] & 0x3f) | 0x80);
    memcpy(uuid.bytes, bytes, sizeof(bytes));
    return uuid;
}

bool gpu_name_is_valid(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

    return length > 0 && length < GPU_NAME_SIZE && name[length] == '\0';
}

bool gpu_path(const char *run_dir, const char *name, char path_p[GPU_PATH_SIZE])
{
    int length = snprintf(path_p, GPU_PATH_SIZE, "%s/sim-%s.gpu", run_dir, name);

    return length > 0 && length < GPU_PATH_SIZE;
}

static int init_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    int result = pthread_mutexattr_init(&attributes);

    if (result) {
        return -result;
    }
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    result = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return -result;
}

static struct gpu_file *map_file(int fd)
{
    void *map = mmap(NULL, sizeof(struct gpu_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return map == MAP_FAILED ? NULL : map;
}

/* Fill a new file, which has no name that anybody looks for. */
static int write_file(int fd, const char *name, uint64_t size)
{
    struct gpu_file *file;
    int result;

    if (fchmod(fd, 0666) < 0 || ftruncate(fd, sizeof(struct gpu_file)) < 0) {
        return -errno;
    }
    file = map_file(fd);
    if (!file) {
        return -ENOMEM;
    }
    memcpy(file->magic, GPU_MAGIC, sizeof(file->magic));
    read_boot_id(file->boot_id);
    file->size = size;
    file->uuid = uuid_of_name(name);
    result = init_mutex(&file->mutex);
    munmap(file, sizeof(*file));
    return result;
}

/* Give the file its name once it is complete. Whoever comes second (-EEXIST)
 * takes the first one's. */
static int create_file(const char *path, const char *name, uint64_t size)
{
    char draft[GPU_PATH_SIZE + 16];
    int fd;
    int result;

    snprintf(draft, sizeof(draft), "%s.XXXXXX", path);
    fd = mkostemp(draft, O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    result = write_file(fd, name, size);
    if (result == 0 && link(draft, path) < 0) {
        result = -errno;
    }
    unlink(draft);
    close(fd);
    return result;
}

static bool file_is_current(const struct gpu_file *file)
{
    char boot_id[40];

    read_boot_id(boot_id);
    return memcmp(file->magic, GPU_MAGIC, sizeof(file->magic)) == 0 &&
           memcmp(file->boot_id, boot_id, sizeof(boot_id)) == 0;
}

int gpu_open(const char *run_dir, const char *name, struct gpu *gpu_p)
{
    struct gpu gpu = {.slot = -1};
    struct stat status;
    int result;

    if (!gpu_path(run_dir, name, gpu.path)) {
        return -ENAMETOOLONG;
    }
    gpu.fd = open(gpu.path, O_RDWR | O_CLOEXEC);
    if (gpu.fd < 0) {
        return -errno;
    }
    result = fstat(gpu.fd, &status) < 0 ? -errno : 0;
    if (result == 0 && status.st_size != (off_t)sizeof(struct gpu_file)) {
        result = -ESTALE;
    }
    if (result == 0) {
        gpu.file = map_file(gpu.fd);
        result = gpu.file ? 0 : -ENOMEM;
    }
    if (result == 0 && !file_is_current(gpu.file)) {
        result = -ESTALE;
    }
    if (result < 0) {
        gpu_close(&gpu);
        return result;
    }
    snprintf(gpu.name, sizeof(gpu.name), "%s", name);
    gpu.size = gpu.file->size;
    gpu.uuid = gpu.file->uuid;
    *gpu_p = gpu;
    return 0;
}

int gpu_add(const char *run_dir, const char *name, uint64_t size, struct gpu *gpu_p)
{
    struct gpu gpu;
    char path[GPU_PATH_SIZE];

    if (!gpu_path(run_dir, name, path)) {
        return -ENAMETOOLONG;
    }
    for (int attempt = 0; attempt < 8; attempt++) {
        int result = gpu_open(run_dir, name, &gpu);

        if (result == 0 && gpu.size == size) {
            *gpu_p = gpu;
            return 0;
        }
        if (result == 0 && gpu_is_used(&gpu)) {
            gpu_close(&gpu);
            return -EBUSY;
        }
        if (result == 0) {
            gpu_close(&gpu);
        }
        if ((result == 0 || result == -ESTALE) && unlink(path) < 0 && errno != ENOENT) {
            return -errno;
        }
        if (result < 0 && result != -ESTALE && result != -ENOENT) {
            return result;
        }
        result = create_file(path, name, size);
        if (result < 0 && result != -EEXIST) {
            return result;
        }
    }
    return -EAGAIN;
}

bool gpu_is_current(const struct gpu *gpu)
{
    struct stat ours, theirs;

    return fstat(gpu->fd, &ours) == 0 && stat(gpu->path, &theirs) == 0 &&
           ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}
