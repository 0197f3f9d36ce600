/*
 * dial - a connected socket to the daemon, or one line that says why not
 *
 * A non-blocking connect to a full backlog says EAGAIN with nothing to poll on,
 * so the socket blocks, with a send time-out, until it is connected.
 */
#include "dial.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "endpoint.h"
#include "failure.h"

/* Whose socket it is, for people who may not use it. */
static int not_permitted(const char *path)
{
    struct stat stat_;
    struct group group, *found_group = NULL;
    struct passwd user, *found_user = NULL;
    char group_names[2048], user_names[2048];
    if (stat(path, &stat_) != 0) {
        return failure_set(CUBIEMEM_NOT_PERMITTED,
                           "permission denied: the directory of %s may not be entered", path);
    }
    getgrgid_r(stat_.st_gid, &group, group_names, sizeof group_names, &found_group);
    getpwuid_r(stat_.st_uid, &user, user_names, sizeof user_names, &found_user);
    return failure_set(CUBIEMEM_NOT_PERMITTED,
                       "permission denied: %s has mode %04o, user %s, group %s (%u); %s", path,
                       stat_.st_mode & 07777u, found_user != NULL ? user.pw_name : "?",
                       found_group != NULL ? group.gr_name : "?", (unsigned)stat_.st_gid,
                       stat_.st_mode & S_IWGRP
                           ? "ask to be a member of the group"
                           : "only its user may connect until cubiememd is started with "
                             "--socket-group");
}

static int connect_failure(int error, const char *path)
{
    switch (error) {
    case ENOENT:
    case ECONNREFUSED:
    case ENOTSOCK:
    case EPROTOTYPE:
        return failure_system(CUBIEMEM_DISCONNECTED, error,
                              "no cubiememd answers at %s (start one, or give the socket with "
                              "CUBIEMEM_SOCKET)",
                              path);
    case EACCES:
    case EPERM:
        return not_permitted(path);
    case EAGAIN:
        return failure_set(CUBIEMEM_TIMEOUT, "cubiememd at %s accepts nobody", path);
    default:
        return failure_system(CUBIEMEM_SYSTEM, error, "cannot connect to %s", path);
    }
}

static int connect_to(int fd, const char *path, int64_t timeout_ns)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int64_t us = timeout_ns / 1000;
    struct timeval timeout = {.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    if (us == 0) {
        timeout.tv_usec = 1; /* 0 would mean for ever */
    }
    memcpy(address.sun_path, path, strlen(path));
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0) {
        return errno;
    }
    while (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        if (errno == EISCONN) {
            break;
        }
        if (errno != EINTR) {
            return errno;
        }
    }
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 ? 0 : errno;
}

int dial(const char *socket_path, const char *uuid, int64_t timeout_ns, int *socket_p)
{
    char path[ENDPOINT_PATH_MAX];
    char why[1024] = "";
    int status = endpoint_for_client(socket_path, uuid, path, why, sizeof why);
    if (status != CUBIEMEM_OK) {
        return failure_set(status, "%s", why);
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return failure_system(errno == EMFILE || errno == ENFILE ? CUBIEMEM_NO_FDS
                                                                 : CUBIEMEM_SYSTEM,
                              errno, "cannot make a socket");
    }
    int error = connect_to(fd, path, timeout_ns);
    if (error != 0) {
        close(fd);
        return connect_failure(error, path);
    }
    *socket_p = fd;
    return CUBIEMEM_OK;
}
