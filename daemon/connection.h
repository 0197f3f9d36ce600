/*
 * connection - one accepted socket: packets in, packets out, and its deadlines
 *
 * Owns the socket, the queue of what is to be sent and the poll handles; knows
 * nothing of what the messages say. Reading never waits, writing never blocks:
 * what the peer does not take is queued, and a peer that takes nothing for
 * LIMIT_UNREAD_NS, says no Hello, or owes memory for too long is dropped. One
 * packet with descriptors may be unacknowledged.
 *
 * connection_close() only marks: the session ends from the loop, never inside
 * a call of somebody who still looks at it.
 */
#ifndef DAEMON_CONNECTION_H
#define DAEMON_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "daemon.h"
#include "fdset.h"
#include "identity.h"

struct connection;
struct outgoing;

/* Takes over an accepted socket. False (the socket is closed) if it cannot be
 * served; said in the log. */
bool connection_accept(struct daemon *daemon, int socket);

/* Takes data (malloc'ed) and the descriptors. `packet` is the number in the
 * message if it carries descriptors, else 0. */
void connection_send(struct connection *connection, unsigned char *data, size_t size,
                     struct fdset *fds, uint64_t packet);
uint64_t connection_next_packet(struct connection *connection);
/* False: nothing of that number is waiting. */
bool connection_acked(struct connection *connection, uint64_t packet);

/* One log line with the reason, then the end, soon. */
void connection_close(struct connection *connection, const char *reason);
/* The same after everything queued was sent (a version mismatch, for example). */
void connection_close_after(struct connection *connection, const char *reason);
/* Reads again from those whose user sent too many messages; from the pace timer. */
void connections_resume(struct daemon *daemon);
/* All of them, at the daemon's own end. */
void connections_close_all(struct daemon *daemon);
/* Ends those that were marked; from the loop only. */
void connections_finish_closing(struct daemon *daemon);
size_t connections_count(const struct daemon *daemon);

bool connection_is_closing(const struct connection *connection);
bool connection_is_admin(const struct connection *connection);
struct daemon *connection_daemon(const struct connection *connection);
struct user *connection_user(const struct connection *connection);
struct session *connection_session(const struct connection *connection);
/* The identity's pidfd stays with the connection until Hello hands it on. */
struct identity *connection_identity(struct connection *connection);
void connection_set_session(struct connection *connection, struct session *session);
/* A deadline may have come into being: see that somebody looks. */
void connection_watch(struct connection *connection);

/* Parts of a message, joined: the raw bytes so far. */
struct assembly {
    unsigned char *data;
    size_t size, room;
    uint64_t id;
    uint32_t next_part;
};
struct assembly *connection_assembly(struct connection *connection);

#endif
