/*
 * listener - the daemon's socket file, and the lock that says who is alive
 *
 * <dir>/<UUID>.lock beside the socket is locked for as long as the daemon lives (an open
 * file description's lock: it goes with the process, however it ends). Under it, a socket
 * that nobody listens on is replaced; a live one, and anything that is no
 * socket, is refused and left alone. Rights are set before anybody can connect, whatever
 * the umask. A socket passed by systemd is used as it is and never unlinked.
 */
#ifndef LISTENER_H
#define LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "endpoint.h"

struct listener_config {
    const char *path;  /* of the socket (endpoint_for_daemon) */
    const char *uuid;  /* of the device; names the lock file */
    const char *group; /* --socket-group; NULL: 0600, else 0660 and this group */
    bool activation;   /* use a socket that systemd passed, if there is one */
};

struct listener {
    int fd; /* SOCK_SEQPACKET, listening, non-blocking, CLOEXEC, SO_PASSCRED */
    int lock_fd;
    char path[ENDPOINT_PATH_MAX];
    bool passed; /* by systemd */
    dev_t dev;   /* of our socket file */
    ino_t ino;
};

/*
 * Return: an enum exit_status: OK; USAGE (path too long, unknown group); IN_USE (a live
 * daemon, or no socket, on the path); CONFIG (not the one socket expected from systemd);
 * SYSTEM. Except for OK, why gets one line and nothing is left behind.
 */
int listener_open(const struct listener_config *config, struct listener *listener_p, char *why,
                  size_t why_size);

/* Close, and remove the socket file if it still is the one that we made. */
void listener_finish(struct listener *listener);

#endif
