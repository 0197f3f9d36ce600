/*
 * handlers - one function a request: typed calls behind a decoded message
 *
 * A handler either answers itself and returns HANDLED, or returns a status that
 * dispatch answers with `why` (static or in the buffer given) as its text.
 */
#ifndef DAEMON_HANDLERS_H
#define DAEMON_HANDLERS_H

#include <stddef.h>

#include "connection.h"
#include "cubiemem.pb-c.h"
#include "session.h"

#define HANDLED 1
#define WHY_SIZE 400

struct request {
    struct connection *connection;
    struct session *session; /* NULL: Hello */
    uint64_t id;
    const Cubiemem__ClientMessage *message;
    char why[WHY_SIZE];
};

int handle_hello(struct request *request);
int handle_register(struct request *request);
int handle_unregister(struct request *request);
int handle_set_proportion(struct request *request);
int handle_set_auto(struct request *request);
int handle_change_group(struct request *request);
int handle_queue(struct request *request);
int handle_allocate(struct request *request);
int handle_release(struct request *request);
int handle_cancel(struct request *request);
int handle_give_back(struct request *request);
int handle_evict_reply(struct request *request);
int handle_ack(struct request *request);
int handle_context_ready(struct request *request);
int handle_ping(struct request *request);
int handle_available(struct request *request);
int handle_control_pages(struct request *request);
int handle_status(struct request *request);
int handle_set_mode(struct request *request);
int handle_set_limit(struct request *request);
int handle_evict(struct request *request);
int handle_kick(struct request *request);
int handle_drain(struct request *request);

/* The limits have a new revision: everybody but tools hears of it. */
void limits_announce(struct daemon *daemon);

/* The instance that a request names, or NULL with why filled. */
struct instance *request_instance(struct request *request, bool has_id, uint64_t id);

#endif
