/*
 * harness - see harness.h
 *
 * One daemon a program: the exit handler ends it, and the kernel does
 * (PR_SET_PDEATHSIG) where the program dies without one.
 */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "outcome.h"

#define READY_MS      60000 /* a GPU without persistence mode takes seconds to wake up */
#define END_MS        20000
#define MAX_ARGUMENTS 32

static struct harness *current; /* of this process, for the exit handler */

/* ----------------------------------------------------------------- stage */

const char *harness_device(const char *otherwise)
{
    const char *device = getenv("DEVICE");

    return device != NULL && device[0] != '\0' ? device : otherwise;
}

bool harness_device_is_simulated(const char *device)
{
    return strncmp(device, "sim", 3) == 0;
}

bool harness_stage_path(const char *name, char *path_p, size_t path_size)
{
    const char *stage = getenv("CUBIEMEM_STAGE");
    char self[3000];

    if (stage != NULL) {
        snprintf(path_p, path_size, "%s/%s", stage, name);
        return access(path_p, F_OK) == 0;
    }
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0) {
        return false;
    }
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    static const char *const places[] = {"", "/../stage", "/../../stage"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path_p, path_size, "%s%s/%s", self, places[i], name);
        if (access(path_p, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Programs that are not in the stage find the simulated driver there. */
static void point_to_simulated_driver(void)
{
    char path[4096];

    if (harness_stage_path("libcubiemem-sim.so", path, sizeof(path))) {
        setenv("CUBIEMEM_SIM", path, 0);
    }
}

/* --------------------------------------------------------------- the end */

static void remove_dir(const char *path)
{
    DIR *dir = opendir(path);

    if (dir == NULL) {
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        unlinkat(dirfd(dir), entry->d_name, 0); /* it holds files alone; . and .. refuse */
    }
    closedir(dir);
    rmdir(path);
}

static void show_log(const struct harness *harness)
{
    FILE *log = fopen(harness->log, "re");
    char line[1024];

    if (log == NULL) {
        return;
    }
    while (fgets(line, sizeof(line), log) != NULL) {
        fprintf(stderr, "    cubiememd: %s", line);
    }
    fclose(log);
}

/* The daemon's wait status, or false: it still runs when the time is over. */
static bool reap(pid_t pid, int timeout_ms, int *status_p)
{
    for (int waited_ms = 0;; waited_ms += 5) {
        if (waitpid(pid, status_p, WNOHANG) == pid) {
            return true;
        }
        if (waited_ms >= timeout_ms) {
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static void at_exit(void)
{
    struct harness *harness = current;

    if (harness == NULL || harness->starter != getpid()) {
        return; /* stopped in order; or this is a forked process */
    }
    if (harness->pid != 0) {
        int status;
        kill(harness->pid, SIGTERM);
        if (!reap(harness->pid, END_MS, &status)) {
            kill(harness->pid, SIGKILL);
            waitpid(harness->pid, &status, 0);
        }
        show_log(harness);
    }
    remove_dir(harness->dir);
}

/* ------------------------------------------------------------- the start */

void harness_prepare(const char *device, struct harness *harness_p)
{
    static bool registered;
    const char *base = getenv("TMPDIR");
    struct harness harness = {.starter = getpid()};

    snprintf(harness.device, sizeof(harness.device), "%s", device);
    /* A long TMPDIR would not leave room for a socket's name. */
    if (base == NULL || strlen(base) > HARNESS_PATH_SIZE - 32) {
        base = "/tmp";
    }
    snprintf(harness.dir, sizeof(harness.dir), "%s/cubiemem-XXXXXX", base);
    if (mkdtemp(harness.dir) == NULL) {
        fail("cannot make a directory in %s: %s", base, strerror(errno));
    }
    snprintf(harness.socket, sizeof(harness.socket), "%s/socket", harness.dir);
    snprintf(harness.log, sizeof(harness.log), "%s/log", harness.dir);
    point_to_simulated_driver();
    *harness_p = harness;
    current = harness_p;
    if (!registered) {
        registered = true;
        atexit(at_exit);
    }
}

/* A datagram socket on which the daemon says READY=1. */
static int notify_socket(const struct harness *harness, char path_p[HARNESS_PATH_SIZE + 8])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    snprintf(path_p, HARNESS_PATH_SIZE + 8, "%s/notify", harness->dir);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path_p);
    unlink(path_p);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        fail("cannot listen on %s: %s", path_p, strerror(errno));
    }
    return fd;
}

__attribute__((noreturn)) static void become_daemon(const struct harness *harness,
                                                    const struct harness_options *options,
                                                    const char *program, const char *notify,
                                                    pid_t parent)
{
    const char *arguments[MAX_ARGUMENTS] = {program, "--device", harness->device, "--socket",
                                            harness->socket};
    size_t n = 5;

    for (size_t i = 0; options->arguments != NULL && options->arguments[i] != NULL; i++) {
        if (n + 1 == MAX_ARGUMENTS) {
            _exit(126);
        }
        arguments[n++] = options->arguments[i];
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(125);
    }
    int log = open(harness->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (log < 0 || dup2(log, STDERR_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0) {
        _exit(125);
    }
    setenv("NOTIFY_SOCKET", notify, 1);
    unsetenv("CUBIEMEM_SOCKET");
    for (size_t i = 0; options->variables != NULL && options->variables[i] != NULL; i++) {
        putenv((char *)(uintptr_t)options->variables[i]);
    }
    execv(program, (char **)(uintptr_t)arguments);
    fprintf(stderr, "cannot run %s: %s\n", program, strerror(errno));
    _exit(127);
}

static void wait_until_ready(struct harness *harness, int notify)
{
    for (int waited_ms = 0; waited_ms < READY_MS; waited_ms += 50) {
        struct pollfd readable = {.fd = notify, .events = POLLIN};
        char text[256] = "";
        int status;

        if (poll(&readable, 1, 50) > 0 && recv(notify, text, sizeof(text) - 1, 0) > 0 &&
            strstr(text, "READY=1") != NULL) {
            return;
        }
        if (waitpid(harness->pid, &status, WNOHANG) == harness->pid) {
            harness->pid = 0;
            show_log(harness);
            fail("cubiememd --device %s ended with status %d", harness->device,
                 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        }
    }
    fail("cubiememd --device %s is not ready after %d s", harness->device, READY_MS / 1000);
}

void harness_launch(struct harness *harness, const struct harness_options *options)
{
    static const struct harness_options none;
    char program[4096], notify_path[HARNESS_PATH_SIZE + 8];

    if (options == NULL) {
        options = &none;
    }
    const char *name = options->program != NULL ? options->program : "cubiememd";
    if (!harness_stage_path(name, program, sizeof(program))) {
        fail("no %s beside this program; set CUBIEMEM_STAGE to the folder that has it", name);
    }
    int notify = notify_socket(harness, notify_path);
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        fail("cannot fork: %s", strerror(errno));
    }
    if (pid == 0) {
        become_daemon(harness, options, program, notify_path, parent);
    }
    harness->pid = pid;
    wait_until_ready(harness, notify);
    close(notify);
    unlink(notify_path);
    if (options->open_to_all &&
        (chmod(harness->dir, 0755) < 0 || chmod(harness->socket, 0666) < 0)) {
        fail("cannot open %s to others: %s", harness->dir, strerror(errno));
    }
}

void harness_start(const char *device, const struct harness_options *options,
                   struct harness *harness_p)
{
    harness_prepare(device, harness_p);
    harness_launch(harness_p, options);
}

void harness_end_daemon(struct harness *harness)
{
    int status;

    expect(harness->pid > 0, "no daemon runs");
    if (kill(harness->pid, SIGTERM) < 0 || !reap(harness->pid, END_MS, &status)) {
        fail("cubiememd does not end within %d s of SIGTERM", END_MS / 1000);
    }
    harness->pid = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        show_log(harness);
        fail("cubiememd ended with wait status %#x at SIGTERM", (unsigned int)status);
    }
}

void harness_stop(struct harness *harness)
{
    if (harness->pid != 0) {
        harness_end_daemon(harness);
    }
    remove_dir(harness->dir);
    current = NULL;
}

struct cubiemem_client *harness_connect(const struct harness *harness,
                                        const struct cubiemem_options *options)
{
    struct cubiemem_options own = {.size = sizeof(own)};
    struct cubiemem_client *client;

    if (options != NULL) {
        own = *options;
    }
    own.socket = harness->socket;
    must(cubiemem_connect(&own, &client), "connect");
    return client;
}
