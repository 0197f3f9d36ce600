/*
 * tool - what cubiememctl sees of the library, and the status document
 *
 * A viewer has no thread, no device and no instances.
 */
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "connection.h"
#include "failure.h"
#include "protocol_limits.h"

/* An answer lies in the arena it was decoded into; a viewer gets one of its own. */
static int copy(const Cubiemem__DaemonMessage *message, Cubiemem__DaemonMessage **copy_p)
{
    size_t size = cubiemem__daemon_message__get_packed_size(message);
    uint8_t *data = malloc(size + 1);
    Cubiemem__DaemonMessage *copied = NULL;
    if (data != NULL) {
        cubiemem__daemon_message__pack(message, data);
        copied = cubiemem__daemon_message__unpack(NULL, size, data);
    }
    free(data);
    if (copied == NULL) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory for an answer of %zu bytes", size);
    }
    *copy_p = copied;
    return CUBIEMEM_OK;
}

int client_call(struct cubiemem_client *client, Cubiemem__ClientMessage *request,
                Cubiemem__DaemonMessage **reply_p)
{
    struct incoming *answer = NULL;
    int status = client_check(client, CLIENT_WAITS);
    if (status == CUBIEMEM_OK) {
        status = client_ask(client, request, client->timeout_ns, "cubiememd", &answer);
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    status = copy(answer->message, reply_p);
    incoming_destroy(answer);
    return status;
}

void client_reply_free(Cubiemem__DaemonMessage *reply)
{
    if (reply != NULL) {
        cubiemem__daemon_message__free_unpacked(reply, NULL);
    }
}

const char *client_daemon_version(const struct cubiemem_client *client)
{
    return client->daemon_version;
}

uint64_t client_id(const struct cubiemem_client *client)
{
    return client->id;
}

static int join(const Cubiemem__StatusReply *reply, char **text_p)
{
    size_t size = 1;
    for (size_t i = 0; i < reply->n_json; i++) {
        size += strlen(reply->json[i]);
    }
    char *text = malloc(size);
    if (text == NULL) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory for a status of %zu bytes", size);
    }
    char *at = text;
    for (size_t i = 0; i < reply->n_json; i++) {
        at = stpcpy(at, reply->json[i]);
    }
    *at = '\0';
    *text_p = text;
    return CUBIEMEM_OK;
}

int cubiemem_status_json(struct cubiemem_client *client, char **json_p)
{
    Cubiemem__Status ask = CUBIEMEM__STATUS__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    struct incoming *answer = NULL;
    int status = client_check(client, CLIENT_WAITS);
    if (status == CUBIEMEM_OK && json_p == NULL) {
        status = failure_set(CUBIEMEM_INVALID_REQUEST, "nowhere to put the status");
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    message.status = &ask;
    status = client_ask(client, &message, client->timeout_ns, "status", &answer);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    status = answer->message->status != NULL
                 ? join(answer->message->status, json_p)
                 : failure_set(CUBIEMEM_INTERNAL, "the daemon's answer lacks the status");
    incoming_destroy(answer);
    return status;
}

void cubiemem_string_free(char *string)
{
    free(string);
}
