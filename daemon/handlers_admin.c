/*
 * handlers_admin - steering: limit mode and ceilings, see handlers.h
 */
#include "handlers.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "checked.h"
#include "protocol_limits.h"
#include "log.h"
#include "transaction.h"

#define MAX_LINES 64

/* Who holds more than it may now, a line each. */
struct over {
    char *lines[MAX_LINES];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void over_add(struct over *over, const char *format,
                                                           ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (over->n < MAX_LINES && vasprintf(&over->lines[over->n], format, arguments) >= 0) {
        over->n++;
    }
    va_end(arguments);
}

static void over_ceiling(const struct policy_ceiling_view *view, void *data)
{
    if (view->used <= view->limit) {
        return;
    }
    char used[SIZE_TEXT_MAX], limit[SIZE_TEXT_MAX];
    size_format(view->used, used);
    size_format(view->limit, limit);
    switch (view->ceiling.kind) {
    case POLICY_CEILING_NAME:
        over_add(data, "name %.100s of uid %u holds %s of %s", view->ceiling.name, view->uid, used,
                 limit);
        break;
    case POLICY_CEILING_UID:
        over_add(data, "uid %u holds %s of %s", view->ceiling.id, used, limit);
        break;
    case POLICY_CEILING_GID:
        over_add(data, "gid %u holds %s of %s", view->ceiling.id, used, limit);
        break;
    }
}

void limits_announce(struct daemon *daemon)
{
    daemon->limits_revision++;
    Cubiemem__LimitsChanged changed = CUBIEMEM__LIMITS_CHANGED__INIT;
    changed.has_revision = true;
    changed.revision = daemon->limits_revision;
    for (struct session *session = daemon->sessions; session != NULL; session = session->next) {
        if (!session->tool) {
            Cubiemem__DaemonMessage event = CUBIEMEM__DAEMON_MESSAGE__INIT;
            event.limits_changed = &changed;
            answer_event(session, &event);
        }
    }
}

/* Everybody hears that limits changed; the sender gets the new revision. */
static int limits_reply(struct request *request)
{
    struct daemon *daemon = connection_daemon(request->connection);
    struct over over = {.n = 0};
    policy_each_ceiling(daemon->policy, over_ceiling, &over);
    if (daemon->books.lent > daemon->books.budget) {
        char lent[SIZE_TEXT_MAX], budget[SIZE_TEXT_MAX];
        over_add(&over, "the daemon has lent %s of %s", size_format(daemon->books.lent, lent),
                 size_format(daemon->books.budget, budget));
    }
    limits_announce(daemon);
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__LimitsReply reply = CUBIEMEM__LIMITS_REPLY__INIT;
    reply.has_revision = true;
    reply.revision = daemon->limits_revision;
    reply.n_over = over.n;
    reply.over = over.lines;
    message.limits = &reply;
    answer_message(request->session, request->id, &message, -1);
    while (over.n > 0) {
        free(over.lines[--over.n]);
    }
    return HANDLED;
}

int handle_set_mode(struct request *request)
{
    struct daemon *daemon = connection_daemon(request->connection);
    const char *mode = request->message->set_mode->mode;
    if (mode != NULL && strcmp(mode, "active") == 0) {
        daemon->mode = POLICY_ACTIVE;
    } else if (mode != NULL && strcmp(mode, "passive") == 0) {
        daemon->mode = POLICY_PASSIVE;
    } else {
        snprintf(request->why, sizeof(request->why), "mode '%.40s': active or passive",
                 mode != NULL ? mode : "");
        return CUBIEMEM_BAD_MODE;
    }
    policy_set_mode(daemon->policy, daemon->mode);
    transactions_wake(daemon);
    log_info("limit mode %s (client %" PRIu64 ", uid %u)", mode, request->session->id,
             request->session->identity.uid);
    return limits_reply(request);
}

static int set_budget(struct request *request, const Cubiemem__SetLimit *body)
{
    struct daemon *daemon = connection_daemon(request->connection);
    uint64_t total = daemon->device.total, budget = body->size;
    if (body->has_percent) {
        budget = (uint64_t)((double)total * (body->percent / 100.0));
    } else if (body->none) {
        budget = sub_or_zero(total, daemon->books.reserve);
    }
    if (budget == 0 || budget > total) {
        char size[SIZE_TEXT_MAX];
        snprintf(request->why, sizeof(request->why), "a budget is more than 0 and at most %s",
                 size_format(total, size));
        return CUBIEMEM_INVALID_REQUEST;
    }
    daemon->books.budget = budget;
    policy_set_total(daemon->policy, budget);
    return CUBIEMEM_OK;
}

/* Whose ceiling became what, by whose hand: for the log. */
static void limit_log(const struct request *request, const Cubiemem__SetLimit *body)
{
    char whose[LOG_QUOTE_SIZE + 8] = "the daemon", value[SIZE_TEXT_MAX] = "none";
    char name[LOG_QUOTE_SIZE];
    if (body->name != NULL) {
        snprintf(whose, sizeof(whose), "name %s", log_quote(body->name, name));
    } else if (body->has_uid || body->has_gid) {
        snprintf(whose, sizeof(whose), "%s %u", body->has_uid ? "uid" : "gid",
                 body->has_uid ? body->uid : body->gid);
    }
    if (body->has_percent) {
        snprintf(value, sizeof(value), "%g %%", body->percent);
    } else if (body->has_size) {
        size_format(body->size, value);
    }
    log_info("limit of %s: %s (client %" PRIu64 ", uid %u)", whose, value, request->session->id,
             request->session->identity.uid);
}

int handle_set_limit(struct request *request)
{
    struct daemon *daemon = connection_daemon(request->connection);
    const Cubiemem__SetLimit *body = request->message->set_limit;
    int whose = (body->name != NULL) + (body->has_uid != 0) + (body->has_gid != 0) +
                (body->daemon != 0);
    int what = (body->has_size != 0) + (body->has_percent != 0) + (body->none != 0);
    if (whose != 1 || what != 1 || (body->name != NULL && strlen(body->name) > LIMIT_LABEL) ||
        (body->has_percent && !(body->percent >= 0 && body->percent <= 100))) {
        snprintf(request->why, sizeof(request->why),
                 "one of name, uid, gid and daemon, with one of a size, 0 to 100 percent and none");
        return CUBIEMEM_INVALID_REQUEST;
    }
    int status;
    if (body->daemon) {
        status = set_budget(request, body);
    } else {
        struct policy_ceiling ceiling = {
            .kind = body->name != NULL ? POLICY_CEILING_NAME
                    : body->has_uid    ? POLICY_CEILING_UID
                                       : POLICY_CEILING_GID,
            .name = body->name,
            .id = body->has_uid ? body->uid : body->gid,
            .limit = body->has_size ? body->size : UINT64_MAX,
            .percent = body->has_percent ? body->percent : -1,
        };
        status = policy_set_ceiling(daemon->policy, &ceiling);
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    limit_log(request, body);
    transactions_wake(daemon);
    return limits_reply(request);
}
