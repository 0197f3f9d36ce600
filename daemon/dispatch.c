/*
 * dispatch - what a packet says, and who does it, see dispatch.h
 */
#include "dispatch.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "answer.h"
#include "connection.h"
#include "handlers.h"
#include "protocol_limits.h"
#include "log.h"
#include "transaction.h"

/* --------------------------------------------------------------- decoding */

/* protobuf-c allocates what a message tells it to; a message may tell no more
 * than this. Ordinary messages are decoded into one piece of memory, used like a
 * stack: a message that is carried out inside another's goes first. */
struct meter {
    size_t left;
    bool heap; /* not all of it lies in the one piece */
    bool host_is_short;
};

static _Alignas(max_align_t) unsigned char scratch[PACKET_MAX_SIZE];
static size_t scratch_used;

static void *meter_alloc(void *data, size_t size)
{
    struct meter *meter = data;
    if (size > meter->left) {
        return NULL;
    }
    meter->left -= size;
    size_t rounded = (size + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
    if (rounded > sizeof(scratch) - scratch_used) {
        void *memory = malloc(size);
        meter->heap = true;
        meter->host_is_short |= memory == NULL;
        return memory;
    }
    void *memory = &scratch[scratch_used];
    scratch_used += rounded;
    return memory;
}

static bool in_scratch(const void *pointer)
{
    uintptr_t at = (uintptr_t)pointer, begin = (uintptr_t)scratch;
    return at >= begin && at < begin + sizeof(scratch);
}

static void meter_free(void *data, void *pointer)
{
    (void)data;
    if (!in_scratch(pointer)) {
        free(pointer);
    }
}

static Cubiemem__ClientMessage *decode(const unsigned char *data, size_t size,
                                       ProtobufCAllocator *allocator)
{
    *(struct meter *)allocator->allocator_data = (struct meter){.left = MESSAGE_MAX_MEMORY};
    return cubiemem__client_message__unpack(allocator, size, data);
}

/* ------------------------------------------------------------------ table */

/* NEEDS_GROUP: not while an Allocate of the group is under way. PASSES_WAITER: but while
 * it only waits for memory. */
enum { BEFORE_HELLO = 1, TOOL_MAY = 2, ADMIN_ONLY = 4, NEEDS_GROUP = 8, PASSES_WAITER = 16 };

/* clang-format off */
#define BODY(field) offsetof(Cubiemem__ClientMessage, field)
#define ID(type) offsetof(Cubiemem__##type, instance_id)
static const struct row {
    const char *name;
    size_t body;     /* offset of the body's pointer */
    size_t instance; /* with NEEDS_GROUP: offset of instance_id in the body */
    int flags;
    int (*handle)(struct request *request);
} rows[] = {
    /* the ones that programs wait for come first */
    {"Allocate",           BODY(allocate),            ID(Allocate),           NEEDS_GROUP, handle_allocate},
    {"Release",            BODY(release),             ID(Release),            NEEDS_GROUP | PASSES_WAITER, handle_release},
    {"Ping",               BODY(ping),                0, TOOL_MAY,            handle_ping},
    {"Ack",                BODY(ack),                 0, TOOL_MAY,            handle_ack},
    {"GiveBack",           BODY(give_back),           0, 0,                   handle_give_back},
    {"EvictReply",         BODY(evict_reply),         0, 0,                   handle_evict_reply},
    {"Hello",              BODY(hello),               0, BEFORE_HELLO,        handle_hello},
    {"RegisterInstance",   BODY(register_instance),   0, 0,                   handle_register},
    {"UnregisterInstance", BODY(unregister_instance), ID(UnregisterInstance), NEEDS_GROUP | PASSES_WAITER, handle_unregister},
    {"SetProportion",      BODY(set_proportion),      0, TOOL_MAY,            handle_set_proportion},
    {"SetAuto",            BODY(set_auto),            0, TOOL_MAY,            handle_set_auto},
    {"ChangeGroup",        BODY(change_group),        ID(ChangeGroup),        NEEDS_GROUP, handle_change_group},
    {"QueueRequests",      BODY(queue_requests),      ID(ArrayRequests),      NEEDS_GROUP | PASSES_WAITER, handle_queue},
    {"ContextReady",       BODY(context_ready),       0, 0,                   handle_context_ready},
    {"Available",          BODY(available),           0, 0,                   handle_available},
    {"ControlPages",       BODY(control_pages),       0, 0,                   handle_control_pages},
    {"Cancel",             BODY(cancel),              0, 0,                   handle_cancel},
    {"Status",             BODY(status),              0, TOOL_MAY,            handle_status},
    {"SetMode",            BODY(set_mode),            0, TOOL_MAY | ADMIN_ONLY, handle_set_mode},
    {"SetLimit",           BODY(set_limit),           0, TOOL_MAY | ADMIN_ONLY, handle_set_limit},
    {"Evict",              BODY(evict),               0, TOOL_MAY | ADMIN_ONLY, handle_evict},
    {"Kick",               BODY(kick),                0, TOOL_MAY | ADMIN_ONLY, handle_kick},
    {"Drain",              BODY(drain),               0, TOOL_MAY | ADMIN_ONLY, handle_drain},
};
/* clang-format on */

static const void *body_of(const Cubiemem__ClientMessage *message, const struct row *row)
{
    const void *body;
    memcpy(&body, (const char *)message + row->body, sizeof(body));
    return body;
}

/* The one row whose body is set; NULL if none is, or several. */
static const struct row *row_of(const Cubiemem__ClientMessage *message)
{
    const struct row *found = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (body_of(message, &rows[i]) != NULL) {
            if (found != NULL) {
                return NULL;
            }
            found = &rows[i];
        }
    }
    return found;
}

/* ---------------------------------------------------------------- parking */

struct parked {
    struct connection *connection;
    uint64_t instance_id;
    bool passes_waiter; /* its row's flag */
    size_t size;
    struct parked *prev, *next;
    unsigned char data[];
};

/* The instance by which this message may have to wait, or NULL. */
static struct instance *waits_for(struct session *session, const struct row *row,
                                  const Cubiemem__ClientMessage *message)
{
    if (session == NULL || (row->flags & NEEDS_GROUP) == 0) {
        return NULL;
    }
    const void *body = body_of(message, row);
    if (body == message->queue_requests) {
        body = message->queue_requests->requests;
    }
    uint64_t id = 0;
    if (body != NULL) {
        memcpy(&id, (const char *)body + row->instance, sizeof(id));
    }
    return session_instance(session, id);
}

static void park(struct connection *connection, struct instance *instance, const struct row *row,
                 const unsigned char *data, size_t size)
{
    struct daemon *daemon = connection_daemon(connection);
    struct session *session = instance->session;
    struct parked *parked = NULL;
    if (session->n_parked < LIMIT_PARKED && session->parked_size + size <= MESSAGE_MAX_SIZE) {
        parked = malloc(sizeof(*parked) + size);
    }
    if (parked == NULL) {
        connection_close(connection, "too many of its messages wait for an Allocate");
        return;
    }
    *parked = (struct parked){.connection = connection,
                              .instance_id = instance->id,
                              .passes_waiter = (row->flags & PASSES_WAITER) != 0,
                              .size = size};
    memcpy(parked->data, data, size);
    DL_APPEND(daemon->parked, parked);
    session->n_parked++;
    session->parked_size += size;
    instance->n_parked++;
    connection_user(connection)->n_requests++;
}

/* Off the list and off everybody's counts; the caller's to free. */
static void unpark(struct daemon *daemon, struct parked *parked)
{
    struct session *session = connection_session(parked->connection);
    struct instance *instance = session_instance(session, parked->instance_id);
    DL_DELETE(daemon->parked, parked);
    session->n_parked--;
    session->parked_size -= parked->size;
    if (instance != NULL) {
        instance->n_parked--;
    }
    connection_user(parked->connection)->n_requests--;
}

static void dispatch_message(struct connection *connection, const unsigned char *data, size_t size,
                             bool was_parked);

/* Each instance's messages in their order: behind one that stays, all stay. */
void dispatch_take_up_parked(struct daemon *daemon)
{
    const uint64_t turn = ++daemon->park_turn;
    struct parked *parked, *next;
    DL_FOREACH_SAFE(daemon->parked, parked, next)
    {
        struct session *session = connection_session(parked->connection);
        struct instance *instance = session_instance(session, parked->instance_id);
        if (instance != NULL &&
            (instance->parked_turn == turn ||
             transaction_locks(instance, !parked->passes_waiter))) {
            instance->parked_turn = turn;
            continue;
        }
        unpark(daemon, parked);
        dispatch_message(parked->connection, parked->data, parked->size, true);
        free(parked);
    }
}

void dispatch_unpark(struct daemon *daemon)
{
    if (daemon->parked != NULL) {
        daemon_later(daemon);
    }
}

void dispatch_forget_connection(struct daemon *daemon, struct connection *connection)
{
    struct parked *parked, *next;
    DL_FOREACH_SAFE(daemon->parked, parked, next)
    {
        if (parked->connection == connection) {
            unpark(daemon, parked);
            free(parked);
        }
    }
}

/* ------------------------------------------------------------ dispatching */

/* What the sender may not do: a status, or OK. */
static int permitted(const struct request *request, const struct row *row)
{
    if ((row->flags & ADMIN_ONLY) != 0 && !connection_is_admin(request->connection)) {
        return CUBIEMEM_NOT_PERMITTED;
    }
    if (request->session->tool && (row->flags & TOOL_MAY) == 0) {
        return CUBIEMEM_INVALID_REQUEST;
    }
    return CUBIEMEM_OK;
}

static bool requests_have_room(const struct session *session)
{
    return user_has_room(session->user, session->user->n_requests,
                         session->daemon->user_limits.requests);
}

static void refuse_requests(struct session *session, uint64_t id)
{
    char why[120];
    snprintf(why, sizeof(why), "%zu requests of uid %u wait for their answers already",
             session->daemon->user_limits.requests, session->user->uid);
    answer_status(session, id, CUBIEMEM_LIMIT, why);
}

static void carry_out(struct request *request, const struct row *row)
{
    struct session *session = request->session;
    if (session != NULL && request->id != 0) {
        bool room = requests_have_room(session);
        session_request_begun(session);
        if (session->n_under_way > LIMIT_REQUESTS_UNDER_WAY) {
            answer_status(session, request->id, CUBIEMEM_LIMIT,
                          "64 requests of this session wait for their answers already");
            return;
        }
        if (!room) {
            refuse_requests(session, request->id);
            return;
        }
    }
    int status = session != NULL ? permitted(request, row) : CUBIEMEM_OK;
    if (status == CUBIEMEM_NOT_PERMITTED) {
        snprintf(request->why, sizeof(request->why),
                 "%s: only root, the daemon's user and the administrators' group may", row->name);
    } else if (status == CUBIEMEM_OK) {
        status = row->handle(request);
    }
    if (status != HANDLED && session != NULL && request->id != 0) {
        answer_status(session, request->id, status,
                      status != CUBIEMEM_OK && request->why[0] != '\0' ? request->why : NULL);
    }
}

static void dispatch_message(struct connection *connection, const unsigned char *data, size_t size,
                             bool was_parked)
{
    struct meter meter = {.heap = false};
    ProtobufCAllocator allocator = {meter_alloc, meter_free, &meter};
    const size_t scratch_before = scratch_used;
    Cubiemem__ClientMessage *message = decode(data, size, &allocator);
    if (message == NULL) {
        scratch_used = scratch_before;
        connection_close(connection, meter.host_is_short ? "out of host memory for its message"
                                                         : "a packet is no protocol message");
        return;
    }
    struct request request = {.connection = connection,
                              .session = connection_session(connection),
                              .id = message->id,
                              .message = message};
    const struct row *row = row_of(message);
    struct instance *instance = row != NULL ? waits_for(request.session, row, message) : NULL;
    if (request.session == NULL && (row == NULL || (row->flags & BEFORE_HELLO) == 0)) {
        connection_close(connection, "its first message is no Hello");
    } else if (row == NULL || (request.session != NULL && (row->flags & BEFORE_HELLO) != 0)) {
        if (request.id != 0) {
            session_request_begun(request.session);
            answer_status(request.session, request.id, CUBIEMEM_INVALID_REQUEST,
                          row == NULL ? "a message has exactly one body, of a known kind"
                                      : "Hello was said already");
        }
    } else if (instance != NULL && !was_parked &&
               (instance->n_parked > 0 ||
                transaction_locks(instance, (row->flags & PASSES_WAITER) == 0))) {
        if (request.id == 0 || requests_have_room(request.session)) {
            park(connection, instance, row, data, size);
        } else {
            session_request_begun(request.session);
            refuse_requests(request.session, request.id);
        }
    } else {
        carry_out(&request, row);
    }
    if (meter.heap) {
        cubiemem__client_message__free_unpacked(message, &allocator);
    }
    scratch_used = scratch_before;
}

/* ------------------------------------------------------------------ parts */

static bool append(struct assembly *assembly, const unsigned char *data, size_t size)
{
    if (assembly->size + size > MESSAGE_MAX_SIZE) {
        return false;
    }
    if (assembly->size + size > assembly->room) {
        size_t room = assembly->room == 0 ? 4 * PACKET_MAX_SIZE : 2 * assembly->room;
        unsigned char *more = realloc(assembly->data, room);
        if (more == NULL) {
            return false;
        }
        assembly->data = more;
        assembly->room = room;
    }
    memcpy(assembly->data + assembly->size, data, size);
    assembly->size += size;
    return true;
}

static void assembly_reset(struct assembly *assembly)
{
    free(assembly->data);
    memset(assembly, 0, sizeof(*assembly));
}

/* id, part and more stand at the front of any sane encoding, but nobody has to
 * put them there: read them as protobuf does, without the body. */
struct envelope {
    uint64_t id;
    uint64_t part;
    uint64_t more;
};

static bool varint(const unsigned char **at, const unsigned char *end, uint64_t *value_p)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *value_p = value;
            return true;
        }
    }
    return false;
}

static bool envelope_read(const unsigned char *data, size_t size, struct envelope *envelope_p)
{
    struct envelope envelope = {0, 0, 0};
    const unsigned char *end = data + size;
    while (data < end) {
        uint64_t tag, value;
        if (!varint(&data, end, &tag)) {
            return false;
        }
        switch (tag & 7) {
        case 0:
            if (!varint(&data, end, &value)) {
                return false;
            }
            envelope.id = tag >> 3 == 1 ? value : envelope.id;
            envelope.part = tag >> 3 == 2 ? value : envelope.part;
            envelope.more = tag >> 3 == 3 ? value : envelope.more;
            continue;
        case 1:
            value = 8;
            break;
        case 2:
            if (!varint(&data, end, &value)) {
                return false;
            }
            break;
        case 5:
            value = 4;
            break;
        default:
            return false;
        }
        if (value > (uint64_t)(end - data)) {
            return false;
        }
        data += value;
    }
    *envelope_p = envelope;
    return true;
}

void dispatch_packet(struct connection *connection, const unsigned char *packet, size_t size)
{
    struct assembly *assembly = connection_assembly(connection);
    struct envelope envelope;
    if (!envelope_read(packet, size, &envelope)) {
        connection_close(connection, "a packet is no protocol message");
        return;
    }
    if (assembly->next_part == 0 && envelope.more == 0) {
        dispatch_message(connection, packet, size, false);
        return;
    }
    if (connection_session(connection) == NULL || envelope.part != assembly->next_part ||
        (assembly->next_part > 0 && envelope.id != assembly->id)) {
        connection_close(connection, "the parts of a message are out of order");
        return;
    }
    if (!append(assembly, packet, size)) {
        connection_close(connection, "a message is larger than the protocol allows");
        return;
    }
    assembly->id = envelope.id;
    assembly->next_part++;
    if (envelope.more == 0) {
        dispatch_message(connection, assembly->data, assembly->size, false);
        assembly_reset(assembly);
    }
}
