/*
 * answer - typed results on their way out, as messages
 *
 * The encoding half of dispatch: what the decisions say becomes DaemonMessages
 * and packets. A grant is encoded before it is committed, so that nothing can
 * fail behind the commit.
 */
#ifndef DAEMON_ANSWER_H
#define DAEMON_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "cubiemem.pb-c.h"
#include "session.h"

/* Room for the envelope, a Result and the figures of a response in each part. */
#define ANSWER_PART_SIZE (PACKET_MAX_SIZE - 2048)

/* The request of this id (0: none) has its answer. */
static inline void answer_ended(struct session *session, uint64_t request_id)
{
    if (request_id != 0) {
        session_request_ended(session);
    }
}

/* A Result of a status and one line of text; no figures. text may be NULL. */
void answer_status(struct session *session, uint64_t request_id, int status, const char *text);
/* A refused Hello: there is no session yet, and will be none. */
void answer_hello_refused(struct connection *connection, uint64_t request_id, int status,
                          const char *text);
/* The same with the figures of a refusal. */
void answer_refusal(struct session *session, uint64_t request_id, int status, CUresult cu_result,
                    const struct policy_refusal *refusal, const char *text);
/* Any answer that fits into one packet; fd >= 0 travels with it and is closed
 * in any case. The message's id is set here. */
void answer_message(struct session *session, uint64_t request_id,
                    const Cubiemem__DaemonMessage *message, int fd);

/* A grant's messages, encoded, not yet sent. */
struct answer_batch;
struct transaction;
/* From a plan whose backing was applied. Return: OK, HOST_MEMORY, NO_FDS. */
int answer_grant_encode(const struct transaction *transaction, uint64_t grant,
                        struct answer_batch **batch_p);
void answer_grant_send(struct answer_batch *batch); /* and free */
void answer_grant_drop(struct answer_batch *batch);

/* Long text in parts. Takes json (malloc'ed). */
void answer_json(struct session *session, uint64_t request_id, char *json);

/* An event for a session. */
void answer_event(struct session *session, Cubiemem__DaemonMessage *message);

#endif
