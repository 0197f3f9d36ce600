/*
 * fdset - an owned set of file descriptors, see fdset.h
 */
#include "fdset.h"

#include <fcntl.h>
#include <unistd.h>

void fdset_init(struct fdset *set)
{
    set->n = 0;
    set->next = 0;
}

void fdset_finish(struct fdset *set)
{
    for (size_t i = 0; i < set->n; i++) {
        if (set->fds[i] >= 0) {
            close(set->fds[i]);
        }
    }
    fdset_init(set);
}

bool fdset_consume(struct fdset *set, int fd)
{
    if (set->n == PACKET_MAX_FDS) {
        close(fd);
        return false;
    }
    set->fds[set->n++] = fd;
    return true;
}

bool fdset_dup(struct fdset *set, int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return copy >= 0 && fdset_consume(set, copy);
}

int fdset_steal_next(struct fdset *set)
{
    while (set->next < set->n) {
        int fd = set->fds[set->next];
        set->fds[set->next++] = -1;
        if (fd >= 0) {
            return fd;
        }
    }
    return -1;
}

void fdset_move(struct fdset *to, struct fdset *from)
{
    *to = *from;
    fdset_init(from);
}
