/*
 * role - see role.h
 */
#include "role.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "outcome.h"

/* In the parent: the child's pid. In the child: 0, tied to the parent. */
static pid_t fork_tied(const char *name, int *fd_p)
{
    int ends[2];
    pid_t parent = getpid();

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        fail("cannot talk to the %s: %s", name, strerror(errno));
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        fail("cannot fork the %s: %s", name, strerror(errno));
    }
    *fd_p = pid == 0 ? ends[1] : ends[0];
    close(pid == 0 ? ends[0] : ends[1]);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(EXIT_FAILURE);
        }
    }
    return pid;
}

void role_start(struct role *role_p, const char *name, role_fn *fn, const void *argument)
{
    int fd;
    pid_t pid = fork_tied(name, &fd);

    if (pid == 0) {
        fn(fd, argument);
        exit(EXIT_SUCCESS);
    }
    *role_p = (struct role){.name = name, .pid = pid, .fd = fd};
}

void role_start_program(struct role *role_p, const char *path, const char *const *arguments)
{
    int fd;
    pid_t pid = fork_tied(path, &fd);

    if (pid == 0) {
        if (dup2(fd, STDOUT_FILENO) >= 0) {
            execv(path, (char **)(uintptr_t)arguments);
        }
        fprintf(stderr, "cannot run %s: %s\n", path, strerror(errno));
        _exit(127);
    }
    *role_p = (struct role){.name = path, .pid = pid, .fd = fd};
}

void role_tell(int fd, const void *data, size_t size)
{
    const char *at = data;

    while (size > 0) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            fail("the other part of the test is gone: %s", strerror(errno));
        }
        at += sent;
        size -= (size_t)sent;
    }
}

void role_hear(int fd, void *data_p, size_t size)
{
    char *at = data_p;

    while (size > 0) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        int ready = poll(&readable, 1, ROLE_PATIENCE_MS);
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        if (ready == 0) {
            fail("the other part of the test says nothing for %d s", ROLE_PATIENCE_MS / 1000);
        }
        ssize_t received = recv(fd, at, size, 0);
        if (received < 0 && errno == EINTR) {
            continue;
        }
        if (received <= 0) {
            fail("the other part of the test has ended early");
        }
        at += received;
        size -= (size_t)received;
    }
}

static int wait_for(struct role *role)
{
    int status;

    while (waitpid(role->pid, &status, 0) < 0) {
        expect(errno == EINTR, "cannot wait for the %s: %s", role->name, strerror(errno));
    }
    close(role->fd);
    *role = (struct role){.name = role->name, .fd = -1};
    return status;
}

void role_finish(struct role *role)
{
    int status = wait_for(role);

    if (WIFEXITED(status) && WEXITSTATUS(status) == OUTCOME_SKIPPED) {
        exit(OUTCOME_SKIPPED); /* it has said why */
    }
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the %s ended with wait status %#x",
           role->name, (unsigned int)status);
}

void role_kill(struct role *role)
{
    kill(role->pid, SIGKILL);
    wait_for(role);
}
