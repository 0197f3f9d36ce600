/*
 * client - one session with a daemon: connect, ask, close
 *
 * Connecting makes no CUDA context and loads no driver; the first register
 * does. What the parts do is in their own files: channel (messages), pages and
 * marks (work), blocks and holding (memory).
 */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "connection.h"
#include "dial.h"
#include "failure.h"
#include "holding.h"
#include "protocol_limits.h"
#include "output.h"
#include "registry.h"

#define DEFAULT_TIMEOUT_NS (30 * CLOCK_SECOND_NS)
#define CLOSE_WAIT_NS (5 * CLOCK_SECOND_NS)

/* ---------------------------------------------------------- entering */

int client_check(const struct cubiemem_client *client, enum client_call_kind kind)
{
    if (client == NULL) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "no client");
    }
    if (atomic_load_explicit(&client->forked, memory_order_relaxed)) {
        return failure_set(CUBIEMEM_FORKED, "this process is a child of the one that connected: it "
                                            "needs a client of its own");
    }
    if (kind == CLIENT_WAITS && channel_in_hook()) {
        return failure_set(CUBIEMEM_IN_CALLBACK,
                           "a hook or an event function may not wait for the daemon");
    }
    return CUBIEMEM_OK;
}

int instance_check(const struct cubiemem_instance *instance, enum client_call_kind kind)
{
    if (instance == NULL) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "no instance");
    }
    return client_check(instance->client, kind);
}

int client_ask(struct cubiemem_client *client, Cubiemem__ClientMessage *message,
               int64_t timeout_ns, const char *what, struct incoming **answer_p)
{
    struct incoming *answer = NULL;
    int status = channel_call(&client->channel, message, 1, clock_deadline(timeout_ns), &answer);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    status = failure_result(answer->message->result, what);
    if (status != CUBIEMEM_OK) {
        incoming_destroy(answer);
        return status;
    }
    *answer_p = answer;
    return CUBIEMEM_OK;
}

int client_tell(struct cubiemem_client *client, Cubiemem__ClientMessage *message)
{
    return channel_send(&client->channel, message, 1, clock_deadline(client->timeout_ns));
}

/* ----------------------------------------------------------- finding */

struct cubiemem_instance *client_instance(struct cubiemem_client *client, uint64_t id)
{
    struct cubiemem_instance *instance = client->instances;
    while (instance != NULL && instance->id != id) {
        instance = instance->next;
    }
    return instance;
}

struct owner *client_owner(struct cubiemem_client *client, const char *name)
{
    struct owner *owner = client->owners;
    while (owner != NULL && strcmp(owner->name, name) != 0) {
        owner = owner->next;
    }
    return owner;
}

struct group *client_group(struct cubiemem_client *client, const char *name, bool shared)
{
    for (struct group *group = client->groups; group != NULL; group = group->next) {
        if (group->shared == shared && strcmp(group->name, name) == 0) {
            return group;
        }
    }
    struct group *group = calloc(1, sizeof *group);
    char *copy = strdup(name);
    if (group == NULL || copy == NULL) {
        free(group);
        free(copy);
        return NULL;
    }
    group->name = copy;
    group->shared = shared;
    group->next = client->groups;
    client->groups = group;
    return group;
}

/* ------------------------------------------------------------- hello */

static int keep_string(const char *from, char **to)
{
    *to = strdup(from != NULL ? from : "");
    return *to != NULL ? CUBIEMEM_OK
                       : failure_set(CUBIEMEM_HOST_MEMORY, "no memory for a client");
}

static int check_version(const Cubiemem__HelloReply *hello)
{
    if (hello->major == PROTOCOL_MAJOR) {
        return CUBIEMEM_OK;
    }
    return failure_set(CUBIEMEM_VERSION_MISMATCH,
                       "cubiememd %.40s speaks protocol %u, this library (%s) %u: upgrade %s",
                       hello->daemon_version != NULL ? hello->daemon_version : "(unknown)",
                       hello->major, CUBIEMEM_VERSION_STRING, PROTOCOL_MAJOR,
                       hello->major > PROTOCOL_MAJOR ? "libcubiemem" : "cubiememd");
}

static void keep_device(struct cubiemem_client *client, const Cubiemem__HelloReply *hello)
{
    struct cubiemem_device_info *device = &client->device;
    *device = (struct cubiemem_device_info){
        .size = sizeof *device,
        .simulated = hello->simulated,
        .budget = hello->budget,
        .granularity = hello->granularity,
    };
    if (hello->device_uuid != NULL) {
        strncpy(device->uuid, hello->device_uuid, sizeof device->uuid - 1);
    }
    if (hello->device_name != NULL) {
        strncpy(device->name, hello->device_name, sizeof device->name - 1);
    }
    for (size_t i = 0; i < hello->n_handle_kinds; i++) {
        if (hello->handle_kinds[i] > 0 && (int)hello->handle_kinds[i] < 32) {
            device->handle_kinds |= 1u << hello->handle_kinds[i];
        }
    }
}

/* The daemon's answer to Hello, with a result that may be a refusal. */
static int take_hello(struct cubiemem_client *client, struct incoming *answer)
{
    const Cubiemem__HelloReply *hello = answer->message->hello;
    int status = hello != NULL && hello->has_major ? check_version(hello) : CUBIEMEM_OK;
    if (status == CUBIEMEM_OK) {
        status = failure_result(answer->message->result, "cubiememd refuses this client");
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    if (hello == NULL || hello->granularity == 0) {
        return failure_set(CUBIEMEM_INTERNAL, "the daemon's answer to Hello is incomplete");
    }
    keep_device(client, hello);
    client->id = hello->client_id;
    status = keep_string(hello->daemon_version, &client->daemon_version);
    if (status == CUBIEMEM_OK) {
        status = keep_string(hello->run_dir, &client->run_dir);
    }
    if (status == CUBIEMEM_OK && hello->control_page_size > 0) {
        status = pages_add(&client->pages, 0, hello->control_page_size,
                           incoming_steal_fd(answer));
    }
    return status;
}

static int say_hello(struct cubiemem_client *client, const char *uuid)
{
    Cubiemem__Hello hello = CUBIEMEM__HELLO__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    struct incoming *answer = NULL;
    char version[] = CUBIEMEM_VERSION_STRING;
    message.hello = &hello;
    hello.has_major = hello.has_minor = hello.has_features = hello.has_handle_kind = true;
    hello.major = PROTOCOL_MAJOR;
    hello.minor = PROTOCOL_MINOR;
    hello.features = PROTOCOL_FEATURES;
    hello.handle_kind = client->handle_kind == CUBIEMEM_HANDLE_LEGACY
                            ? CUBIEMEM__HANDLE_KIND__HANDLE_LEGACY
                            : CUBIEMEM__HANDLE_KIND__HANDLE_VMM_FD;
    hello.name = client->name;
    hello.has_tool = hello.tool = client->tool;
    hello.device_uuid = (char *)(uintptr_t)uuid;
    hello.library_version = version;
    int status = channel_call(&client->channel, &message, 1, clock_deadline(client->timeout_ns),
                              &answer);
    if (status == CUBIEMEM_OK) {
        status = take_hello(client, answer);
        incoming_destroy(answer);
    }
    return status;
}

/* --------------------------------------------------- connect, close */

static void destroy(struct cubiemem_client *client)
{
    channel_finish(&client->channel);
    while (client->instances != NULL) {
        client_free_instance(client->instances);
    }
    while (client->owners != NULL) {
        struct owner *next = client->owners->next;
        owner_destroy(client->owners);
        client->owners = next;
    }
    pages_finish(&client->pages, &client->context);
    while (client->groups != NULL) {
        struct group *next = client->groups->next;
        free(client->groups->name);
        free(client->groups);
        client->groups = next;
    }
    context_close(&client->context);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->books);
    free(client->name);
    free(client->run_dir);
    free(client->daemon_version);
    free(client);
}

/* What a program asked for, with its environment filled in. */
struct wish {
    const char *socket, *uuid, *name;
    int handle_kind;
    int64_t timeout_ns;
    bool manual, tool;
};

static int open_client(const struct wish *wish, struct cubiemem_client **client_p)
{
    int socket = -1;
    int status = dial(wish->socket, wish->uuid, wish->timeout_ns, &socket);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    struct cubiemem_client *client = calloc(1, sizeof *client);
    if (client == NULL) {
        close(socket);
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory for a client");
    }
    client->tool = wish->tool;
    client->handle_kind = wish->handle_kind;
    client->timeout_ns = wish->timeout_ns;
    pthread_mutex_init(&client->books, NULL);
    clock_cond_init(&client->changed);
    pages_init(&client->pages);
    status = channel_init(&client->channel, socket, wish->manual || wish->tool, client_on_event,
                          client_event_is_ready, client);
    if (status != CUBIEMEM_OK) {
        goto fail;
    }
    status = keep_string(wish->name, &client->name);
    if (status == CUBIEMEM_OK) {
        status = say_hello(client, wish->uuid);
    }
    if (status == CUBIEMEM_OK && !client->channel.manual) {
        status = channel_start(&client->channel);
    }
    if (status != CUBIEMEM_OK) {
        goto fail;
    }
    registry_add(client);
    *client_p = client;
    return CUBIEMEM_OK;

fail:
    failure_hold(true);
    destroy(client);
    failure_hold(false);
    return status;
}

static const char *first_of(const char *explicit_, const char *variable)
{
    const char *found = explicit_ != NULL && explicit_[0] != '\0' ? explicit_ : getenv(variable);
    return found != NULL && found[0] != '\0' ? found : NULL;
}

static int check_options(const struct cubiemem_options *options)
{
    if (options->size != sizeof *options) {
        return failure_set(CUBIEMEM_INVALID_REQUEST,
                           "cubiemem_options: .size is %zu, not %zu", options->size,
                           sizeof *options);
    }
    if (options->timeout_ns < 0) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "a time-out may not be negative");
    }
    if (options->handle_kind < 0 || options->handle_kind > CUBIEMEM_HANDLE_LEGACY) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "no such handle kind: %d",
                           options->handle_kind);
    }
    return CUBIEMEM_OK;
}

int cubiemem_connect(const struct cubiemem_options *options, struct cubiemem_client **client_p)
{
    static const struct cubiemem_options defaults = {.size = sizeof defaults};
    const struct cubiemem_options *from = options != NULL ? options : &defaults;
    int status = check_options(from);
    if (status == CUBIEMEM_OK && client_p == NULL) {
        status = failure_set(CUBIEMEM_INVALID_REQUEST, "nowhere to put the client");
    }
    if (status == CUBIEMEM_OK && channel_in_hook()) {
        status = failure_set(CUBIEMEM_IN_CALLBACK, "a hook or an event function may not wait");
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    struct wish wish = {
        .socket = from->socket,
        .uuid = first_of(from->gpu_uuid, "CUBIEMEM_GPU"),
        .name = first_of(from->name, "CUBIEMEM_NAME"),
        .handle_kind = from->handle_kind != 0 ? from->handle_kind : CUBIEMEM_HANDLE_VMM_FD,
        .timeout_ns = from->timeout_ns > 0 ? from->timeout_ns : DEFAULT_TIMEOUT_NS,
        .manual = from->manual_dispatch != 0,
    };
    if (wish.name == NULL) {
        wish.name = program_invocation_short_name;
    }
    if (strlen(wish.name) > LIMIT_LABEL) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "a client's name has at most %d bytes",
                           LIMIT_LABEL);
    }
    return open_client(&wish, client_p);
}

int client_open_tool(const char *socket, const char *gpu, int64_t timeout_ns,
                     struct cubiemem_client **client_p)
{
    if (timeout_ns < 0) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "a time-out may not be negative");
    }
    struct wish wish = {
        .socket = socket,
        .uuid = first_of(gpu, "CUBIEMEM_GPU"),
        .name = program_invocation_short_name,
        .handle_kind = CUBIEMEM_HANDLE_VMM_FD,
        .timeout_ns = timeout_ns > 0 ? timeout_ns : DEFAULT_TIMEOUT_NS,
        .tool = true,
    };
    return open_client(&wish, client_p);
}

/* Give everything back. Memory in which work still runs is left to the driver,
 * which frees it when this process is gone. */
static void let_go(struct cubiemem_client *client, int64_t deadline)
{
    for (struct cubiemem_instance *instance = client->instances; instance != NULL;
         instance = instance->next) {
        Cubiemem__UnregisterInstance unregister = CUBIEMEM__UNREGISTER_INSTANCE__INIT;
        Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
        message.unregister_instance = &unregister;
        unregister.has_instance_id = true;
        unregister.instance_id = instance->id;
        if (marks_wait(instance->owner, deadline) == CUBIEMEM_TIMEOUT) {
            holding_forget(instance);
        } else if (holding_drop(instance, NULL, 0) == CUBIEMEM_OK) {
            (void)client_tell(client, &message);
        }
    }
}

void cubiemem_close(struct cubiemem_client *client)
{
    if (client == NULL || client_check(client, CLIENT_WAITS) != CUBIEMEM_OK) {
        return; /* in a child there is nothing to close, and locks may be held */
    }
    registry_remove(client);
    channel_stop(&client->channel);
    failure_hold(true);
    pthread_mutex_lock(&client->books);
    let_go(client, clock_deadline(CLOSE_WAIT_NS));
    for (struct group *group = client->groups; group != NULL; group = group->next) {
        struct context_guard guard;
        if (group->stream != NULL && context_enter(&client->context, &guard) == CUBIEMEM_OK) {
            client->context.driver.cuStreamDestroy(group->stream);
            context_leave(&client->context, &guard);
        }
    }
    pthread_mutex_unlock(&client->books);
    destroy(client);
    failure_hold(false);
}

/* --------------------------------------------------------- small calls */

int cubiemem_get_fd(struct cubiemem_client *client)
{
    int status = client_check(client, CLIENT_QUICK);
    if (status == CUBIEMEM_OK && !client->channel.manual) {
        status = failure_set(CUBIEMEM_INVALID_REQUEST, "the library's own thread reads: connect "
                                                       "with .manual_dispatch");
    }
    return status == CUBIEMEM_OK ? client->channel.epoll : status;
}

int cubiemem_dispatch(struct cubiemem_client *client, int64_t timeout_ns)
{
    int status = client_check(client, CLIENT_WAITS);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    if (timeout_ns < 0 || !client->channel.manual) {
        return failure_set(CUBIEMEM_INVALID_REQUEST,
                           timeout_ns < 0 ? "a time-out may not be negative"
                                          : "the library's own thread dispatches: connect with "
                                            ".manual_dispatch");
    }
    return channel_dispatch(&client->channel, clock_deadline(timeout_ns));
}

int cubiemem_ping(struct cubiemem_client *client, int64_t timeout_ns)
{
    Cubiemem__Ping ping = CUBIEMEM__PING__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    struct incoming *answer = NULL;
    int status = client_check(client, CLIENT_WAITS);
    if (status == CUBIEMEM_OK && timeout_ns < 0) {
        status = failure_set(CUBIEMEM_INVALID_REQUEST, "a time-out may not be negative");
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    message.ping = &ping;
    status = client_ask(client, &message, timeout_ns, "ping", &answer);
    if (status == CUBIEMEM_OK) {
        incoming_destroy(answer);
    }
    return status;
}

int cubiemem_device_info(struct cubiemem_client *client, struct cubiemem_device_info *info_p)
{
    int status = client_check(client, CLIENT_QUICK);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    return copy_out(info_p, &client->device, sizeof client->device);
}

int client_add_page(struct cubiemem_client *client)
{
    Cubiemem__ControlPages ask = CUBIEMEM__CONTROL_PAGES__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    struct incoming *answer = NULL;
    message.control_pages = &ask;
    int status = client_ask(client, &message, client->timeout_ns, "cannot get a control page",
                            &answer);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    const Cubiemem__ControlPagesReply *reply = answer->message->control_pages;
    status = reply != NULL
                 ? pages_add(&client->pages, reply->page, reply->size, incoming_steal_fd(answer))
                 : failure_set(CUBIEMEM_INTERNAL, "the daemon's answer lacks its control page");
    incoming_destroy(answer);
    return status == CUBIEMEM_OK ? pages_register(&client->pages, &client->context) : status;
}
