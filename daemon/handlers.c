/*
 * handlers - one function a request, see handlers.h
 *
 * Names and instances, seeing and housekeeping; batches are in handlers_batch.c,
 * steering in handlers_admin.c.
 */
#include "handlers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "admin.h"
#include "answer.h"
#include "checked.h"
#include "protocol_limits.h"
#include "log.h"
#include "report.h"
#include "status.h"
#include "transaction.h"

/* ------------------------------------------------------------------ hello */

static void hello_reply(struct request *request, const struct session *session, int control_fd)
{
    struct daemon *daemon = session->daemon;
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__HelloReply reply = CUBIEMEM__HELLO_REPLY__INIT;
    Cubiemem__HandleKind kinds[2] = {CUBIEMEM__HANDLE_KIND__HANDLE_VMM_FD,
                                     CUBIEMEM__HANDLE_KIND__HANDLE_LEGACY};
    reply.has_major = reply.has_minor = reply.has_features = reply.has_client_id = true;
    reply.major = PROTOCOL_MAJOR;
    reply.minor = PROTOCOL_MINOR;
    reply.features = PROTOCOL_FEATURES & request->message->hello->features;
    reply.daemon_version = (char *)(uintptr_t)CUBIEMEM_VERSION_STRING;
    reply.client_id = session->id;
    reply.has_token = true;
    reply.token.data = (uint8_t *)(uintptr_t)session->token;
    reply.token.len = sizeof(session->token);
    reply.device_uuid = daemon->device.uuid;
    reply.device_name = daemon->device.name;
    reply.has_simulated = true;
    reply.simulated = daemon->device.simulated;
    reply.run_dir = daemon->run_dir;
    reply.has_granularity = reply.has_alignment = reply.has_budget = true;
    reply.granularity = daemon->device.granularity;
    reply.alignment = ARRAY_ALIGNMENT;
    reply.budget = daemon->books.budget;
    reply.n_handle_kinds = daemon->device.exclusive ? 1 : 2;
    reply.handle_kinds = kinds;
    reply.has_control_page_size = true;
    reply.control_page_size = CONTROL_PAGE_SIZE;
    message.hello = &reply;
    answer_message(connection_session(request->connection), request->id, &message, control_fd);
}

static int hello_check(const struct daemon *daemon, const Cubiemem__Hello *hello,
                       const struct identity *identity, char *why, size_t why_size)
{
    if (hello->major != PROTOCOL_MAJOR) {
        snprintf(why, why_size,
                 "the daemon (cubiemem %s) speaks protocol %u, the client (%.40s) %u: upgrade the %s",
                 CUBIEMEM_VERSION_STRING, PROTOCOL_MAJOR,
                 hello->library_version != NULL ? hello->library_version : "unknown", hello->major,
                 hello->major < PROTOCOL_MAJOR ? "client's library" : "daemon");
        return CUBIEMEM_VERSION_MISMATCH;
    }
    if (daemon->draining && !hello->tool) {
        snprintf(why, why_size, "the daemon of %s is being drained: nobody new is let in",
                 daemon->device.uuid);
        return CUBIEMEM_DRAINING;
    }
    if (hello->name != NULL && strlen(hello->name) > LIMIT_LABEL) {
        snprintf(why, why_size, "a name has at most %u bytes", LIMIT_LABEL);
        return CUBIEMEM_INVALID_REQUEST;
    }
    if (hello->device_uuid != NULL && strcmp(hello->device_uuid, daemon->device.uuid) != 0) {
        snprintf(why, why_size, "this daemon serves %s, the client wants %.60s",
                 daemon->device.uuid, hello->device_uuid);
        return CUBIEMEM_DEVICE_MISMATCH;
    }
    if (hello->handle_kind != CUBIEMEM__HANDLE_KIND__HANDLE_VMM_FD &&
        hello->handle_kind != CUBIEMEM__HANDLE_KIND__HANDLE_LEGACY) {
        snprintf(why, why_size, "handle kind %d is not known", (int)hello->handle_kind);
        return CUBIEMEM_INVALID_REQUEST;
    }
    if (hello->handle_kind == CUBIEMEM__HANDLE_KIND__HANDLE_LEGACY && daemon->device.exclusive) {
        snprintf(why, why_size, "legacy handles need a CUDA context of the daemon's, which the "
                                "compute mode of %s forbids",
                 daemon->device.uuid);
        return CUBIEMEM_HANDLE_KIND;
    }
    if (hello->handle_kind == CUBIEMEM__HANDLE_KIND__HANDLE_LEGACY &&
        !identity_shares_pids(identity)) {
        snprintf(why, why_size, "legacy handles do not cross PID namespaces, and this client is in "
                                "another one: use VMM handles");
        return CUBIEMEM_HANDLE_KIND;
    }
    if (daemon->single_user && daemon->has_single_uid && identity->uid != daemon->single_uid &&
        !hello->tool) {
        snprintf(why, why_size, "the driver's scrubbing of freed memory cannot be relied on: this "
                                "daemon serves uid %u only",
                 daemon->single_uid);
        return CUBIEMEM_NOT_PERMITTED;
    }
    return CUBIEMEM_OK;
}

/* One more session of a user that has all it may have? */
static int hello_check_user(const struct connection *connection, const Cubiemem__Hello *hello,
                            char *why, size_t why_size)
{
    const struct user *user = connection_user(connection);
    size_t limit = connection_daemon(connection)->user_limits.sessions;
    if (hello->tool || user_has_room(user, user->n_sessions, limit)) {
        return CUBIEMEM_OK;
    }
    snprintf(why, why_size, "uid %u has %zu sessions already, as many as a user may have",
             user->uid, limit);
    return CUBIEMEM_LIMIT;
}

int handle_hello(struct request *request)
{
    struct connection *connection = request->connection;
    struct daemon *daemon = connection_daemon(connection);
    const Cubiemem__Hello *hello = request->message->hello;
    struct identity *identity = connection_identity(connection);
    if (request->id == 0) {
        connection_close(connection, "its Hello asks for no answer");
        return HANDLED;
    }
    struct session_hello typed = {
        .name = hello->name != NULL ? hello->name : "",
        .handle_kind = (enum cubiemem_handle_kind)hello->handle_kind,
        .tool = hello->tool,
    };
    struct session *session;
    int control_fd = -1;
    int status = hello_check(daemon, hello, identity, request->why, sizeof(request->why));
    if (status == CUBIEMEM_OK) {
        status = hello_check_user(connection, hello, request->why, sizeof(request->why));
    }
    if (status == CUBIEMEM_OK) {
        status = session_create(daemon, connection, identity, &typed, &session, &control_fd);
        snprintf(request->why, sizeof(request->why), "%s", status_text(status));
    }
    if (status != CUBIEMEM_OK) {
        answer_hello_refused(connection, request->id, status, request->why);
        return HANDLED;
    }
    connection_set_session(connection, session);
    session_request_begun(session);
    if (!typed.tool && !daemon->has_single_uid) {
        daemon->has_single_uid = true;
        daemon->single_uid = session->identity.uid;
    }
    hello_reply(request, session, control_fd);
    return HANDLED;
}

int handle_ping(struct request *request)
{
    (void)request;
    return CUBIEMEM_OK;
}

int handle_ack(struct request *request)
{
    const Cubiemem__Ack *ack = request->message->ack;
    if (ack->lost) {
        log_info("client %" PRIu64 ": had no file descriptors left for an answer",
                 request->session->id);
    }
    if (!connection_acked(request->connection, ack->packet)) {
        connection_close(request->connection, "it acknowledges a packet that it did not get");
    }
    return CUBIEMEM_OK;
}

int handle_context_ready(struct request *request)
{
    session_context_ready(request->session);
    return CUBIEMEM_OK;
}

int handle_control_pages(struct request *request)
{
    uint32_t number;
    int fd;
    int status = session_add_page(request->session, &number, &fd);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__ControlPagesReply reply = CUBIEMEM__CONTROL_PAGES_REPLY__INIT;
    reply.has_page = reply.has_size = true;
    reply.page = number;
    reply.size = CONTROL_PAGE_SIZE;
    message.control_pages = &reply;
    answer_message(request->session, request->id, &message, fd);
    return HANDLED;
}

int handle_status(struct request *request)
{
    answer_json(request->session, request->id,
                report_json(connection_daemon(request->connection)));
    return HANDLED;
}

/* -------------------------------------------------------------- instances */

struct instance *request_instance(struct request *request, bool has_id, uint64_t id)
{
    struct instance *instance = has_id ? session_instance(request->session, id) : NULL;
    if (instance == NULL) {
        snprintf(request->why, sizeof(request->why),
                 "instance %" PRIu64 " is not registered in this session", id);
    }
    return instance;
}

static int instance_reply(struct request *request, const struct instance *instance,
                          uint32_t warnings, bool limits_changed)
{
    struct policy_instance_view view;
    policy_instance_read(instance->policy, &view);
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__InstanceReply reply = CUBIEMEM__INSTANCE_REPLY__INIT;
    Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
    reply.has_instance_id = reply.has_proportion = reply.has_cap = reply.has_allocated = true;
    reply.has_manual = reply.has_owner_page = reply.has_owner_slot = true;
    reply.instance_id = instance->id;
    reply.proportion = view.proportion;
    reply.cap = view.cap;
    reply.allocated = view.allocated;
    reply.manual = view.manual;
    reply.owner_page = instance->owner_slot >> 16;
    reply.owner_slot = instance->owner_slot & 0xffff;
    result.has_code = true;
    result.has_warnings = warnings != 0;
    result.warnings = warnings;
    message.result = &result;
    message.instance = &reply;
    Cubiemem__LimitsReply limits = CUBIEMEM__LIMITS_REPLY__INIT;
    if (limits_changed) {
        struct daemon *daemon = instance->session->daemon;
        if (instance->session == request->session) {
            daemon->limits_revision++; /* its own business */
        } else {
            char name[LOG_QUOTE_SIZE], cap[SIZE_TEXT_MAX];
            log_info("%s quota of instance %s of client %" PRIu64 ": cap %s (client %" PRIu64
                     ", uid %u)", view.manual ? "manual" : "auto", log_quote(view.name, name),
                     instance->session->id, size_format(view.cap, cap), request->session->id,
                     request->session->identity.uid);
            limits_announce(daemon);
        }
        limits.has_revision = true;
        limits.revision = daemon->limits_revision;
        message.limits = &limits;
    }
    char over[128 + 2 * SIZE_TEXT_MAX + 32], *line = over;
    if (limits_changed && view.allocated > view.cap) {
        char held[SIZE_TEXT_MAX], cap[SIZE_TEXT_MAX];
        snprintf(over, sizeof(over), "instance %" PRIu64 "/%.100s holds %s of %s",
                 instance->session->id, view.name, size_format(view.allocated, held),
                 size_format(view.cap, cap));
        limits.n_over = 1;
        limits.over = &line;
    }
    answer_message(request->session, request->id, &message, -1);
    return HANDLED;
}

static bool label_fits(const char *label)
{
    size_t size = label != NULL ? strlen(label) : 0;
    return size >= 1 && size <= LIMIT_LABEL;
}

int handle_register(struct request *request)
{
    const Cubiemem__RegisterInstance *body = request->message->register_instance;
    struct session *session = request->session;
    if (!label_fits(body->name) || !label_fits(body->group) ||
        (body->owner != NULL && !label_fits(body->owner))) {
        snprintf(request->why, sizeof(request->why),
                 "the names of an instance, its group and its owner have 1 to %d bytes",
                 LIMIT_LABEL);
        return CUBIEMEM_INVALID_REQUEST;
    }
    size_t most = session->daemon->user_limits.instances;
    if (!user_has_room(session->user, session->user->n_instances, most) ||
        HASH_COUNT(session->instances) >= LIMIT_INSTANCES) {
        snprintf(request->why, sizeof(request->why),
                 "instance '%.100s': a session has at most %u instances, a user %zu; uid %u has "
                 "%zu", body->name, LIMIT_INSTANCES, most, session->user->uid,
                 session->user->n_instances);
        return CUBIEMEM_LIMIT;
    }
    struct policy_registration registration = {
        .identity = {.scope = session->id,
                     .process = session->process_key,
                     .uid = session->identity.uid,
                     .gid = session->identity.gid,
                     .client = session->name},
        .name = body->name,
        .group = body->group,
        .shared = body->shared,
        .owner = body->owner,
        .manual = body->has_proportion,
        .proportion = body->proportion,
        .evictable = body->evictable,
    };
    struct instance *instance;
    uint32_t warnings = 0;
    int status = session_register(session, &registration, &instance, &warnings);
    if (status != CUBIEMEM_OK) {
        snprintf(request->why, sizeof(request->why), "instance '%.100s', proportion %g: %s",
                 body->name, body->has_proportion ? body->proportion : -1.0, status_text(status));
        if (!body->has_proportion) {
            snprintf(request->why, sizeof(request->why), "instance '%.100s', auto pool: %s",
                     body->name, status_text(status));
        }
        return status;
    }
    return instance_reply(request, instance, warnings, false);
}

int handle_unregister(struct request *request)
{
    const Cubiemem__UnregisterInstance *body = request->message->unregister_instance;
    struct instance *instance =
        request_instance(request, body->has_instance_id, body->instance_id);
    if (instance == NULL) {
        return CUBIEMEM_NOT_REGISTERED;
    }
    session_unregister(request->session, instance);
    return CUBIEMEM_OK;
}

/* The instance meant by an id in this session or, for administrators, by
 * client id and name. Return: a status. */
static int find_meant(struct request *request, bool has_instance_id, uint64_t instance_id,
                      bool has_client_id, uint64_t client_id, const char *name,
                      struct instance **instance_p)
{
    if (has_instance_id) {
        *instance_p = request_instance(request, true, instance_id);
        return *instance_p != NULL ? CUBIEMEM_OK : CUBIEMEM_NOT_REGISTERED;
    }
    if (name == NULL) {
        snprintf(request->why, sizeof(request->why), "no instance is named");
        return CUBIEMEM_INVALID_REQUEST;
    }
    if (!connection_is_admin(request->connection)) {
        snprintf(request->why, sizeof(request->why), "other clients' instances may be changed by "
                                                     "root, the daemon's user and the "
                                                     "administrators' group only");
        return CUBIEMEM_NOT_PERMITTED;
    }
    size_t n = 0, length = 0;
    char list[256] = "";
    const struct daemon *daemon = connection_daemon(request->connection);
    for (struct session *session = daemon->sessions; session != NULL; session = session->next) {
        struct policy_instance *found =
            !has_client_id || session->id == client_id
                ? policy_find(daemon->policy, session->id, name)
                : NULL;
        if (found == NULL) {
            continue;
        }
        *instance_p = policy_instance_data(found);
        if (length < sizeof(list)) {
            length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%" PRIu64 "/%.60s",
                                       n > 0 ? ", " : "", session->id, name);
        }
        n++;
    }
    if (n == 1) {
        return CUBIEMEM_OK;
    }
    if (n == 0) {
        if (!has_client_id) {
            snprintf(request->why, sizeof(request->why), "no client has an instance '%.100s'",
                     name);
        } else if (admin_find_client(daemon, client_id) != NULL) {
            snprintf(request->why, sizeof(request->why),
                     "client %" PRIu64 " has no instance '%.100s'", client_id, name);
        } else {
            snprintf(request->why, sizeof(request->why), "there is no client %" PRIu64, client_id);
        }
    } else {
        snprintf(request->why, sizeof(request->why), "several clients have one: say which of %s",
                 list);
    }
    return CUBIEMEM_NOT_FOUND;
}

static int changed(struct request *request, struct instance *instance, int status,
                   uint32_t warnings)
{
    if (status != CUBIEMEM_OK) {
        return status;
    }
    instance->warnings = warnings;
    transactions_wake(instance->session->daemon);
    return instance_reply(request, instance, warnings, true);
}

int handle_set_proportion(struct request *request)
{
    const Cubiemem__SetProportion *body = request->message->set_proportion;
    struct instance *instance = NULL;
    int status = find_meant(request, body->has_instance_id, body->instance_id,
                            body->has_client_id, body->client_id, body->instance_name, &instance);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    if (!body->has_proportion) {
        snprintf(request->why, sizeof(request->why), "no proportion is given");
        return CUBIEMEM_INVALID_REQUEST;
    }
    uint32_t warnings = 0;
    status = policy_set_proportion(instance->session->daemon->policy, instance->policy,
                                   body->proportion, &warnings);
    if (status != CUBIEMEM_OK) {
        snprintf(request->why, sizeof(request->why), "proportion %g: %s", body->proportion,
                 status_text(status));
    }
    return changed(request, instance, status, warnings);
}

int handle_set_auto(struct request *request)
{
    const Cubiemem__SetAuto *body = request->message->set_auto;
    struct instance *instance = NULL;
    int status = find_meant(request, body->has_instance_id, body->instance_id,
                            body->has_client_id, body->client_id, body->instance_name, &instance);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    status = policy_set_auto(instance->session->daemon->policy, instance->policy);
    return changed(request, instance, status, 0);
}

int handle_change_group(struct request *request)
{
    const Cubiemem__ChangeGroup *body = request->message->change_group;
    struct instance *instance =
        request_instance(request, body->has_instance_id, body->instance_id);
    if (instance == NULL) {
        return CUBIEMEM_NOT_REGISTERED;
    }
    if (!label_fits(body->group)) {
        snprintf(request->why, sizeof(request->why), "a group's name has 1 to %d bytes",
                 LIMIT_LABEL);
        return CUBIEMEM_INVALID_REQUEST;
    }
    int status = policy_change_group(instance->session->daemon->policy, instance->policy,
                                     body->group, body->shared);
    return status != CUBIEMEM_OK ? status : instance_reply(request, instance, 0, false);
}

int handle_available(struct request *request)
{
    const Cubiemem__Available *body = request->message->available;
    struct daemon *daemon = connection_daemon(request->connection);
    struct instance *instance =
        request_instance(request, body->has_instance_id, body->instance_id);
    if (instance == NULL) {
        return CUBIEMEM_NOT_REGISTERED;
    }
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__AvailableReply reply = CUBIEMEM__AVAILABLE_REPLY__INIT;
    uint32_t warnings = 0;
    reply.has_available = reply.has_total = true;
    reply.available = policy_available(daemon->policy, instance->policy,
                                       books_free(&daemon->books), &warnings);
    reply.total = daemon->mode == POLICY_ACTIVE
                      ? policy_group_cap(instance->policy)
                      : daemon->books.budget;
    message.available = &reply;
    answer_message(request->session, request->id, &message, -1);
    return HANDLED;
}
