/*
 * endpoint - where a daemon's socket is: the one rule for daemon, library, tool
 *
 * The rule is in endpoint.h. A directory that is made here gets mode 0755 whatever
 * the umask, because the socket in it may be meant for a group. Who is alive is
 * asked of the kernel: connecting a datagram socket to a name where a
 * SOCK_SEQPACKET socket listens gives EPROTOTYPE, to one that nobody has
 * ECONNREFUSED, and neither is seen by the other side.
 */
#include "endpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cubiemem.h"

#define SYSTEM_RUN_DIR "/run/cubiemem"
#define SOCKET_SUFFIX ".sock"
#define MAX_RUN_DIRS 2u

struct run_dirs {
    char path[MAX_RUN_DIRS][ENDPOINT_PATH_MAX];
    size_t n;
};

/* The variable's value; NULL where it is unset or empty. */
static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* snprintf into a path; false where it does not fit. */
__attribute__((format(printf, 2, 3))) static bool
path_print(char path_p[ENDPOINT_PATH_MAX], const char *format, ...)
{
    char path[ENDPOINT_PATH_MAX];
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(path, sizeof(path), format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return false;
    }
    memcpy(path_p, path, (size_t)length + 1);
    return true;
}

static int path_too_long(const char *path, char *why, size_t why_size)
{
    snprintf(why, why_size, "socket path of %zu bytes, at most %zu are possible: %.60s...",
             strlen(path), ENDPOINT_PATH_MAX - 1, path);
    return CUBIEMEM_INVALID_REQUEST;
}

static int explicit_copy(const char *path, char path_p[ENDPOINT_PATH_MAX], char *why,
                         size_t why_size)
{
    if (path[0] == '\0') {
        snprintf(why, why_size, "the socket path is empty");
        return CUBIEMEM_INVALID_REQUEST;
    }
    return path_print(path_p, "%s", path) ? CUBIEMEM_OK : path_too_long(path, why, why_size);
}

/* The directories of the rule, in order. One that is too long for a socket's path
 * is an error if it was asked for, and passed over if it is only a default. */
static int run_dirs_get(struct run_dirs *dirs_p, char *why, size_t why_size)
{
    const char *asked = environment("CUBIEMEM_RUNDIR");
    const char *runtime = environment("XDG_RUNTIME_DIR");

    dirs_p->n = 0;
    if (asked != NULL) {
        if (!path_print(dirs_p->path[0], "%s", asked)) {
            return path_too_long(asked, why, why_size);
        }
        dirs_p->n = 1;
        return CUBIEMEM_OK;
    }
    dirs_p->n = path_print(dirs_p->path[0], "%s", SYSTEM_RUN_DIR);
    if (runtime != NULL && runtime[0] == '/' &&
        path_print(dirs_p->path[dirs_p->n], "%s/cubiemem", runtime)) {
        dirs_p->n++;
    }
    return CUBIEMEM_OK;
}

/* "a or b" for messages */
static void run_dirs_text(const struct run_dirs *dirs, char *text, size_t text_size)
{
    snprintf(text, text_size, "%s%s%s", dirs->path[0], dirs->n > 1 ? " or " : "",
             dirs->n > 1 ? dirs->path[1] : "");
}

/* Make sure that dir is there and may be written to; else false with errno. */
static bool dir_make_usable(const char *dir)
{
    if (mkdir(dir, 0755) == 0) {
        if (chmod(dir, 0755) != 0) {
            return false;
        }
    } else if (errno != EEXIST) {
        return false;
    }
    struct stat state;
    if (stat(dir, &state) != 0) {
        return false;
    }
    if (!S_ISDIR(state.st_mode)) {
        errno = ENOTDIR;
        return false;
    }
    return faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) == 0;
}

void endpoint_dir_of(const char *path, char dir_p[ENDPOINT_PATH_MAX])
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL) {
        path_print(dir_p, ".");
    } else if (slash == path) {
        path_print(dir_p, "/");
    } else if (!path_print(dir_p, "%.*s", (int)(slash - path), path)) {
        path_print(dir_p, "."); /* longer than any socket's path: nothing lies there */
    }
}

int endpoint_run_dir(const char *explicit_path, char dir_p[ENDPOINT_PATH_MAX], char *why,
                     size_t why_size)
{
    char path[ENDPOINT_PATH_MAX];
    struct run_dirs dirs;
    char tried[2 * ENDPOINT_PATH_MAX + 128] = "";

    if (explicit_path == NULL) {
        explicit_path = environment("CUBIEMEM_SOCKET");
    }
    if (explicit_path != NULL) {
        int status = explicit_copy(explicit_path, path, why, why_size);
        if (status == CUBIEMEM_OK) {
            endpoint_dir_of(path, dir_p);
        }
        return status;
    }
    int status = run_dirs_get(&dirs, why, why_size);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    for (size_t i = 0; i < dirs.n; i++) {
        if (dir_make_usable(dirs.path[i])) {
            memcpy(dir_p, dirs.path[i], ENDPOINT_PATH_MAX);
            return CUBIEMEM_OK;
        }
        size_t used = strlen(tried);
        snprintf(tried + used, sizeof(tried) - used, "%s%s: %s", i > 0 ? ", " : "",
                 dirs.path[i], strerror(errno));
    }
    snprintf(why, why_size, "no run directory (%s); set CUBIEMEM_RUNDIR or give a socket path",
             tried);
    return CUBIEMEM_SYSTEM;
}

/* A UUID that comes from outside becomes part of a path. */
static bool uuid_is_sane(const char *uuid)
{
    return uuid[0] != '\0' && uuid[0] != '.' && strchr(uuid, '/') == NULL;
}

static int uuid_refuse(char *why, size_t why_size)
{
    snprintf(why, why_size, "a GPU is named by its UUID, such as GPU-8e9c4e9a-...");
    return CUBIEMEM_INVALID_REQUEST;
}

int endpoint_for_daemon(const char *explicit_path, const char *uuid,
                        char path_p[ENDPOINT_PATH_MAX], char *why, size_t why_size)
{
    char dir[ENDPOINT_PATH_MAX];

    if (explicit_path == NULL) {
        explicit_path = environment("CUBIEMEM_SOCKET");
    }
    if (explicit_path != NULL) {
        return explicit_copy(explicit_path, path_p, why, why_size);
    }
    if (!uuid_is_sane(uuid)) {
        return uuid_refuse(why, why_size);
    }
    int status = endpoint_run_dir(NULL, dir, why, why_size);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    return path_print(path_p, "%s/%s" SOCKET_SUFFIX, dir, uuid)
               ? CUBIEMEM_OK
               : path_too_long(dir, why, why_size);
}

static bool is_socket(const char *path)
{
    struct stat state;
    return stat(path, &state) == 0 && S_ISSOCK(state.st_mode);
}

bool endpoint_is_alive(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (!path_print(address.sun_path, "%s", path)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return true;
    }
    int result = connect(fd, (struct sockaddr *)&address, sizeof(address));
    int error = errno;
    close(fd);
    return result == 0 || (error != ECONNREFUSED && error != ENOENT && error != ENOTDIR);
}

/* ----------------------------------------------------------------- lists */

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void endpoint_list_free(char **paths, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(paths[i]);
    }
    free(paths);
}

static bool list_append(char ***paths, size_t *n, const char *path)
{
    char **grown = realloc(*paths, (*n + 1) * sizeof(**paths));
    if (grown == NULL) {
        return false;
    }
    *paths = grown;
    grown[*n] = strdup(path);
    if (grown[*n] == NULL) {
        return false;
    }
    ++*n;
    return true;
}

/* The sockets of one directory behind those in the list; one that cannot be read
 * has none. */
static bool list_append_dir(char ***paths, size_t *n, const char *dir)
{
    const size_t first = *n;
    const size_t suffix = strlen(SOCKET_SUFFIX);
    DIR *stream = opendir(dir);
    const struct dirent *entry;
    bool complete = true;

    if (stream == NULL) {
        return true;
    }
    while (complete && (entry = readdir(stream)) != NULL) {
        char path[ENDPOINT_PATH_MAX];
        size_t length = strlen(entry->d_name);
        if (length > suffix && entry->d_name[0] != '.' &&
            strcmp(entry->d_name + length - suffix, SOCKET_SUFFIX) == 0 &&
            path_print(path, "%s/%s", dir, entry->d_name) && is_socket(path)) {
            complete = list_append(paths, n, path);
        }
    }
    closedir(stream);
    if (*n > first) {
        qsort(*paths + first, *n - first, sizeof(**paths), compare_paths);
    }
    return complete;
}

static int list_dirs(const struct run_dirs *dirs, char ***paths_p, size_t *n_p)
{
    char **paths = NULL;
    size_t n = 0;

    for (size_t i = 0; i < dirs->n; i++) {
        if (!list_append_dir(&paths, &n, dirs->path[i])) {
            endpoint_list_free(paths, n);
            return CUBIEMEM_HOST_MEMORY;
        }
    }
    *paths_p = paths;
    *n_p = n;
    return CUBIEMEM_OK;
}

int endpoint_list(char ***paths_p, size_t *n_p)
{
    struct run_dirs dirs;
    char why[1];

    if (run_dirs_get(&dirs, why, sizeof(why)) != CUBIEMEM_OK) {
        dirs.n = 0; /* no socket can be in a directory with such a path */
    }
    return list_dirs(&dirs, paths_p, n_p);
}

/* ---------------------------------------------------------------- client */

static int client_by_uuid(const struct run_dirs *dirs, const char *uuid,
                          char path_p[ENDPOINT_PATH_MAX], char *why, size_t why_size)
{
    char path[ENDPOINT_PATH_MAX];
    char text[2 * ENDPOINT_PATH_MAX + 8];
    bool found = false;

    if (!uuid_is_sane(uuid)) {
        return uuid_refuse(why, why_size);
    }
    for (size_t i = 0; i < dirs->n; i++) {
        if (!path_print(path, "%s/%s" SOCKET_SUFFIX, dirs->path[i], uuid)) {
            return path_too_long(dirs->path[i], why, why_size);
        }
        /* the first, unless it is dead and a later one is not */
        bool alive = is_socket(path) && endpoint_is_alive(path);
        if (alive || (!found && is_socket(path))) {
            memcpy(path_p, path, sizeof(path));
            found = true;
        }
        if (alive) {
            break;
        }
    }
    if (found) {
        return CUBIEMEM_OK;
    }
    run_dirs_text(dirs, text, sizeof(text));
    snprintf(why, why_size, "no daemon of %.60s in %s; start one: cubiememd --device %.60s", uuid,
             text, uuid);
    return CUBIEMEM_DISCONNECTED;
}

/* Drops the dead from a list; returns how many are left. */
static size_t list_keep_alive(char **paths, size_t n)
{
    size_t alive = 0;

    for (size_t i = 0; i < n; i++) {
        if (endpoint_is_alive(paths[i])) {
            char *path = paths[i];
            paths[i] = paths[alive];
            paths[alive++] = path;
        }
    }
    return alive;
}

static void say_several(char *const *paths, size_t n, char *why, size_t why_size)
{
    int used = snprintf(why, why_size,
                        "%zu daemons run here; choose one by CUBIEMEM_SOCKET or CUBIEMEM_GPU:", n);

    for (size_t i = 0; i < n && used >= 0 && (size_t)used < why_size; i++) {
        used += snprintf(why + used, why_size - (size_t)used, " %s", paths[i]);
    }
}

static int client_only_one(const struct run_dirs *dirs, char path_p[ENDPOINT_PATH_MAX], char *why,
                           size_t why_size)
{
    char **paths;
    size_t n;
    char text[2 * ENDPOINT_PATH_MAX + 8];

    int status = list_dirs(dirs, &paths, &n);
    if (status != CUBIEMEM_OK) {
        snprintf(why, why_size, "not enough host memory to list the daemons");
        return status;
    }
    size_t n_alive = n > 1 ? list_keep_alive(paths, n) : n;
    if (n_alive > 1) {
        say_several(paths, n_alive, why, why_size);
        status = CUBIEMEM_INVALID_REQUEST;
    } else if (n == 0) {
        run_dirs_text(dirs, text, sizeof(text));
        snprintf(why, why_size, "no daemon in %s; start one: cubiememd --device cuda:0", text);
        status = CUBIEMEM_DISCONNECTED;
    } else { /* the only live one, or a dead one that connect() will report */
        path_print(path_p, "%s", paths[0]);
    }
    endpoint_list_free(paths, n);
    return status;
}

int endpoint_for_client(const char *explicit_path, const char *uuid,
                        char path_p[ENDPOINT_PATH_MAX], char *why, size_t why_size)
{
    struct run_dirs dirs;

    if (explicit_path == NULL) {
        explicit_path = environment("CUBIEMEM_SOCKET");
    }
    if (explicit_path != NULL) {
        return explicit_copy(explicit_path, path_p, why, why_size);
    }
    if (uuid == NULL) {
        uuid = environment("CUBIEMEM_GPU");
    }
    int status = run_dirs_get(&dirs, why, why_size);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    return uuid != NULL ? client_by_uuid(&dirs, uuid, path_p, why, why_size)
                        : client_only_one(&dirs, path_p, why, why_size);
}
