/*
 * connection - what cubiememctl sees of the client library
 *
 * A viewer's connection needs no device and registers nothing; its requests
 * are protobuf messages. Failures are in cubiemem_last_error(), as ever.
 */
#ifndef CLIENT_CONNECTION_H
#define CLIENT_CONNECTION_H

#include <stdint.h>

#include "cubiemem.h"
#include "cubiemem.pb-c.h"

/* Connect with Hello.tool. socket and gpu (a UUID) may be NULL: the
 * environment. Ends with cubiemem_close(). */
int client_open_tool(const char *socket, const char *gpu, int64_t timeout_ns,
                     struct cubiemem_client **client_p);

/*
 * Send one request (its id is filled in) and wait for its answer. A status
 * below OK in the answer's result is returned and recorded as the call's own;
 * the answer is then not given.
 */
int client_call(struct cubiemem_client *client, Cubiemem__ClientMessage *request,
                Cubiemem__DaemonMessage **reply_p);
void client_reply_free(Cubiemem__DaemonMessage *reply);

/* What HelloReply said: the daemon's version and the client's id. */
const char *client_daemon_version(const struct cubiemem_client *client);
uint64_t client_id(const struct cubiemem_client *client);

#endif
