/*
 * listener - the daemon's socket file, and the lock that says who is alive
 *
 * Order matters: the lock first, so that two daemons of one GPU never look at the socket
 * together; then what lies on the path; then bind() with a umask that lets nobody in,
 * group, mode and SO_PASSCRED; listen() last, so nobody connects to a socket that is not
 * ready for him. The lock file is never removed: whoever waits for it would hold
 * a lock on a file that the next one does not see.
 */
#include "listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "exit_status.h"

#define BACKLOG 512

static int system_failed(char *why, size_t why_size, const char *what, const char *path)
{
    snprintf(why, why_size, "%s %s: %s", what, path, strerror(errno));
    return EXIT_STATUS_SYSTEM;
}

/* ------------------------------------------------------------------ lock */

static int lock_path_of(const struct listener_config *config, char path_p[ENDPOINT_PATH_MAX + 64],
                        char *why, size_t why_size)
{
    char dir[ENDPOINT_PATH_MAX];

    endpoint_dir_of(config->path, dir);
    int length = snprintf(path_p, ENDPOINT_PATH_MAX + 64, "%s/%s.lock", dir, config->uuid);
    if (length < 0 || (size_t)length >= ENDPOINT_PATH_MAX + 64) {
        snprintf(why, why_size, "the lock's path in %s is too long", dir);
        return EXIT_STATUS_USAGE;
    }
    return EXIT_STATUS_OK;
}

/* The holder wrote its pid; only a hint for people. */
static void say_locked(int fd, const char *path, char *why, size_t why_size)
{
    char pid[16] = "";
    ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);

    pid[n > 0 ? (size_t)n : 0] = '\0';
    pid[strspn(pid, "0123456789")] = '\0';
    snprintf(why, why_size, "another daemon of this GPU is running%s%s (it holds %s)",
             pid[0] != '\0' ? ", pid " : "", pid, path);
}

static int lock_take(const char *path, int *fd_p, char *why, size_t why_size)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat state;
    char pid[16];

    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) {
        return system_failed(why, why_size, "cannot open", path);
    }
    if (fstat(fd, &state) != 0 || !S_ISREG(state.st_mode)) {
        snprintf(why, why_size, "%s is no regular file", path);
        close(fd);
        return EXIT_STATUS_IN_USE;
    }
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        int status = EXIT_STATUS_IN_USE;
        if (errno == EAGAIN || errno == EACCES) {
            say_locked(fd, path, why, why_size);
        } else {
            status = system_failed(why, why_size, "cannot lock", path);
        }
        close(fd);
        return status;
    }
    int length = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)length, 0) != length) {
        int status = system_failed(why, why_size, "cannot write", path);
        close(fd);
        return status;
    }
    *fd_p = fd;
    return EXIT_STATUS_OK;
}

/* ---------------------------------------------------------- a new socket */

/* Make room on the path: nothing there is fine, a dead socket goes. */
static int path_clear(const char *path, char *why, size_t why_size)
{
    struct stat state;

    if (lstat(path, &state) != 0) {
        return errno == ENOENT ? EXIT_STATUS_OK
                               : system_failed(why, why_size, "cannot look at", path);
    }
    if (!S_ISSOCK(state.st_mode)) {
        snprintf(why, why_size, "%s exists and is no socket; move it or choose another --socket",
                 path);
        return EXIT_STATUS_IN_USE;
    }
    if (endpoint_is_alive(path)) {
        snprintf(why, why_size, "somebody listens on %s; choose another --socket", path);
        return EXIT_STATUS_IN_USE;
    }
    if (unlink(path) != 0 && errno != ENOENT) {
        return system_failed(why, why_size, "cannot remove the dead socket", path);
    }
    return EXIT_STATUS_OK;
}

static int group_find(const char *name, gid_t *gid_p, char *why, size_t why_size)
{
    struct group record, *found = NULL;
    char buffer[65536];

    int error = getgrnam_r(name, &record, buffer, sizeof(buffer), &found);
    if (found == NULL) {
        snprintf(why, why_size, "--socket-group '%.64s': %s", name,
                 error != 0 ? strerror(error) : "there is no such group");
        return EXIT_STATUS_USAGE;
    }
    *gid_p = record.gr_gid;
    return EXIT_STATUS_OK;
}

/* Owner, group and mode of the socket that was just bound, and what it is called by. */
static int socket_set_rights(const char *path, const char *group, struct stat *state_p, char *why,
                             size_t why_size)
{
    gid_t gid = (gid_t)-1;

    if (group != NULL) {
        int status = group_find(group, &gid, why, why_size);
        if (status != EXIT_STATUS_OK) {
            return status;
        }
        if (lchown(path, (uid_t)-1, gid) != 0) {
            return system_failed(why, why_size, "cannot give to its group", path);
        }
    }
    if (chmod(path, group != NULL ? 0660 : 0600) != 0) {
        return system_failed(why, why_size, "cannot set the mode of", path);
    }
    if (lstat(path, state_p) != 0) {
        return system_failed(why, why_size, "cannot look at", path);
    }
    return EXIT_STATUS_OK;
}

/* SO_PASSCRED on the listening socket: accepted ones inherit it, so that even their
 * first message carries its sender. */
static bool socket_pass_credentials(int fd)
{
    const int on = 1;
    return setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0;
}

static int bind_unreachable(int fd, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, path, strlen(path) + 1);
    const mode_t mask = umask(0177); /* start-up: no other thread makes files now */
    int result = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    umask(mask);
    return result;
}

static int socket_make(const struct listener_config *config, struct listener *listener, char *why,
                       size_t why_size)
{
    struct stat state;
    int status;

    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return system_failed(why, why_size, "cannot make a socket for", config->path);
    }
    if (bind_unreachable(fd, config->path) != 0) {
        status = system_failed(why, why_size, "cannot bind", config->path);
        goto close_socket;
    }
    status = socket_set_rights(config->path, config->group, &state, why, why_size);
    if (status != EXIT_STATUS_OK) {
        goto unlink_socket;
    }
    if (!socket_pass_credentials(fd) || listen(fd, BACKLOG) != 0) {
        status = system_failed(why, why_size, "cannot listen on", config->path);
        goto unlink_socket;
    }
    listener->fd = fd;
    listener->dev = state.st_dev;
    listener->ino = state.st_ino;
    memcpy(listener->path, config->path, strlen(config->path) + 1);
    return EXIT_STATUS_OK;

unlink_socket:
    unlink(config->path);
close_socket:
    close(fd);
    return status;
}

/* ------------------------------------------------------- systemd's socket */

static bool passed_path(int fd, char path_p[ENDPOINT_PATH_MAX])
{
    struct sockaddr_un address;
    socklen_t size = sizeof(address);
    const size_t start = offsetof(struct sockaddr_un, sun_path);

    memset(&address, 0, sizeof(address));
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0 || size <= start ||
        address.sun_path[0] == '\0') {
        return false;
    }
    memcpy(path_p, address.sun_path, ENDPOINT_PATH_MAX);
    path_p[ENDPOINT_PATH_MAX - 1] = '\0';
    return true;
}

static int socket_take_passed(int n, struct listener *listener, char *why, size_t why_size)
{
    const int fd = SD_LISTEN_FDS_START;

    if (n != 1 || sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) <= 0 ||
        !passed_path(fd, listener->path)) {
        snprintf(why, why_size,
                 "systemd passed %d sockets; one with a path is wanted (ListenSequentialPacket=)",
                 n);
        return EXIT_STATUS_CONFIG;
    }
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || !socket_pass_credentials(fd)) {
        return system_failed(why, why_size, "cannot set up systemd's socket", listener->path);
    }
    listener->fd = fd;
    listener->passed = true;
    return EXIT_STATUS_OK;
}

/* ------------------------------------------------------------- the object */

int listener_open(const struct listener_config *config, struct listener *listener_p, char *why,
                  size_t why_size)
{
    struct listener listener = {.fd = -1, .lock_fd = -1};
    char lock_path[ENDPOINT_PATH_MAX + 64];

    if (strlen(config->path) >= ENDPOINT_PATH_MAX) {
        snprintf(why, why_size, "--socket: a path has at most %zu bytes", ENDPOINT_PATH_MAX - 1);
        return EXIT_STATUS_USAGE;
    }
    int status = lock_path_of(config, lock_path, why, why_size);
    if (status != EXIT_STATUS_OK) {
        return status;
    }
    status = lock_take(lock_path, &listener.lock_fd, why, why_size);
    if (status != EXIT_STATUS_OK) {
        return status;
    }
    const int n_passed = config->activation ? sd_listen_fds(1) : 0;
    if (n_passed != 0) {
        status = socket_take_passed(n_passed, &listener, why, why_size);
    } else {
        status = path_clear(config->path, why, why_size);
        if (status == EXIT_STATUS_OK) {
            status = socket_make(config, &listener, why, why_size);
        }
    }
    if (status != EXIT_STATUS_OK) {
        close(listener.lock_fd);
        return status;
    }
    *listener_p = listener;
    return EXIT_STATUS_OK;
}

void listener_finish(struct listener *listener)
{
    struct stat state;

    if (listener->fd < 0) {
        return;
    }
    if (!listener->passed && lstat(listener->path, &state) == 0 &&
        state.st_dev == listener->dev && state.st_ino == listener->ino) {
        unlink(listener->path);
    }
    close(listener->fd);
    close(listener->lock_fd);
    listener->fd = listener->lock_fd = -1;
}
