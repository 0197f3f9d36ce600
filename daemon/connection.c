/*
 * connection - one accepted socket, see connection.h
 */
#include "connection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "dispatch.h"
#include "protocol_limits.h"
#include "log.h"
#include "packet.h"
#include "session.h"

#define TICK_MS 500

struct outgoing {
    unsigned char *data;
    size_t size;
    struct fdset fds;
    uint64_t packet; /* 0: no descriptors */
    struct outgoing *next, *prev;
};

struct connection {
    struct daemon *daemon;
    int socket;
    uint64_t number; /* for the log, before there is a session */
    struct identity identity;
    struct session *session;
    struct user *user;
    uv_poll_t poll, pid_poll;
    int polled; /* events that `poll` waits for */
    uv_timer_t tick;
    bool has_pid_poll;
    unsigned n_handles; /* open uv handles */

    struct outgoing *out;
    size_t out_size;
    uint64_t last_packet, unacked; /* 0: none */
    int64_t stuck_since_ns; /* neither the queue nor an Ack has moved since; 0: nothing waits */
    int64_t accepted_ns;
    struct assembly assembly;

    bool closing, close_after;
    bool paused; /* not read from: its user's messages come too fast */
    char reason[160];
    struct connection *prev, *next; /* daemon.connections */
    struct connection *next_closing;
};

static unsigned char packet_buffer[PACKET_MAX_SIZE];

/* ------------------------------------------------------------------- ends */

static void outgoing_free(struct outgoing *outgoing)
{
    fdset_finish(&outgoing->fds);
    free(outgoing->data);
    free(outgoing);
}

static void handle_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data;
    if (--connection->n_handles > 0) {
        return;
    }
    close(connection->socket);
    identity_finish(&connection->identity);
    user_put(&connection->daemon->users, connection->user);
    while (connection->out != NULL) {
        struct outgoing *outgoing = connection->out;
        DL_DELETE(connection->out, outgoing);
        outgoing_free(outgoing);
    }
    free(connection->assembly.data);
    free(connection);
}

/* From the loop itself: nobody is looking at the session. */
static void finish(struct connection *connection)
{
    struct daemon *daemon = connection->daemon;
    uv_poll_stop(&connection->poll);
    if (connection->has_pid_poll) {
        uv_poll_stop(&connection->pid_poll);
    }
    /* The pidfd must outlive its poll handle's close: the identity comes back. */
    if (connection->session != NULL) {
        connection->identity.pidfd = connection->session->identity.pidfd;
        connection->session->identity.pidfd = -1;
        session_end(connection->session);
        connection->session = NULL;
    }
    DL_DELETE(daemon->connections, connection);
    uv_close((uv_handle_t *)&connection->poll, handle_closed);
    uv_close((uv_handle_t *)&connection->tick, handle_closed);
    if (connection->has_pid_poll) {
        uv_close((uv_handle_t *)&connection->pid_poll, handle_closed);
    }
}

void connections_finish_closing(struct daemon *daemon)
{
    while (daemon->closing != NULL) {
        struct connection *connection = daemon->closing;
        daemon->closing = connection->next_closing;
        dispatch_forget_connection(daemon, connection);
        finish(connection);
    }
}

void connection_close(struct connection *connection, const char *reason)
{
    if (connection->closing) {
        return;
    }
    connection->closing = true;
    struct identity *identity =
        connection->session != NULL ? &connection->session->identity : &connection->identity;
    char who[LOG_QUOTE_SIZE + 80];
    if (connection->session != NULL) {
        char name[LOG_QUOTE_SIZE];
        snprintf(who, sizeof(who), "client %" PRIu64 " (%s, pid %d, uid %u)",
                 connection->session->id, log_quote(connection->session->name, name),
                 (int)identity->pid, identity->uid);
    } else {
        snprintf(who, sizeof(who), "connection of pid %d, uid %u", (int)identity->pid,
                 identity->uid);
    }
    if (reason == NULL) {
        log_debug("%s: gone", who);
    } else {
        static struct log_limit limit = {.burst = 50, .period_ns = 10000000000};
        log_ratelimited(&limit, LOG_LEVEL_WARN, "%s: closed: %s", who, reason);
    }
    connection->next_closing = connection->daemon->closing;
    connection->daemon->closing = connection;
    daemon_later(connection->daemon);
}

void connection_close_after(struct connection *connection, const char *reason)
{
    snprintf(connection->reason, sizeof(connection->reason), "%s", reason);
    connection->close_after = true;
    if (connection->out == NULL) {
        connection_close(connection, connection->reason);
    }
}

/* -------------------------------------------------------------- deadlines */

static void flush(struct connection *connection);

static void tick(uv_timer_t *timer)
{
    struct connection *connection = timer->data;
    const struct session *session = connection->session;
    int64_t now = now_ns();
    bool wanted = false;
    if (session == NULL) {
        wanted = true;
        if (now - connection->accepted_ns > LIMIT_HELLO_NS) {
            connection_close(connection, "no Hello came in time");
        }
    } else if (session->owed != NULL) {
        wanted = true;
        if (control_pages_show_work(session->pages)) {
            /* Another member's Allocate replaced what it works in: it first ends that. */
            connection->session->owed_since_ns = now;
        } else if (now - session->owed_since_ns > LIMIT_GIVE_BACK_NS) {
            connection_close(connection, "replaced memory was not given back in time");
        }
    }
    if (connection->stuck_since_ns != 0) {
        wanted = true;
        if (connection->out != NULL) {
            flush(connection); /* what waits for others' descriptors to be received */
        }
        if (connection->stuck_since_ns != 0 && now - connection->stuck_since_ns > LIMIT_UNREAD_NS) {
            connection_close(connection, "it does not read, or does not acknowledge");
        }
    }
    if (!wanted) {
        uv_timer_stop(timer);
    }
}

void connection_watch(struct connection *connection)
{
    if (!connection->closing && !uv_is_active((uv_handle_t *)&connection->tick)) {
        uv_timer_start(&connection->tick, tick, TICK_MS, TICK_MS);
    }
}

/* ---------------------------------------------------------------- sending */

static void poll_wanted(struct connection *connection, int events);

static void flush(struct connection *connection)
{
    int wanted = UV_READABLE;
    while (connection->out != NULL && !connection->closing) {
        struct outgoing *outgoing = connection->out;
        if (outgoing->packet != 0 && connection->unacked != 0) {
            break; /* goes on with the Ack */
        }
        enum packet_outcome outcome = packet_send(connection->socket, outgoing->data,
                                                  outgoing->size, &outgoing->fds, MSG_DONTWAIT);
        if (outcome == PACKET_AGAIN) {
            /* Too many descriptors on their way to others say nothing about this
             * socket, which is writable: the tick tries again. */
            wanted |= errno == EAGAIN ? UV_WRITABLE : 0;
            break;
        }
        if (outcome != PACKET_OK) {
            connection_close(connection, outcome == PACKET_END ? NULL : strerror(errno));
            return;
        }
        if (outgoing->packet != 0 || connection->unacked == 0) {
            connection->stuck_since_ns = now_ns();
        }
        connection->unacked = outgoing->packet != 0 ? outgoing->packet : connection->unacked;
        connection->out_size -= outgoing->size;
        DL_DELETE(connection->out, outgoing);
        outgoing_free(outgoing);
    }
    if (connection->out == NULL && connection->unacked == 0) {
        connection->stuck_since_ns = 0;
    } else {
        connection_watch(connection);
    }
    if (connection->out == NULL && connection->close_after) {
        connection_close(connection, connection->reason);
    }
    poll_wanted(connection, wanted);
}

void connection_send(struct connection *connection, unsigned char *data, size_t size,
                     struct fdset *fds, uint64_t packet)
{
    struct outgoing *outgoing = connection->closing ? NULL : malloc(sizeof(*outgoing));
    if (outgoing == NULL) {
        free(data);
        if (fds != NULL) {
            fdset_finish(fds);
        }
        connection_close(connection, "out of host memory for its answer");
        return;
    }
    *outgoing = (struct outgoing){.data = data, .size = size, .packet = packet};
    fdset_init(&outgoing->fds);
    if (fds != NULL) {
        fdset_move(&outgoing->fds, fds);
    }
    bool was_empty = connection->out == NULL;
    DL_APPEND(connection->out, outgoing);
    connection->out_size += size;
    if (connection->out_size > LIMIT_OUTPUT_BYTES) {
        connection_close(connection, "too many answers wait that it does not read");
        return;
    }
    if (was_empty) {
        if (connection->stuck_since_ns == 0) {
            connection->stuck_since_ns = now_ns();
        }
        flush(connection);
    }
}

uint64_t connection_next_packet(struct connection *connection)
{
    return ++connection->last_packet;
}

bool connection_acked(struct connection *connection, uint64_t packet)
{
    if (packet == 0 || connection->unacked != packet) {
        return false;
    }
    connection->unacked = 0;
    connection->stuck_since_ns = now_ns();
    flush(connection);
    return true;
}

/* -------------------------------------------------------------- receiving */

/* A forked child may hold the socket and speak on it: it is not our client. */
static bool sender_is_peer(const struct connection *connection, const struct packet_info *info)
{
    const struct identity *identity =
        connection->session != NULL ? &connection->session->identity : &connection->identity;
    return identity->pid == 0 || !info->has_sender || info->pid == identity->pid;
}

static void pace_tick(uv_timer_t *timer)
{
    connections_resume(timer->data);
}

static void pause_reading(struct connection *connection)
{
    struct daemon *daemon = connection->daemon;
    connection->paused = true;
    poll_wanted(connection, connection->out != NULL ? UV_WRITABLE : 0);
    if (!uv_is_active((uv_handle_t *)&daemon->pace_timer)) {
        daemon->pace_timer.data = daemon;
        uv_timer_start(&daemon->pace_timer, pace_tick, LIMIT_USER_PAUSE_NS / 1000000, 0);
    }
}

void connections_resume(struct daemon *daemon)
{
    struct connection *connection;
    DL_FOREACH(daemon->connections, connection)
    {
        if (connection->paused && !connection->closing) {
            connection->paused = false;
            flush(connection);
        }
    }
}

/* False: not now. */
static bool may_receive(struct connection *connection)
{
    if (connection->user->uid == 0 || user_may_speak(connection->user, now_ns())) {
        return true;
    }
    pause_reading(connection);
    return false;
}

/* One packet a turn: whoever waits for its answer sends no second one, and the
 * others get theirs. */
static void receive(struct connection *connection)
{
    struct packet_info info;
    if (!may_receive(connection)) {
        return;
    }
    switch (packet_receive(connection->socket, packet_buffer, NULL, MSG_DONTWAIT, &info)) {
    case PACKET_AGAIN:
        return;
    case PACKET_END:
        connection_close(connection, NULL);
        return;
    case PACKET_TOO_LONG:
        connection_close(connection, "a packet is longer than the protocol allows");
        return;
    case PACKET_ERROR:
        connection_close(connection, strerror(errno));
        return;
    case PACKET_OK:
        break;
    }
    if (connection->close_after) {
        return; /* it was told the last already */
    }
    if (connection->user->uid != 0) {
        user_spoke(connection->user, &connection->daemon->user_limits, now_ns());
    }
    if (!sender_is_peer(connection, &info)) {
        connection_close(connection, "another process speaks on its connection");
        return;
    }
    dispatch_packet(connection, packet_buffer, info.size);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct connection *connection = poll->data;
    if (status < 0) { /* libuv 1.44: a dead peer may show as UV_EBADF, with no events */
        connection_close(connection, NULL);
        return;
    }
    if ((events & UV_READABLE) != 0) {
        receive(connection);
    }
    if ((events & UV_WRITABLE) != 0 && !connection->closing) {
        flush(connection);
    }
}

static void poll_wanted(struct connection *connection, int events)
{
    /* A start takes the descriptor out of the epoll set and puts it in again. */
    events &= connection->paused ? ~UV_READABLE : ~0;
    if (!connection->closing && connection->polled != events) {
        connection->polled = events;
        uv_poll_start(&connection->poll, events, on_poll);
    }
}

static void on_pidfd(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    connection_close(poll->data, NULL);
}

/* -------------------------------------------------------------- accepting */

/* The peer's user, unless it has too many connections or host memory is short. A
 * session too many gets an answer; this bounds those that never say Hello. */
static struct user *admit(struct daemon *daemon, const struct identity *identity)
{
    static struct log_limit limit = {.burst = 5, .period_ns = 10000000000};
    size_t most = daemon->user_limits.sessions + LIMIT_USER_STRANGERS;
    struct user *user = user_get(&daemon->users, identity->uid);
    if (user != NULL && user_has_room(user, user->n_connections - 1, most)) {
        return user;
    }
    if (user == NULL) {
        log_ratelimited(&limit, LOG_LEVEL_WARN, "a connection is refused: out of host memory");
    } else {
        log_ratelimited(&limit, LOG_LEVEL_WARN,
                        "a connection of pid %d is refused: uid %u has %zu already",
                        (int)identity->pid, identity->uid, most);
    }
    user_put(&daemon->users, user);
    return NULL;
}

bool connection_accept(struct daemon *daemon, int socket)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL || identity_read(socket, &connection->identity) != 0) {
        static struct log_limit limit = {.burst = 5, .period_ns = 10000000000};
        const int error = connection == NULL ? ENOMEM : errno;
        log_ratelimited(&limit, LOG_LEVEL_WARN, "a connection is refused: %s", strerror(error));
        if (error == EMFILE || error == ENFILE) {
            descriptors_short(daemon, CUBIEMEM_NO_FDS);
        }
        free(connection);
        close(socket);
        return false;
    }
    connection->user = admit(daemon, &connection->identity);
    if (connection->user == NULL) {
        identity_finish(&connection->identity);
        free(connection);
        close(socket);
        return false;
    }
    connection->daemon = daemon;
    connection->socket = socket;
    connection->accepted_ns = now_ns();
    connection->poll.data = connection->pid_poll.data = connection->tick.data = connection;
    if (uv_poll_init(&daemon->loop, &connection->poll, socket) != 0) {
        identity_finish(&connection->identity);
        user_put(&daemon->users, connection->user);
        free(connection);
        close(socket);
        return false;
    }
    uv_timer_init(&daemon->loop, &connection->tick);
    connection->n_handles = 2;
    if (connection->identity.pidfd >= 0 &&
        uv_poll_init(&daemon->loop, &connection->pid_poll, connection->identity.pidfd) == 0) {
        connection->has_pid_poll = true;
        connection->n_handles++;
        uv_poll_start(&connection->pid_poll, UV_READABLE, on_pidfd);
    }
    DL_APPEND(daemon->connections, connection);
    if (connection->identity.pidfd >= 0 && !connection->has_pid_poll) {
        connection_close(connection, "its process cannot be watched");
    }
    poll_wanted(connection, UV_READABLE);
    connection_watch(connection);
    return true;
}

void connections_close_all(struct daemon *daemon)
{
    struct connection *connection;
    DL_FOREACH(daemon->connections, connection)
    {
        connection_close(connection, NULL);
    }
}

size_t connections_count(const struct daemon *daemon)
{
    size_t n;
    const struct connection *connection;
    DL_COUNT(daemon->connections, connection, n);
    return n;
}

bool connection_is_closing(const struct connection *connection)
{
    return connection->closing;
}

bool connection_is_admin(const struct connection *connection)
{
    const struct identity *identity =
        connection->session != NULL ? &connection->session->identity : &connection->identity;
    return identity_is_admin(connection->socket, identity, connection->daemon->admin_group);
}

struct daemon *connection_daemon(const struct connection *connection)
{
    return connection->daemon;
}

struct user *connection_user(const struct connection *connection)
{
    return connection->user;
}

struct session *connection_session(const struct connection *connection)
{
    return connection->session;
}

struct identity *connection_identity(struct connection *connection)
{
    return &connection->identity;
}

void connection_set_session(struct connection *connection, struct session *session)
{
    connection->session = session;
}

struct assembly *connection_assembly(struct connection *connection)
{
    return &connection->assembly;
}
