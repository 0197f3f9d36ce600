/*
 * legacy - the daemon's end of a legacy helper
 *
 * Requests stand in one queue; the first few are on their way (never so many that the
 * socket could be full), answers come in the same order. The helper's end is told by
 * its pidfd, and only then is it reaped and reported; a broken or nonsensical
 * conversation is made such an end by killing it. The object lives until both of its poll
 * handles are closed, so callbacks may kill the helper that calls them.
 */
#include "legacy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cubiemem.h"
#include "legacy_wire.h"
#include "log.h"

#define MAX_ON_THE_WAY 16u

struct pending {
    struct legacy_request request;
    legacy_alloc_fn *alloc_done; /* one of the two, by kind */
    legacy_free_fn *free_done;
    void *data;
    struct pending *next;
};

struct legacy_helper {
    pid_t pid;
    int pidfd, socket;
    uv_poll_t pid_poll, socket_poll;
    unsigned int n_open; /* poll handles not closed yet */
    legacy_died_fn *died;
    void *data;
    struct pending *first, **end; /* requests not answered, oldest first */
    struct pending *unsent;       /* the first of them that is not on its way */
    size_t n_on_the_way;
    uint64_t last_serial;
    bool reaped; /* the process is no more */
    bool killed; /* the object was given up by its owner */
};

static _Atomic uint64_t last_generation;

/* ------------------------------------------------------------ the process */

static int errno_status(int error)
{
    switch (error) {
    case ENOMEM:
        return CUBIEMEM_HOST_MEMORY;
    case EMFILE:
    case ENFILE:
        return CUBIEMEM_NO_FDS;
    default:
        return CUBIEMEM_SYSTEM;
    }
}

/* Between fork and exec: nothing but system calls, for the daemon has threads. */
__attribute__((noreturn)) static void become_helper(int socket, pid_t parent, char *const *argv)
{
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (getppid() != parent || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0) {
        _exit(1);
    }
    if (socket == LEGACY_HELPER_SOCKET ? fcntl(socket, F_SETFD, 0) < 0
                                       : dup2(socket, LEGACY_HELPER_SOCKET) < 0) {
        _exit(1);
    }
    /* Ours are CLOEXEC anyway; this is for those of libraries. */
    syscall(SYS_close_range, LEGACY_HELPER_SOCKET + 1, ~0u, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve("/proc/self/exe", argv, environ);
    _exit(127);
}

static int spawn(const struct device *device, int socket, pid_t *pid_p)
{
    char name[] = LEGACY_HELPER_NAME;
    char kind[] = "cuda", sim[] = "sim";
    char parent[16], uuid[UUID_TEXT_SIZE], run_dir[ENDPOINT_PATH_MAX];
    char *argv[LEGACY_HELPER_ARGC + 1] = {name, uuid, device->simulated ? sim : kind, run_dir,
                                          parent, NULL};
    sigset_t all, before;
    const pid_t self = getpid();

    memcpy(uuid, device->uuid, sizeof(uuid));
    memcpy(run_dir, device->run_dir, sizeof(run_dir));
    snprintf(parent, sizeof(parent), "%d", (int)self);
    sigfillset(&all); /* no handler of the daemon's may run in the child */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) {
        become_helper(socket, self, argv);
    }
    const int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        return errno_status(error);
    }
    *pid_p = pid;
    return CUBIEMEM_OK;
}

/* ---------------------------------------------------------------- requests */

static void pending_answer(struct pending *pending, int status, CUresult result,
                           const struct legacy_block *block)
{
    if (pending->request.kind == LEGACY_ALLOC) {
        pending->alloc_done(status, result, block, pending->data);
    } else {
        pending->free_done(status, result, pending->data);
    }
    free(pending);
}

static struct pending *queue_pop(struct legacy_helper *helper)
{
    struct pending *pending = helper->first;

    if (pending == NULL) {
        return NULL;
    }
    helper->first = pending->next;
    if (helper->first == NULL) {
        helper->end = &helper->first;
    }
    if (helper->unsent == pending) {
        helper->unsent = pending->next;
    } else {
        helper->n_on_the_way--;
    }
    return pending;
}

static void answer_all(struct legacy_helper *helper, int status)
{
    struct pending *pending;

    while ((pending = queue_pop(helper)) != NULL) {
        pending_answer(pending, status, CUDA_SUCCESS, NULL);
    }
}

/* A failed send is left alone: it means that the helper is gone, which its pidfd
 * will tell, with an answer for everything that waits. */
static void send_more(struct legacy_helper *helper)
{
    while (helper->unsent != NULL && helper->n_on_the_way < MAX_ON_THE_WAY) {
        ssize_t size;
        do {
            size = send(helper->socket, &helper->unsent->request, sizeof(struct legacy_request),
                        MSG_DONTWAIT | MSG_NOSIGNAL);
        } while (size < 0 && errno == EINTR);
        if (size < 0) {
            return;
        }
        helper->unsent = helper->unsent->next;
        helper->n_on_the_way++;
    }
}

static int enqueue(struct legacy_helper *helper, const struct pending *template)
{
    if (helper->reaped || helper->killed) {
        return CUBIEMEM_DEVICE_LOST;
    }
    struct pending *pending = malloc(sizeof(*pending));
    if (pending == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    *pending = *template;
    pending->request.magic = LEGACY_MAGIC;
    pending->request.serial = ++helper->last_serial;
    pending->next = NULL;
    *helper->end = pending;
    helper->end = &pending->next;
    if (helper->unsent == NULL) {
        helper->unsent = pending;
    }
    send_more(helper);
    return CUBIEMEM_OK;
}

int legacy_helper_alloc(struct legacy_helper *helper, uint64_t size, legacy_alloc_fn *done,
                        void *data)
{
    if (size == 0 || size % LEGACY_GRANULARITY != 0) {
        return CUBIEMEM_INVALID_REQUEST;
    }
    const struct pending pending = {
        .request = {.kind = LEGACY_ALLOC,
                    .generation = atomic_fetch_add(&last_generation, 1) + 1,
                    .size = size},
        .alloc_done = done,
        .data = data,
    };
    return enqueue(helper, &pending);
}

int legacy_helper_free(struct legacy_helper *helper, uint64_t generation, legacy_free_fn *done,
                       void *data)
{
    const struct pending pending = {
        .request = {.kind = LEGACY_FREE, .generation = generation},
        .free_done = done,
        .data = data,
    };
    return enqueue(helper, &pending);
}

/* ----------------------------------------------------------------- events */

static void on_closed(uv_handle_t *handle)
{
    struct legacy_helper *helper = handle->data;

    if (--helper->n_open == 0) {
        close(helper->pidfd);
        close(helper->socket);
        free(helper);
    }
}

static void close_poll(uv_poll_t *poll)
{
    if (!uv_is_closing((uv_handle_t *)poll)) {
        uv_close((uv_handle_t *)poll, on_closed);
    }
}

static void stop_poll(uv_poll_t *poll)
{
    if (!uv_is_closing((uv_handle_t *)poll)) {
        uv_poll_stop(poll);
    }
}

/* Make an end of it; the pidfd tells the rest. */
static void end_conversation(struct legacy_helper *helper)
{
    stop_poll(&helper->socket_poll);
    if (!helper->reaped) {
        kill(helper->pid, SIGKILL);
    }
}

/* The answer to the oldest request? */
static bool answer_is_sane(const struct legacy_helper *helper, const struct legacy_answer *answer,
                           ssize_t size)
{
    const struct pending *pending = helper->first;

    return size == (ssize_t)sizeof(*answer) && answer->magic == LEGACY_MAGIC && pending != NULL &&
           pending != helper->unsent && answer->kind == pending->request.kind &&
           answer->serial == pending->request.serial &&
           answer->generation == pending->request.generation;
}

static void take_answer(struct legacy_helper *helper, const struct legacy_answer *answer)
{
    struct pending *pending = queue_pop(helper);
    struct legacy_block block = {.generation = pending->request.generation,
                                 .size = pending->request.size};

    memcpy(block.handle, answer->handle, sizeof(block.handle));
    send_more(helper);
    pending_answer(pending, answer->status, (CUresult)answer->cu_result,
                   answer->status == CUBIEMEM_OK && answer->kind == LEGACY_ALLOC ? &block : NULL);
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
    struct legacy_helper *helper = poll->data;
    struct legacy_answer answer;

    (void)events;
    while (status == 0 && !helper->killed) {
        ssize_t size = recv(helper->socket, &answer, sizeof(answer), MSG_DONTWAIT | MSG_TRUNC);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (size > 0 && !answer_is_sane(helper, &answer, size)) {
            log_error("legacy helper %d: an answer that makes no sense", (int)helper->pid);
        }
        if (size <= 0 || !answer_is_sane(helper, &answer, size)) {
            break;
        }
        take_answer(helper, &answer);
    }
    if (!helper->killed) {
        end_conversation(helper);
    }
}

static void on_pid(uv_poll_t *poll, int status, int events)
{
    struct legacy_helper *helper = poll->data;
    int wait_status = 0;

    (void)status;
    (void)events;
    pid_t pid;
    do {
        pid = waitpid(helper->pid, &wait_status, WNOHANG);
    } while (pid < 0 && errno == EINTR);
    if (pid == 0) {
        return; /* not yet */
    }
    helper->reaped = true; /* or somebody else reaped it: it is gone all the same */
    close_poll(&helper->pid_poll);
    stop_poll(&helper->socket_poll);
    if (!helper->killed) {
        answer_all(helper, CUBIEMEM_DEVICE_LOST);
    }
    if (!helper->killed) {
        helper->died(wait_status, helper->data);
    }
}

/* -------------------------------------------------------------- the object */

/* Poll handles, in one step that either is or is not. */
static int start_polls(uv_loop_t *loop, struct legacy_helper *helper)
{
    helper->pid_poll.data = helper->socket_poll.data = helper;
    int error = uv_poll_init(loop, &helper->pid_poll, helper->pidfd);
    if (error != 0) {
        return error;
    }
    helper->n_open = 1;
    error = uv_poll_init(loop, &helper->socket_poll, helper->socket);
    if (error != 0) {
        return error;
    }
    helper->n_open = 2;
    error = uv_poll_start(&helper->pid_poll, UV_READABLE, on_pid);
    if (error == 0) {
        error = uv_poll_start(&helper->socket_poll, UV_READABLE, on_socket);
    }
    return error;
}

/* Undo a helper whose polls could not be started. */
static void abandon(struct legacy_helper *helper)
{
    kill(helper->pid, SIGKILL);
    while (waitpid(helper->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    if (helper->n_open == 0) {
        close(helper->pidfd);
        close(helper->socket);
        free(helper);
        return;
    }
    const bool both = helper->n_open == 2;
    close_poll(&helper->pid_poll);
    if (both) {
        close_poll(&helper->socket_poll);
    }
}

int legacy_helper_create(uv_loop_t *loop, const struct device *device, legacy_died_fn *died,
                         void *data, struct legacy_helper **helper_p)
{
    int pair[2];

    if (device->exclusive) {
        return CUBIEMEM_HANDLE_KIND;
    }
    struct legacy_helper *helper = calloc(1, sizeof(*helper));
    if (helper == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    helper->died = died;
    helper->data = data;
    helper->end = &helper->first;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        int status = errno_status(errno);
        free(helper);
        return status;
    }
    helper->socket = pair[0];
    int status = spawn(device, pair[1], &helper->pid);
    close(pair[1]);
    if (status != CUBIEMEM_OK) {
        close(helper->socket);
        free(helper);
        return status;
    }
    helper->pidfd = (int)syscall(SYS_pidfd_open, helper->pid, 0); /* CLOEXEC by itself */
    int error = helper->pidfd < 0 ? -errno : start_polls(loop, helper);
    if (error != 0) {
        abandon(helper);
        return errno_status(-error);
    }
    *helper_p = helper;
    return CUBIEMEM_OK;
}

pid_t legacy_helper_pid(const struct legacy_helper *helper)
{
    return helper->pid;
}

void legacy_helper_kill(struct legacy_helper *helper)
{
    if (helper == NULL || helper->killed) {
        return;
    }
    helper->killed = true;
    end_conversation(helper);
    close_poll(&helper->socket_poll);
    answer_all(helper, CUBIEMEM_CANCELLED);
}
