/*
 * echo - see echo.h
 */
#include "echo.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"
#include "outcome.h"

static void wait_readable(int fd)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};

    while (poll(&readable, 1, -1) < 0) {
        expect(errno == EINTR, "poll: %s", strerror(errno));
    }
}

static void echo_run(int fd, const void *argument)
{
    const int *ends = argument;
    char packet[ECHO_MAX_SIZE];
    ssize_t size;

    (void)fd;
    close(ends[0]);
    measure_pin(0, 1);
    for (;;) {
        wait_readable(ends[1]);
        size = recv(ends[1], packet, sizeof(packet), 0);
        if (size <= 0 || send(ends[1], packet, (size_t)size, MSG_NOSIGNAL) != size) {
            return;
        }
    }
}

void echo_start(struct role *role_p)
{
    int ends[2];

    expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0,
           "cannot make a socket pair: %s", strerror(errno));
    role_start(role_p, "echo", echo_run, ends);
    close(ends[1]);
    close(role_p->fd);
    role_p->fd = ends[0];
}

void echo_stop(struct role *role)
{
    shutdown(role->fd, SHUT_RDWR);
    role_finish(role);
}

double echo_once(const struct role *role, size_t size)
{
    static char packet[ECHO_MAX_SIZE];
    uint64_t begin_ns = measure_now_ns();

    ssize_t sent = send(role->fd, packet, size, MSG_NOSIGNAL);
    wait_readable(role->fd);
    expect(sent == (ssize_t)size && recv(role->fd, packet, sizeof(packet), 0) == sent,
           "the echo is gone");
    return (double)(measure_now_ns() - begin_ns) * 1e-3;
}
