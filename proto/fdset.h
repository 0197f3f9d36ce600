/*
 * fdset - an owned set of file descriptors
 *
 * What is in the set is closed with it. The verb says who owns: consume takes
 * the caller's descriptor, steal hands one to the caller, dup copies, get only
 * lends.
 */
#ifndef PROTO_FDSET_H
#define PROTO_FDSET_H

#include <stdbool.h>
#include <stddef.h>

#include "protocol_limits.h"

struct fdset {
    int fds[PACKET_MAX_FDS]; /* -1 where stolen */
    size_t n;
    size_t next; /* of fdset_steal_next */
};

#define FDSET_INIT {{0}, 0, 0}

void fdset_init(struct fdset *set);
void fdset_finish(struct fdset *set); /* closes what is left */
/* Takes fd in any case: when the set is full it is closed and false returned. */
bool fdset_consume(struct fdset *set, int fd);
/* A copy (CLOEXEC) of fd; false with errno when none can be had. */
bool fdset_dup(struct fdset *set, int fd);
/* The next one that was not stolen yet, now the caller's; -1 if there is none. */
int fdset_steal_next(struct fdset *set);
/* Moves everything from `from` to `to`, which must be empty. */
void fdset_move(struct fdset *to, struct fdset *from);

#endif
