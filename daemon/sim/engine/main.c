/*
 * cubiemem-sim-engine - works off what one program queues on one simulated GPU
 *
 * Started by the simulated driver when a context is made, with the control socket
 * and the queue's memory as its only open files. It holds nothing of its program
 * but the segments that it was told to map, and it is not the program's child: a
 * killed program's queued work goes on.
 *
 * It ends when the program says so, and else when the kernel has dropped the
 * program's lock on the GPU's file, which every forked child of it still holds:
 * then queued work has a short time left (the real driver takes some 80 ms to
 * stop a dead process's kernels; tests may order more), and with the engine go
 * the last references to the memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../gpu.h"
#include "../queue.h"
#include "cuda_decl.h"
#include "lane.h"
#include "window.h"

struct engine {
    struct queue *queue;
    int gpu_fd, slot;
    uint64_t linger_ns;
};

/* At once: nothing of a sanitizer's farewells, which may take a second. */
__attribute__((noreturn)) static void leave(int status)
{
    for (;;) {
        syscall(SYS_exit_group, status);
    }
}

static struct flock byte_lock(short type, int64_t byte)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

static int setup(int argc, char **argv, struct engine *engine)
{
    struct pollfd control = {.fd = ENGINE_CONTROL_FD, .events = POLLIN};
    struct flock lock;
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (argc != 4 || chdir("/") < 0) {
        return -1;
    }
    engine->slot = (int)strtol(argv[2], NULL, 10);
    engine->linger_ns = strtoull(argv[3], NULL, 10);
    engine->gpu_fd = open(argv[1], O_RDWR | O_CLOEXEC);
    engine->queue = mmap(NULL, sizeof(struct queue), PROT_READ | PROT_WRITE, MAP_SHARED,
                         ENGINE_QUEUE_FD, 0);
    if (engine->gpu_fd < 0 || engine->queue == MAP_FAILED) {
        return -1;
    }
    lock = byte_lock(F_WRLCK, gpu_engine_byte(engine->slot));
    if (fcntl(engine->gpu_fd, F_OFD_SETLK, &lock) < 0) {
        return -1;
    }
    /* With a live program the slot is ours from here on; without one it may be
     * somebody else's already. */
    return poll(&control, 1, 0) < 0 || (control.revents & POLLHUP) ? -1 : 0;
}

static void control_done(struct queue *queue, uint32_t number)
{
    __atomic_store_n(&queue->control_done, number, __ATOMIC_SEQ_CST);
    queue_wake(&queue->control_done);
}

/* One command and its fd; false: the program is gone. */
static bool receive(struct control *control, int *fd_p)
{
    char space[CMSG_SPACE(sizeof(int))];
    struct iovec part = {.iov_base = control, .iov_len = sizeof(*control)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space,
                             .msg_controllen = sizeof(space)};
    const struct cmsghdr *header;
    ssize_t n;

    do {
        n = recvmsg(ENGINE_CONTROL_FD, &message, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    *fd_p = -1;
    if (n != (ssize_t)sizeof(*control)) {
        return false;
    }
    header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(fd_p, CMSG_DATA(header), sizeof(int));
    }
    return true;
}

static void obey(struct engine *engine, const struct control *control, int fd)
{
    uint32_t none = 0;
    int result = 0;

    switch (control->kind) {
    case CONTROL_MAP:
        result = window_map(control->address, control->size, control->protection, fd);
        break;
    case CONTROL_UNMAP:
        window_unmap(control->address);
        break;
    case CONTROL_LANE:
        result = lane_start(engine->queue, control->lane);
        break;
    default:
        leave(0);
    }
    if (result < 0) {
        __atomic_compare_exchange_n(&engine->queue->error, &none, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                                    false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
    control_done(engine->queue, control->number);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Wait until no process of the program's family is left, then for the rest of
 * its work, within limits. */
static void outlive_program(const struct engine *engine)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct flock lock = byte_lock(F_WRLCK, gpu_program_byte(engine->slot));
    uint64_t until;

    lanes_orphan();
    while (fcntl(engine->gpu_fd, F_OFD_SETLKW, &lock) < 0 && errno == EINTR) {
    }
    until = now_ns() + engine->linger_ns;
    while (!lanes_are_idle(engine->queue) && now_ns() < until) {
        nanosleep(&pause, NULL);
    }
}

int main(int argc, char **argv)
{
    struct engine engine = {.gpu_fd = -1};
    struct control control;
    int fd;

    if (setup(argc, argv, &engine) < 0) {
        leave(1);
    }
    control_done(engine.queue, 1);
    while (receive(&control, &fd)) {
        obey(&engine, &control, fd);
    }
    outlive_program(&engine);
    leave(0);
}
