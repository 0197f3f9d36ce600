/*
 * spawn - start a program that is nobody's child
 *
 * The engine must not show: no SIGCHLD, nothing for the program's wait() to find,
 * no zombie. So it is the child of a child: the one between is cloned with no
 * exit signal (wait() does not see such children), starts the engine and ends at
 * once; only we collect it. Both steps share our memory and stop this thread
 * until they are through, as vfork() does, so nothing is copied; between clone
 * and exec there are system calls only.
 */
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_SIZE (64u << 10)
#define UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))

/* clone() by the name that ThreadSanitizer does not take for a fork. */
int __clone(int (*function)(void *), void *stack, int flags, void *argument, ...);

struct spawn {
    const char *path;
    char *const *arguments;
    int control, queue, null;
    char *stack; /* of the second step */
    int pid, error;
};

UNCHECKED static int run_engine(void *argument)
{
    struct spawn *spawn = argument;

    syscall(SYS_setsid);
    for (int fd = 0; fd < 3; fd++) {
        syscall(SYS_dup3, spawn->null, fd, 0);
    }
    syscall(SYS_dup3, spawn->control, 3, 0);
    syscall(SYS_dup3, spawn->queue, 4, 0);
    syscall(SYS_close_range, 5, ~0u, 0);
    syscall(SYS_execve, spawn->path, spawn->arguments, environ);
    spawn->error = errno;
    syscall(SYS_exit_group, 127);
    return 127;
}

UNCHECKED static int run_between(void *argument)
{
    struct spawn *spawn = argument;

    spawn->pid = __clone(run_engine, spawn->stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | SIGCHLD,
                       spawn);
    if (spawn->pid < 0) {
        spawn->error = errno;
    }
    syscall(SYS_exit_group, 0);
    return 0;
}

/* fd above those that the engine's take; the original is closed. */
static int move_up(int fd)
{
    int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);

    if (fd >= 0) {
        close(fd);
    }
    return moved;
}

static int run(struct spawn *spawn, char *stacks)
{
    sigset_t all, before;
    int between;

    spawn->stack = stacks;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    between = __clone(run_between, stacks + 2 * STACK_SIZE, CLONE_VM | CLONE_VFORK, spawn);
    if (between < 0) {
        spawn->error = errno;
    } else {
        while (waitpid(between, NULL, __WCLONE) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return spawn->error ? -spawn->error : spawn->pid;
}

int spawn_engine(const char *path, char *const *arguments, int control, int queue)
{
    struct spawn spawn = {.path = path, .arguments = arguments};
    char *stacks = malloc(2 * (size_t)STACK_SIZE);
    int result = -ENOMEM;

    spawn.control = fcntl(control, F_DUPFD_CLOEXEC, 10);
    spawn.queue = fcntl(queue, F_DUPFD_CLOEXEC, 10);
    spawn.null = move_up(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (stacks && spawn.control >= 0 && spawn.queue >= 0 && spawn.null >= 0) {
        result = run(&spawn, stacks);
    } else if (stacks) {
        result = -EMFILE;
    }
    for (int i = 0; i < 3; i++) {
        int fd = i == 0 ? spawn.control : i == 1 ? spawn.queue : spawn.null;

        if (fd >= 0) {
            close(fd);
        }
    }
    free(stacks);
    return result;
}
