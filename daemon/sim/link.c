/*
 * link - a program's end of its engine
 *
 * Starts and ends the engine, sends it commands and queues operations. Two rules:
 * an operation is queued behind everything that CUDA orders before it (the
 * legacy stream waits for all blocking streams and they for it; the waits are
 * operations themselves), and whoever waits for the engine notices its death. A
 * link outlives its context as long as a thread waits on it.
 *
 * Which lane is whose is stream.c's affair; host operations run in hostwork.c.
 */
#include "link.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "call.h"
#include "hostwork.h"
#include "spawn.h"

#define ENGINE_NAME "cubiemem-sim-engine"
#define CHECK_NS 500000000u

static bool engine_path(char path_p[GPU_PATH_SIZE])
{
    static const char *const places[] = {"", "../libexec/cubiemem/", "../bin/"};
    char self[GPU_PATH_SIZE];
    Dl_info info;
    char *slash;

    if (!dladdr((const void *)places, &info) || !realpath(info.dli_fname, self)) {
        return false;
    }
    slash = strrchr(self, '/');
    if (!slash) {
        return false;
    }
    slash[1] = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int length = snprintf(path_p, GPU_PATH_SIZE, "%s%s" ENGINE_NAME, self, places[i]);

        if (length > 0 && length < GPU_PATH_SIZE && access(path_p, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

static int start_engine(struct link *link, int control, int queue_fd)
{
    char path[GPU_PATH_SIZE], slot[16], linger[24];
    char *arguments[] = {path, link->gpu->path, slot, linger, NULL};

    if (!engine_path(path)) {
        return -ENOENT;
    }
    snprintf(slot, sizeof(slot), "%d", link->gpu->slot);
    snprintf(linger, sizeof(linger), "%llu", (unsigned long long)fault_linger_ns());
    return spawn_engine(path, arguments, control, queue_fd);
}

static CUresult link_init(struct link *link)
{
    int ends[2];
    int queue_fd = memfd_create("cubiemem-sim-queue", MFD_CLOEXEC);
    int result = -EMFILE;

    if (queue_fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (ftruncate(queue_fd, sizeof(struct queue)) == 0 &&
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
        link->control = ends[0];
        link->queue = mmap(NULL, sizeof(struct queue), PROT_READ | PROT_WRITE, MAP_SHARED, queue_fd,
                           0);
        result = link->queue == MAP_FAILED ? -ENOMEM : start_engine(link, ends[1], queue_fd);
        close(ends[1]);
    }
    close(queue_fd);
    if (link->queue == MAP_FAILED) {
        link->queue = NULL;
    }
    if (result < 0) {
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    madvise(link->queue, sizeof(struct queue), MADV_DONTFORK);
    link->engine_pid = result;
    link->control_sent = 1;
    return CUDA_SUCCESS;
}

CUresult link_start(struct gpu *gpu, struct link **link_p)
{
    static uint64_t last_number;
    struct link *link;
    CUresult result = call_errno(gpu_hold(gpu));

    if (result != CUDA_SUCCESS) {
        return result;
    }
    link = calloc(1, sizeof(*link));
    if (!link) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *link = (struct link){.n_refs = 1, .number = ++last_number, .gpu = gpu, .control = -1};
    result = link_init(link);
    /* The engine counts its start as the first command. */
    if (result == CUDA_SUCCESS) {
        result = link_wait(link, &link->queue->control_done, 1);
    }
    if (result != CUDA_SUCCESS) {
        link_put(link);
        return result == CUDA_ERROR_LAUNCH_FAILED ? CUDA_ERROR_SYSTEM_NOT_READY : result;
    }
    link->lanes[LINK_LEGACY_LANE] = (struct link_lane){.used = true, .blocking = true};
    *link_p = link;
    return CUDA_SUCCESS;
}

void link_get(struct link *link)
{
    link->n_refs++;
}

void link_put(struct link *link)
{
    if (--link->n_refs > 0) {
        return;
    }
    if (link->control >= 0) {
        close(link->control);
    }
    if (link->queue) {
        munmap(link->queue, sizeof(struct queue));
    }
    free(link);
}

void link_stop(struct link *link)
{
    struct pollfd control = {.fd = link->control, .events = 0};
    const struct control quit = {.kind = CONTROL_QUIT};

    link->broken = true;
    if (send(link->control, &quit, sizeof(quit), MSG_NOSIGNAL) < 0) {
        shutdown(link->control, SHUT_RDWR);
    }
    while (poll(&control, 1, -1) < 0 && errno == EINTR) {
    }
    __atomic_store_n(&link->queue->stopped, 1, __ATOMIC_RELEASE);
    for (size_t i = 0; i < QUEUE_N_LANES; i++) {
        if (link->lanes[i].started) {
            /* The engine is gone: a new value keeps a thread from going to sleep. */
            __atomic_fetch_add(&link->queue->lanes[i].host_wanted, 1, __ATOMIC_RELEASE);
            queue_wake(&link->queue->lanes[i].host_wanted);
            queue_wake(&link->queue->lanes[i].completed);
        }
    }
}

void link_forked(struct link *link)
{
    close(link->control);
    link->control = -1;
    link->queue = NULL;
}

bool link_is_alive(struct link *link)
{
    struct pollfd control = {.fd = link->control, .events = 0};

    return poll(&control, 1, 0) == 0;
}

CUresult link_error(struct link *link)
{
    uint32_t error = __atomic_load_n(&link->queue->error, __ATOMIC_ACQUIRE);

    if (__atomic_load_n(&link->queue->stopped, __ATOMIC_ACQUIRE)) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return (CUresult)error;
}

CUresult link_wait(struct link *link, uint32_t *word, uint32_t target)
{
    uint32_t count;

    while (!queue_reached(count = __atomic_load_n(word, __ATOMIC_ACQUIRE), target)) {
        if (__atomic_load_n(&link->queue->stopped, __ATOMIC_ACQUIRE)) {
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        if (!link_is_alive(link)) {
            return CUDA_ERROR_LAUNCH_FAILED;
        }
        queue_wait(word, count, CHECK_NS);
    }
    __atomic_load_n(&link->host_order, __ATOMIC_ACQUIRE);
    return link_error(link);
}

/* --- commands --- */

static int send_command(struct link *link, const struct control *control, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } space = {{0}};
    struct iovec part = {.iov_base = (void *)control, .iov_len = sizeof(*control)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = space.bytes;
        message.msg_controllen = sizeof(space.bytes);
        space.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
                                        .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&space.header), &fd, sizeof(int));
    }
    while (sendmsg(link->control, &message, MSG_NOSIGNAL) < 0) {
        if (errno == ETOOMANYREFS) {
            /* too many fds of ours under way: let the engine take some */
            if (link_wait(link, &link->queue->control_done, control->number - 1) != CUDA_SUCCESS) {
                return -EPIPE;
            }
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

CUresult link_command(struct link *link, struct control control, int fd)
{
    control.number = link->control_sent + 1;
    if (link->broken || send_command(link, &control, fd) < 0) {
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    link->control_sent = control.number;
    return control.kind == CONTROL_UNMAP
               ? link_wait(link, &link->queue->control_done, control.number)
               : CUDA_SUCCESS;
}

/* --- lanes --- */

uint32_t link_lane_end(const struct link *link, uint32_t lane)
{
    return __atomic_load_n(&link->queue->lanes[lane].submitted, __ATOMIC_RELAXED);
}

bool link_lane_reached(const struct link *link, uint32_t lane, uint32_t number)
{
    return queue_reached(__atomic_load_n(&link->queue->lanes[lane].completed, __ATOMIC_ACQUIRE),
                         number);
}

static bool lane_is_busy(const struct link *link, uint32_t lane)
{
    return !link_lane_reached(link, lane, link_lane_end(link, lane));
}

bool link_legacy_is_busy(const struct link *link)
{
    for (uint32_t i = 0; i < QUEUE_N_LANES; i++) {
        if (link->lanes[i].blocking && lane_is_busy(link, i)) {
            return true;
        }
    }
    return false;
}

uint32_t link_take_lane(struct link *link, bool blocking)
{
    for (uint32_t i = 0; i < QUEUE_N_LANES; i++) {
        if (!link->lanes[i].used && !lane_is_busy(link, i)) {
            link->lanes[i].used = true;
            link->lanes[i].blocking = blocking;
            return i;
        }
    }
    return QUEUE_N_LANES;
}

static void put_op(struct link *link, uint32_t lane, struct queue_op op)
{
    struct queue_lane *shared = &link->queue->lanes[lane];

    /* The engine orders us with our own host threads; in this process that order
     * has to be said again. */
    __atomic_load_n(&link->host_order, __ATOMIC_ACQUIRE);
    op.control = link->control_sent;
    shared->ops[shared->submitted % QUEUE_N_OPS] = op;
    if (op.kind >= OP_HOST) {
        __atomic_fetch_add(&link->host_order, 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&shared->submitted, shared->submitted + 1, __ATOMIC_SEQ_CST);
    queue_wake(&shared->submitted);
}

/* Queue the waits that CUDA puts before work on a lane. */
static void put_waits(struct link *link, uint32_t lane)
{
    for (uint32_t other = 0; other < QUEUE_N_LANES; other++) {
        bool ordered = link->lanes[lane].blocking && link->lanes[other].blocking &&
                       (lane == LINK_LEGACY_LANE || other == LINK_LEGACY_LANE);

        if (other != lane && ordered && lane_is_busy(link, other)) {
            put_op(link, lane, (struct queue_op){.kind = OP_WAIT_LANE, .to = other,
                                                 .value = link_lane_end(link, other)});
        }
    }
}

/* Wait until the lane has room for an operation and its waits. */
static CUresult wait_for_room(struct link *link, uint32_t lane)
{
    struct queue_lane *shared = &link->queue->lanes[lane];
    CUresult result = CUDA_SUCCESS;

    while (result == CUDA_SUCCESS &&
           shared->submitted - __atomic_load_n(&shared->completed, __ATOMIC_ACQUIRE) >
               QUEUE_N_OPS - QUEUE_N_LANES) {
        uint32_t target = shared->submitted - (QUEUE_N_OPS - QUEUE_N_LANES);

        link_get(link);
        sim_unlock();
        result = link_wait(link, &shared->completed, target);
        sim_lock();
        link_put(link);
    }
    return result;
}

CUresult link_submit(struct link *link, uint32_t lane, struct queue_op op, uint32_t *number_p)
{
    struct link_lane *ours = &link->lanes[lane];
    CUresult result = link->broken ? CUDA_ERROR_CONTEXT_IS_DESTROYED : link_error(link);

    if (result == CUDA_SUCCESS && !ours->started) {
        result = link_command(link, (struct control){.kind = CONTROL_LANE, .lane = lane}, -1);
        ours->started = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS && op.kind >= OP_HOST && !ours->has_host) {
        result = hostwork_start(link, lane);
        ours->has_host = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        result = wait_for_room(link, lane);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    put_waits(link, lane);
    put_op(link, lane, op);
    *number_p = link_lane_end(link, lane);
    return CUDA_SUCCESS;
}
