/*
 * answer - typed results on their way out, see answer.h
 */
#include "answer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checked.h"
#include "connection.h"
#include "fdset.h"
#include "status.h"

/* Encodes and queues one message. */
static void send_message(struct connection *connection, const Cubiemem__DaemonMessage *message,
                         struct fdset *fds)
{
    size_t size = cubiemem__daemon_message__get_packed_size(message);
    unsigned char *data = malloc(size > 0 ? size : 1);
    if (data == NULL) {
        if (fds != NULL) {
            fdset_finish(fds);
        }
        connection_close(connection, "out of host memory for its answer");
        return;
    }
    cubiemem__daemon_message__pack(message, data);
    connection_send(connection, data, size, fds, message->packet);
}

void answer_hello_refused(struct connection *connection, uint64_t request_id, int status,
                          const char *text)
{
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
    result.has_code = true;
    result.code = status;
    result.text = (char *)(uintptr_t)text;
    message.has_id = true;
    message.id = request_id;
    message.result = &result;
    send_message(connection, &message, NULL);
    connection_close_after(connection, text);
}

void answer_message(struct session *session, uint64_t request_id,
                    const Cubiemem__DaemonMessage *message, int fd)
{
    Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
    if (request_id == 0) { /* it asked for no answer */
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    Cubiemem__DaemonMessage sent = *message;
    if (sent.result == NULL) {
        result.has_code = true;
        sent.result = &result;
    }
    sent.has_id = true;
    sent.id = request_id;
    struct fdset fds = FDSET_INIT;
    if (fd >= 0) {
        fdset_consume(&fds, fd);
        sent.has_packet = true;
        sent.packet = connection_next_packet(session->connection);
    }
    send_message(session->connection, &sent, &fds);
    answer_ended(session, request_id);
}

void answer_event(struct session *session, Cubiemem__DaemonMessage *message)
{
    message->has_id = true;
    message->id = 0;
    send_message(session->connection, message, NULL);
}

void answer_status(struct session *session, uint64_t request_id, int status, const char *text)
{
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
    result.has_code = true;
    result.code = status;
    if (status != CUBIEMEM_OK) {
        result.text = (char *)(uintptr_t)(text != NULL ? text : status_text(status));
    }
    message.result = &result;
    answer_message(session, request_id, &message, -1);
}

/* --------------------------------------------------------------- refusals */

static void set_figure(uint64_t figure, protobuf_c_boolean *has_p, uint64_t *figure_p)
{
    *has_p = figure != UINT64_MAX;
    *figure_p = figure;
}

/* "what: why; asked 600 MiB, held 0 B, cap 512 MiB, free ...; limited by cap" */
static void refusal_text(int status, const struct policy_refusal *refusal, const char *more,
                         char *text, size_t size)
{
    char what[300] = "";
    if (refusal->instance != NULL && refusal->label != NULL) {
        snprintf(what, sizeof(what), "instance '%.120s', array '%.120s': ", refusal->instance,
                 refusal->label);
    } else if (refusal->instance != NULL) {
        snprintf(what, sizeof(what), "instance '%.200s': ", refusal->instance);
    }
    char figures[400] = "";
    if (refusal->asked != UINT64_MAX && status != CUBIEMEM_INVALID_REQUEST) {
        const struct {
            const char *name;
            uint64_t size;
        } known[] = {{"asked", refusal->asked},
                     {"held", refusal->held},
                     {"cap", refusal->cap},
                     {"free", refusal->free},
                     {"the largest that fits in one chunk", refusal->largest}};
        size_t length = 0;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
            char figure[SIZE_TEXT_MAX];
            if (known[i].size != UINT64_MAX) {
                length += (size_t)snprintf(figures + length, sizeof(figures) - length, "%s%s %s",
                                           i == 0 ? "; " : ", ", known[i].name,
                                           size_format(known[i].size, figure));
            }
        }
        if (refusal->limited_by[0] != '\0') {
            snprintf(figures + length, sizeof(figures) - length, ", limited by %.80s",
                     refusal->limited_by);
        }
    }
    snprintf(text, size, "%s%s%s%s%s", what,
             refusal->why != NULL ? refusal->why : status_text(status), figures,
             more != NULL ? "; " : "", more != NULL ? more : "");
}

void answer_refusal(struct session *session, uint64_t request_id, int status, CUresult cu_result,
                    const struct policy_refusal *refusal, const char *text)
{
    char line[900];
    refusal_text(status, refusal, text, line, sizeof(line));
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
    result.has_code = true;
    result.code = status;
    result.has_cu_result = cu_result != CUDA_SUCCESS;
    result.cu_result = (int32_t)cu_result;
    result.text = line;
    if (refusal->asked != UINT64_MAX) {
        set_figure(refusal->asked, &result.has_asked, &result.asked);
        set_figure(refusal->held, &result.has_held, &result.held);
        set_figure(refusal->cap, &result.has_cap, &result.cap);
        set_figure(refusal->free, &result.has_free, &result.free);
        set_figure(refusal->largest, &result.has_largest, &result.largest);
    }
    if (refusal->limited_by[0] != '\0') {
        result.limited_by = (char *)(uintptr_t)refusal->limited_by;
    }
    result.has_warnings = refusal->warnings != 0;
    result.warnings = refusal->warnings;
    message.result = &result;
    answer_message(session, request_id, &message, -1);
}

/* ------------------------------------------------------------------- text */

void answer_json(struct session *session, uint64_t request_id, char *json)
{
    if (request_id == 0) {
        free(json);
        return;
    }
    if (json == NULL) {
        answer_status(session, request_id, CUBIEMEM_HOST_MEMORY, NULL);
        return;
    }
    size_t left = strlen(json);
    const char *at = json;
    uint32_t part = 0;
    do {
        /* The pieces are strings of their own: cut between characters. */
        size_t size = left < ANSWER_PART_SIZE ? left : ANSWER_PART_SIZE;
        while (size < left && ((unsigned char)at[size] & 0xc0) == 0x80) {
            size--;
        }
        char *piece = strndup(at, size);
        if (piece == NULL) {
            connection_close(session->connection, "out of host memory for its answer");
            break;
        }
        Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
        Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
        Cubiemem__StatusReply reply = CUBIEMEM__STATUS_REPLY__INIT;
        result.has_code = true;
        reply.n_json = 1;
        reply.json = &piece;
        message.has_id = message.has_part = message.has_more = true;
        message.id = request_id;
        message.part = part++;
        message.more = size < left;
        message.result = &result;
        message.status = &reply;
        send_message(session->connection, &message, NULL);
        free(piece);
        at += size;
        left -= size;
    } while (left > 0 && !connection_is_closing(session->connection));
    free(json);
    answer_ended(session, request_id);
}
