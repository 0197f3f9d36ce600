/*
 * admin - an administrator's hand on clients: evict, kick, drain
 *
 * An order to evict asks the client's owners as a shortage would, and is answered
 * when the last of them has answered or its time is over. eviction.c reports each
 * owner's outcome here. Kicking ends a session like any other end does; draining only
 * concerns who says Hello from now on.
 */
#ifndef DAEMON_ADMIN_H
#define DAEMON_ADMIN_H

#include <stdint.h>

#include "daemon.h"

struct evict_order;
struct session;

enum evict_outcome {
    EVICT_GIVEN,  /* the memory is back */
    EVICT_BUSY,   /* the library said so */
    EVICT_SILENT, /* no answer within the eviction timeout */
    EVICT_GONE,   /* the session has ended */
};

/* One owner's end of an order, with the bytes that came back. The last one answers
 * the order and frees it. */
void evict_order_note(struct evict_order *order, enum evict_outcome outcome, uint64_t released);
/* Its asker ends: nobody is answered. */
void evict_order_forget_asker(struct evict_order *order, const struct session *session);

/* The session that status shows under this id; NULL if there is none. */
struct session *admin_find_client(const struct daemon *daemon, uint64_t id);

#endif
