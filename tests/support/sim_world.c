/*
 * sim_world - a directory of simulated GPUs and processes that use them
 *
 * See the header. Assertions are cmocka's in the test and plain exits in a peer,
 * whose failure is seen by its silence.
 */
#include "sim_world.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PEER_FD 3
#define PATIENCE_MS 20000u

struct driver sim;
static char directory[256];
static char first_uuid[UUID_TEXT_SIZE];
static bool is_peer;

static void must(bool condition, const char *what)
{
    if (condition) {
        return;
    }
    if (is_peer) {
        fprintf(stderr, "peer: %s\n", what);
        _exit(99);
    }
    print_error("%s\n", what);
    fail();
}

#define MUST(condition) must((condition), #condition)

static void load(const char *run_dir)
{
    const char *stage = getenv("CUBIEMEM_STAGE");
    char path[4096], why[256] = "";

    snprintf(path, sizeof(path), "%s/libcubiemem-sim.so", stage ? stage : "build/stage");
    setenv("CUBIEMEM_SIM", path, 0);
    must(driver_load(DRIVER_SIM, DRIVER_PART_CUDA | DRIVER_PART_NVML, run_dir, &sim, why,
                     sizeof(why)) == 0,
         why);
}

int sim_world_add(const char *name, uint64_t size)
{
    char why[256] = "";
    int ordinal = -1;

    must(driver_sim_add(&sim, directory, name, size, &ordinal, why, sizeof(why)) == 0, why);
    return ordinal;
}

void sim_world_open(const char *name, uint64_t size)
{
    const char *parent = getenv("CUBIEMEM_RUNDIR");
    CUuuid uuid;
    int ordinal;

    snprintf(directory, sizeof(directory), "%s/world.XXXXXX", parent ? parent : "/tmp");
    MUST(mkdtemp(directory));
    load(directory);
    ordinal = sim_world_add(name, size);
    MUST(sim.cuInit(0) == CUDA_SUCCESS);
    MUST(sim.cuDeviceGetUuid(&uuid, ordinal) == CUDA_SUCCESS);
    uuid_format(&uuid, first_uuid);
    MUST(sim.nvmlInit() == 0);
}

void sim_world_close(void)
{
    DIR *listing = opendir(directory);
    const struct dirent *entry;

    sim.nvmlShutdown();
    driver_unload(&sim);
    while (listing && (entry = readdir(listing))) {
        char path[sizeof(directory) + sizeof(entry->d_name) + 1];

        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        unlink(path);
    }
    if (listing) {
        closedir(listing);
    }
    rmdir(directory);
}

const char *sim_world_dir(void)
{
    return directory;
}

uint64_t sim_used(void)
{
    struct nvml_memory memory = {.version = NVML_MEMORY_VERSION};
    void *device;

    MUST(sim.nvmlDeviceGetHandleByUUID(first_uuid, &device) == 0);
    MUST(sim.nvmlDeviceGetMemoryInfo(device, &memory) == 0);
    MUST(memory.used + memory.free == memory.total);
    return memory.used / MIB;
}

bool sim_used_becomes(uint64_t mib)
{
    for (unsigned int ms = 0; ms < PATIENCE_MS; ms += 10) {
        if (sim_used() == mib) {
            return true;
        }
        sleep_ms(10);
    }
    return false;
}

void sim_context(void)
{
    CUcontext context;

    MUST(sim.cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    MUST(sim.cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

void sim_context_end(void)
{
    MUST(sim.cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    MUST(sim.cuCtxSetCurrent(NULL) == CUDA_SUCCESS);
}

CUmemGenericAllocationHandle sim_create(uint64_t size)
{
    const CUmemAllocationProp prop = segment_prop(0);
    CUmemGenericAllocationHandle handle = 0;

    MUST(sim.cuMemCreate(&handle, size, &prop, 0) == CUDA_SUCCESS);
    return handle;
}

int sim_export(CUmemGenericAllocationHandle handle)
{
    int fd = -1;

    MUST(sim.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          0) == CUDA_SUCCESS);
    return fd;
}

CUmemGenericAllocationHandle sim_import(int fd)
{
    CUmemGenericAllocationHandle handle = 0;

    MUST(sim.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
         CUDA_SUCCESS);
    return handle;
}

CUdeviceptr sim_map(CUmemGenericAllocationHandle handle, uint64_t size)
{
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = 0;

    MUST(sim.cuMemAddressReserve(&address, size, 0, 0, 0) == CUDA_SUCCESS);
    MUST(sim.cuMemMap(address, size, 0, handle, 0) == CUDA_SUCCESS);
    MUST(sim.cuMemSetAccess(address, size, &access, 1) == CUDA_SUCCESS);
    return address;
}

void sim_unmap(CUdeviceptr address, uint64_t size)
{
    MUST(sim.cuMemUnmap(address, size) == CUDA_SUCCESS);
    MUST(sim.cuMemAddressFree(address, size) == CUDA_SUCCESS);
}

void *sim_symbol(const char *name)
{
    return dlsym(sim.cuda_library, name);
}

/* The kernel tries the byte for us, and says EFAULT instead of a signal. */
bool sim_readable(CUdeviceptr address)
{
    int ends[2];
    bool readable;

    MUST(pipe(ends) == 0);
    readable = write(ends[1], (void *)(uintptr_t)address, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return readable;
}

bool sim_writable(CUdeviceptr address)
{
    int ends[2];
    bool writable;

    MUST(pipe(ends) == 0);
    MUST(write(ends[1], "x", 1) == 1);
    writable = read(ends[0], (void *)(uintptr_t)address, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return writable;
}

int n_open_fds(void)
{
    DIR *listing = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(listing)) {
        n++;
    }
    closedir(listing);
    return n;
}

void sleep_ms(unsigned int ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&pause, NULL);
}

/* --- peers --- */

struct peer peer_start(const char *role, const char *setting)
{
    struct peer peer;
    int ends[2];

    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    fflush(NULL);
    peer.pid = fork();
    MUST(peer.pid >= 0);
    if (peer.pid == 0) {
        char *name = strdup(setting ? setting : "PEER=1");

        setenv("PEER_RUN_DIR", directory, 1);
        putenv(name);
        dup2(ends[1], PEER_FD);
        execl("/proc/self/exe", "peer", role, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    peer.fd = ends[0];
    return peer;
}

void peer_say(int fd, char byte, int passed)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } space = {{0}};
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (passed >= 0) {
        message.msg_control = space.bytes;
        message.msg_controllen = sizeof(space.bytes);
        space.header.cmsg_len = CMSG_LEN(sizeof(int));
        space.header.cmsg_level = SOL_SOCKET;
        space.header.cmsg_type = SCM_RIGHTS;
        memcpy(CMSG_DATA(&space.header), &passed, sizeof(int));
    }
    MUST(sendmsg(fd, &message, MSG_NOSIGNAL) == 1);
}

char peer_hear(int fd, int *passed_p)
{
    char space[CMSG_SPACE(sizeof(int))];
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space,
                             .msg_controllen = sizeof(space)};
    const struct cmsghdr *header;
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != 1) {
        return 0;
    }
    header = CMSG_FIRSTHDR(&message);
    if (passed_p) {
        *passed_p = -1;
        if (header && header->cmsg_type == SCM_RIGHTS) {
            memcpy(passed_p, CMSG_DATA(header), sizeof(int));
        }
    }
    return byte;
}

void peer_kill(struct peer *peer)
{
    kill(peer->pid, SIGKILL);
    peer_end(peer);
}

int peer_end(struct peer *peer)
{
    int status = 0;

    close(peer->fd);
    while (waitpid(peer->pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int peer_main(int argc, char **argv, const struct peer_role *roles, size_t n)
{
    for (size_t i = 0; argc == 2 && i < n; i++) {
        if (strcmp(argv[1], roles[i].name) == 0) {
            is_peer = true;
            alarm(PEER_LIFE_S);
            load(getenv("PEER_RUN_DIR"));
            MUST(sim.cuInit(0) == CUDA_SUCCESS);
            return roles[i].run(PEER_FD);
        }
    }
    return -1;
}
