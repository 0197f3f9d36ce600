/*
 * server - the running daemon, see server.h
 *
 * The order of setting up is the order of what can be said if it fails: the
 * device first (its UUID names everything else), then the socket, then the
 * threads, and readiness last.
 */
#include "server.h"

#include <assert.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "answer.h"
#include "checked.h"
#include "connection.h"
#include "dispatch.h"
#include "endpoint.h"
#include "exit_status.h"
#include "protocol_limits.h"
#include "log.h"
#include "notify.h"
#include "scrub.h"
#include "session.h"
#include "transaction.h"
#include "waiting.h"

#define ACCEPTS_PER_TURN 16

/* -------------------------------------------------------------- the loop */

static void later(uv_idle_t *idle)
{
    struct daemon *daemon = idle->data;
    uv_idle_stop(idle);
    connections_finish_closing(daemon);
    waiting_serve(daemon);
    dispatch_take_up_parked(daemon);
    if (daemon->shutting_down && daemon->connections == NULL) {
        daemon_ended(daemon);
    }
}

void daemon_later(struct daemon *daemon)
{
    uv_idle_start(&daemon->later, later);
}

static void on_listen(uv_poll_t *poll, int status, int events)
{
    struct server *server = poll->data;
    (void)events;
    for (int i = 0; status == 0 && i < ACCEPTS_PER_TURN; i++) {
        int socket = accept4(server->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (socket >= 0) {
            connection_accept(&server->daemon, socket);
            continue;
        }
        const int error = errno;
        if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
            /* The connection stays in the backlog: look again in a while instead
             * of spinning on a socket that is readable all the time. */
            static struct log_limit limit = {.burst = 1, .period_ns = 10000000000};
            log_ratelimited(&limit, LOG_LEVEL_ERROR, "cannot accept: %s", strerror(error));
            if (error == EMFILE || error == ENFILE) {
                descriptors_short(&server->daemon, CUBIEMEM_NO_FDS);
            }
            uv_poll_stop(&server->daemon.listen_poll);
            uv_timer_start(&server->daemon.accept_timer, server->daemon.accept_again, 100, 0);
        }
        return;
    }
}

static void accept_again(uv_timer_t *timer)
{
    struct server *server = timer->data;
    uv_poll_start(&server->daemon.listen_poll, UV_READABLE, on_listen);
}

/* All clients are gone: the loop stops, whatever the device threads are at. What
 * is not ours (a helper process that is not reaped yet) ends in server_destroy(). */
/* The daemon's own handles; connections and threads close theirs. */
static void close_handles(struct daemon *daemon)
{
    uv_handle_t *const handles[] = {
        (uv_handle_t *)&daemon->listen_poll,  (uv_handle_t *)&daemon->sigterm,
        (uv_handle_t *)&daemon->sigint,       (uv_handle_t *)&daemon->drain_timer,
        (uv_handle_t *)&daemon->accept_timer, (uv_handle_t *)&daemon->evict_timer,
        (uv_handle_t *)&daemon->pace_timer,   (uv_handle_t *)&daemon->wait_timer,
        (uv_handle_t *)&daemon->later,
    };
    for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
        if (handles[i]->type != UV_UNKNOWN_HANDLE && !uv_is_closing(handles[i])) {
            uv_close(handles[i], NULL);
        }
    }
}

void daemon_ended(struct daemon *daemon)
{
    close_handles(daemon);
    uv_stop(&daemon->loop);
}

void daemon_shut_down(struct daemon *daemon, const char *reason)
{
    if (daemon->shutting_down) {
        return;
    }
    daemon->shutting_down = true;
    log_info("shutting down: %s", reason);
    notify_stopping("shutting down");
    uv_poll_stop(&daemon->listen_poll);
    uv_timer_stop(&daemon->accept_timer);
    Cubiemem__ShuttingDown body = CUBIEMEM__SHUTTING_DOWN__INIT;
    body.text = (char *)(uintptr_t)reason;
    for (struct session *session = daemon->sessions; session != NULL; session = session->next) {
        Cubiemem__DaemonMessage event = CUBIEMEM__DAEMON_MESSAGE__INIT;
        event.shutting_down = &body;
        answer_event(session, &event);
    }
    connections_close_all(daemon);
    daemon_later(daemon);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct server *server = signal->data;
    daemon_shut_down(&server->daemon, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

/* -------------------------------------------------------------- set-up */

static void raise_fd_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int admin_group(const struct options *options, gid_t *gid_p, char *why, size_t why_size)
{
    *gid_p = (gid_t)-1;
    if (options->admin_group != NULL) {
        struct group *group = getgrnam(options->admin_group);
        if (group == NULL) {
            snprintf(why, why_size, "--admin-group: there is no group '%s'", options->admin_group);
            return EXIT_STATUS_CONFIG;
        }
        *gid_p = group->gr_gid;
    }
    return EXIT_STATUS_OK;
}

static int device_exit_status(int status)
{
    switch (status) {
    case CUBIEMEM_OK:
        return EXIT_STATUS_OK;
    case CUBIEMEM_INVALID_REQUEST:
        return EXIT_STATUS_USAGE;
    case CUBIEMEM_NOT_FOUND:
        return EXIT_STATUS_NO_DEVICE;
    default:
        return EXIT_STATUS_SYSTEM;
    }
}

static void segment_released(struct segment *segment, void *data)
{
    (void)segment;
    drain_watch(data);
}

/* The device, the books, the policy: what needs no loop. */
static int create_core(struct daemon *daemon, const struct options *options, char *why,
                       size_t why_size)
{
    int status = device_exit_status(
        device_open(options->device, daemon->run_dir, &daemon->device, why, why_size));
    if (status != EXIT_STATUS_OK) {
        return status;
    }
    uint64_t budget, reserve, total, free_size;
    status = options_resolve(options, daemon->device.total, daemon->device.simulated, &budget,
                             &reserve, why, why_size);
    if (status != EXIT_STATUS_OK) {
        return status;
    }
    if (budget > sub_or_zero(daemon->device.total, reserve)) {
        char sizes[3][SIZE_TEXT_MAX];
        log_warn("a budget of %s and a reserve of %s are more than the device's %s: quotas that "
                 "add up to the whole may not all be had",
                 size_format(budget, sizes[0]), size_format(reserve, sizes[1]),
                 size_format(daemon->device.total, sizes[2]));
    }
    books_init(&daemon->books, budget, reserve,
               daemon->device.simulated ? 0 : BOOKS_CONTEXT_ALLOWANCE);
    if (device_memory(&daemon->device, &total, &free_size) == CUBIEMEM_OK) {
        books_read(&daemon->books, total, free_size, now_ns());
    }
    struct policy_config config = {.total = budget,
                                   .granularity = daemon->device.granularity,
                                   .alignment = ARRAY_ALIGNMENT,
                                   .mode = options->mode,
                                   .auto_share = options->auto_share};
    daemon->mode = options->mode;
    user_limits_init(&daemon->user_limits);
    daemon->evict_timeout_ns = (int64_t)options->evict_timeout_ns;
    daemon->pool = pool_create();
    daemon->policy = policy_create(&config);
    if (daemon->pool == NULL || daemon->policy == NULL) {
        snprintf(why, why_size, "out of host memory");
        return EXIT_STATUS_SYSTEM;
    }
    policy_set_block_gone(daemon->policy, session_block_gone, daemon);
    return admin_group(options, &daemon->admin_group, why, why_size);
}

static void init_handles(struct server *server)
{
    struct daemon *daemon = &server->daemon;
    uv_idle_init(&daemon->loop, &daemon->later);
    uv_timer_init(&daemon->loop, &daemon->drain_timer);
    uv_timer_init(&daemon->loop, &daemon->accept_timer);
    uv_timer_init(&daemon->loop, &daemon->evict_timer);
    uv_timer_init(&daemon->loop, &daemon->wait_timer);
    uv_timer_init(&daemon->loop, &daemon->pace_timer);
    uv_signal_init(&daemon->loop, &daemon->sigterm);
    uv_signal_init(&daemon->loop, &daemon->sigint);
    uv_poll_init(&daemon->loop, &daemon->listen_poll, server->listener.fd);
    daemon->later.data = daemon;
    daemon->drain_timer.data = daemon;
    daemon->accept_again = accept_again;
    daemon->accept_timer.data = daemon->listen_poll.data = server;
    daemon->sigterm.data = daemon->sigint.data = server;
    uv_signal_start(&daemon->sigterm, on_signal, SIGTERM);
    uv_signal_start(&daemon->sigint, on_signal, SIGINT);
    uv_poll_start(&daemon->listen_poll, UV_READABLE, on_listen);
}

static int create_threads(struct daemon *daemon, char *why, size_t why_size)
{
    int status = grant_thread_create(&daemon->loop, &daemon->device, &daemon->grant);
    if (status == CUBIEMEM_OK) {
        status = reclaim_thread_create(&daemon->loop, &daemon->device, daemon->grant,
                                       segment_released, daemon, &daemon->reclaim);
    }
    if (status != CUBIEMEM_OK) {
        snprintf(why, why_size, "cannot start the device threads: %s", strerror(errno));
        return EXIT_STATUS_SYSTEM;
    }
    return EXIT_STATUS_OK;
}

/* <run> of the rule, or the directory of --socket. */
static int find_run_dir(const struct options *options, char *run_dir, size_t size, char *why,
                        size_t why_size)
{
    char path[ENDPOINT_PATH_MAX];
    int status = endpoint_for_daemon(options->socket, "GPU", path, why, why_size);
    if (status != CUBIEMEM_OK) {
        return status == CUBIEMEM_INVALID_REQUEST ? EXIT_STATUS_USAGE : EXIT_STATUS_SYSTEM;
    }
    snprintf(run_dir, size, "%s", dirname(path));
    return EXIT_STATUS_OK;
}

static int listen_on(struct server *server, const struct options *options, char *why,
                     size_t why_size)
{
    char path[ENDPOINT_PATH_MAX];
    int status = endpoint_for_daemon(options->socket, server->daemon.device.uuid, path, why,
                                     why_size);
    if (status != CUBIEMEM_OK) {
        return status == CUBIEMEM_INVALID_REQUEST ? EXIT_STATUS_USAGE : EXIT_STATUS_SYSTEM;
    }
    struct listener_config config = {.path = path,
                                     .uuid = server->daemon.device.uuid,
                                     .group = options->socket_group,
                                     .activation = true};
    return listener_open(&config, &server->listener, why, why_size);
}

int server_create(const struct options *options, struct server **server_p, char *why,
                  size_t why_size)
{
    struct server *server = calloc(1, sizeof(*server));
    if (server == NULL || uv_loop_init(&server->daemon.loop) != 0) {
        free(server);
        snprintf(why, why_size, "out of host memory");
        return EXIT_STATUS_SYSTEM;
    }
    struct daemon *daemon = &server->daemon;
    server->listener.fd = server->listener.lock_fd = -1;
    raise_fd_limit();
    int status =
        find_run_dir(options, daemon->run_dir, sizeof(daemon->run_dir), why, why_size);
    if (status == EXIT_STATUS_OK) {
        status = create_core(daemon, options, why, why_size);
    }
    if (status == EXIT_STATUS_OK) {
        status = listen_on(server, options, why, why_size);
    }
    if (status == EXIT_STATUS_OK) {
        init_handles(server);
        status = create_threads(daemon, why, why_size);
    }
    if (status != EXIT_STATUS_OK) {
        server_destroy(server);
        return status;
    }
    char reason[200];
    daemon->single_user =
        !daemon->device.simulated && !scrub_is_on(scrub_params_path(), reason, sizeof(reason));
    if (daemon->single_user) {
        log_warn("serving the first client's user only: %s", reason);
    }
    char size[SIZE_TEXT_MAX];
    log_info("cubiememd %s serves %s (%s), budget %s, on %s", CUBIEMEM_VERSION_STRING,
             daemon->device.uuid, daemon->device.name, size_format(daemon->books.budget, size),
             server->listener.path);
    *server_p = server;
    return EXIT_STATUS_OK;
}

void server_run(struct server *server)
{
    notify_ready("serving");
    uv_run(&server->daemon.loop, UV_RUN_DEFAULT);
}

/* Cached segments are not handed to anybody any more. */
static void drop_pool(struct daemon *daemon)
{
    if (daemon->pool == NULL) {
        return;
    }
    struct segment *segment = pool_evict(daemon->pool, 0, UINT64_MAX);
    while (segment != NULL) {
        struct segment *next = segment->next;
        device_segment_destroy(&daemon->device, segment);
        segment = next;
    }
    pool_destroy(daemon->pool);
}

void server_destroy(struct server *server)
{
    struct daemon *daemon = &server->daemon;
    /* Jobs of transactions come back as cancelled and undo them. */
    reclaim_thread_destroy(daemon->reclaim);
    daemon->reclaim = NULL;
    grant_thread_destroy(daemon->grant);
    daemon->grant = NULL;
    /* Without uv_stop(), so that this run gets to the callbacks of what closes. */
    close_handles(daemon);
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    uv_loop_close(&daemon->loop);
    policy_destroy(daemon->policy);
    drop_pool(daemon);
    if (server->listener.fd >= 0) {
        listener_finish(&server->listener);
    }
    device_close(&daemon->device);
    free(server);
}
