/*
 * identity - who is at the other end of a connection, see identity.h
 *
 * SO_PEERPIDFD names the very process that connected. Where the kernel lacks
 * it (before 6.5), pidfd_open may catch a later process of the same number: the
 * start time, read before and after, tells.
 */
#include "identity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Field 22 of /proc/PID/stat, counted behind the command's last ')'. */
static uint64_t start_time_of(pid_t pid)
{
    char path[64], line[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    size_t size = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[size] = '\0';
    const char *field = strrchr(line, ')');
    for (int i = 2; field != NULL && i < 22; i++) {
        field = strchr(field + 1, ' ');
    }
    return field != NULL ? strtoull(field + 1, NULL, 10) : 0;
}

static int peer_pidfd(int socket, pid_t pid, uint64_t *start_time_p)
{
    int pidfd = -1;
    socklen_t length = sizeof(pidfd);
    uint64_t before = start_time_of(pid);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
        *start_time_p = before;
        return pidfd;
    }
    if (errno != ENOPROTOOPT) {
        return -1;
    }
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd >= 0 && (before == 0 || start_time_of(pid) != before)) {
        close(pidfd);
        errno = ESRCH;
        return -1;
    }
    *start_time_p = before;
    return pidfd;
}

int identity_read(int socket, struct identity *identity_p)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        return -1;
    }
    struct identity identity = {
        .pid = peer.pid,
        .uid = peer.uid,
        .gid = peer.gid,
        .pidfd = -1,
    };
    if (peer.pid != 0) {
        identity.pidfd = peer_pidfd(socket, peer.pid, &identity.start_time);
        if (identity.pidfd < 0) {
            return -1;
        }
    }
    *identity_p = identity;
    return 0;
}

void identity_finish(struct identity *identity)
{
    if (identity->pidfd >= 0) {
        close(identity->pidfd);
        identity->pidfd = -1;
    }
}

/* NSpid in /proc/PID/status, which everybody may read, has one number for each PID
 * namespace from ours down to the peer's. */
bool identity_shares_pids(const struct identity *identity)
{
    char path[64], line[256];
    bool shares = true;
    if (identity->pid == 0) {
        return false;
    }
    snprintf(path, sizeof(path), "/proc/%d/status", (int)identity->pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        int first, second;
        if (sscanf(line, "NSpid: %d %d", &first, &second) == 2) {
            shares = false;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return shares;
}

static bool in_group(int socket, gid_t group)
{
    gid_t few[64], *groups = few;
    socklen_t length = sizeof(few);
    int got = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &length);
    if (got != 0 && errno == ERANGE && (groups = malloc(length)) != NULL) {
        got = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &length);
    }
    bool found = false;
    for (size_t i = 0; got == 0 && i < length / sizeof(gid_t); i++) {
        found |= groups[i] == group;
    }
    if (groups != few) {
        free(groups);
    }
    return found;
}

bool identity_is_admin(int socket, const struct identity *identity, gid_t admin_group)
{
    if (identity->uid == 0 || identity->uid == geteuid()) {
        return true;
    }
    return admin_group != (gid_t)-1 &&
           (identity->gid == admin_group || in_group(socket, admin_group));
}
