/*
 * identity - who is at the other end of a connection, as the kernel says it
 *
 * Read once, at accept: uid, gid, pid and start time, and a pidfd that becomes
 * readable when the process is gone. A peer whose pid cannot be seen from here
 * (another PID namespace) has pid 0 and no pidfd: it is known by its connection
 * alone and is never signalled.
 */
#ifndef DAEMON_IDENTITY_H
#define DAEMON_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct identity {
    pid_t pid; /* 0: not visible from here */
    uid_t uid;
    gid_t gid;
    uint64_t start_time; /* clock ticks after boot; 0 with pid 0 */
    int pidfd;           /* -1: none */
};

/* Return: 0, or -1 with errno. A peer that died meanwhile is ESRCH. */
int identity_read(int socket, struct identity *identity_p);
void identity_finish(struct identity *identity); /* closes the pidfd */

/* Does the peer live in our PID namespace, so that a CUDA IPC handle made here opens
 * there? False with pid 0; true where it cannot be told. */
bool identity_shares_pids(const struct identity *identity);

/* Is the peer root, the daemon's own user, or in the group (-1: no such group)? */
bool identity_is_admin(int socket, const struct identity *identity, gid_t admin_group);

#endif
