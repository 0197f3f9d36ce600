/*
 * instance - registered holders of arrays, and their quota
 *
 * An instance belongs to one owner (evicted together) and one group (share a
 * stream, queue together). Quotas are the daemon's; here is the asking.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "clock.h"
#include "failure.h"
#include "holding.h"
#include "protocol_limits.h"
#include "output.h"
#include "request.h"

/* ---------------------------------------------------------- register */

static int check_name(const char *what, const char *name)
{
    size_t length = name != NULL ? strlen(name) : 0;
    if (length < 1 || length > LIMIT_LABEL) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "%s has 1 to %d bytes, not %zu", what,
                           LIMIT_LABEL, length);
    }
    return CUBIEMEM_OK;
}

static int check_proportion(double proportion)
{
    if (!isfinite(proportion) || proportion < 0.0 || proportion > 1.0) {
        return failure_set(CUBIEMEM_BAD_PROPORTION, "proportion %g is not a number from 0 to 1",
                           proportion);
    }
    return CUBIEMEM_OK;
}

static int check_registration(const char *name, const struct cubiemem_instance_options *options)
{
    int status = check_name("an instance's name", name);
    if (status == CUBIEMEM_OK && options->size != sizeof *options) {
        status = failure_set(CUBIEMEM_INVALID_REQUEST,
                             "cubiemem_instance_options: .size is %zu, not %zu", options->size,
                             sizeof *options);
    }
    if (status == CUBIEMEM_OK && options->group != NULL) {
        status = check_name("a group's name", options->group);
    }
    if (status == CUBIEMEM_OK && options->owner != NULL) {
        status = check_name("an owner's name", options->owner);
    }
    if (status == CUBIEMEM_OK && options->manual) {
        status = check_proportion(options->proportion);
    }
    return status;
}

/* The first instance makes the context, and the daemon learns that it exists. */
static int open_device(struct cubiemem_client *client)
{
    Cubiemem__ContextReady ready = CUBIEMEM__CONTEXT_READY__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    pthread_mutex_lock(&client->books);
    bool was_ready = client->context.ready;
    int status = context_open(&client->context, client->device.simulated != 0, client->run_dir,
                              client->device.uuid);
    if (status == CUBIEMEM_OK) {
        status = pages_register(&client->pages, &client->context);
    }
    bool is_new = !was_ready && client->context.ready;
    pthread_mutex_unlock(&client->books);
    if (is_new) {
        message.context_ready = &ready;
        failure_hold(true);
        (void)client_tell(client, &message); /* a dead connection shows in what follows */
        failure_hold(false);
    }
    return status;
}

static void tell_unregister(struct cubiemem_client *client, uint64_t id)
{
    Cubiemem__UnregisterInstance unregister = CUBIEMEM__UNREGISTER_INSTANCE__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    message.unregister_instance = &unregister;
    unregister.has_instance_id = true;
    unregister.instance_id = id;
    failure_hold(true);
    (void)client_tell(client, &message);
    failure_hold(false);
}

/* The owner of this name, made if there is none; books held. */
static struct owner *find_owner(struct cubiemem_client *client, const char *name,
                                const Cubiemem__InstanceReply *reply)
{
    struct owner *owner = client_owner(client, name);
    if (owner != NULL) {
        return owner;
    }
    struct control_owner *words =
        pages_owner(&client->pages, reply->owner_page, reply->owner_slot);
    if (words == NULL) {
        failure_set(CUBIEMEM_INTERNAL, "the daemon named no slot for the work marks");
        return NULL;
    }
    owner = owner_create(name, reply->owner_page << 16 | reply->owner_slot, words,
                         &client->pages, &client->context);
    if (owner == NULL) {
        failure_set(CUBIEMEM_HOST_MEMORY, "no memory for an owner");
        return NULL;
    }
    owner->next = client->owners;
    client->owners = owner;
    return owner;
}

static void remove_owner(struct cubiemem_client *client, struct owner *owner)
{
    struct owner **link = &client->owners;
    while (*link != owner) {
        link = &(*link)->next;
    }
    *link = owner->next;
    owner_destroy(owner);
}

/* What the daemon has registered becomes an instance here; books held. */
static int add_instance(struct cubiemem_client *client, const char *name,
                        const struct cubiemem_instance_options *options,
                        const Cubiemem__InstanceReply *reply,
                        struct cubiemem_instance **instance_p)
{
    struct cubiemem_instance *instance = calloc(1, sizeof *instance);
    char *copy = strdup(name);
    struct group *group = client_group(client, options->group != NULL ? options->group : "default",
                                       options->shared != 0);
    if (instance == NULL || copy == NULL || group == NULL) {
        free(instance);
        free(copy);
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory for an instance");
    }
    struct owner *owner = find_owner(client, options->owner != NULL ? options->owner : name,
                                     reply);
    if (owner == NULL) {
        free(instance);
        free(copy);
        return cubiemem_last_error()->status;
    }
    owner->n_instances++;
    *instance = (struct cubiemem_instance){
        .client = client,
        .id = reply->instance_id,
        .name = copy,
        .owner = owner,
        .group = group,
        .invalidate = options->invalidate,
        .invalidate_arg = options->invalidate_arg,
        .next = client->instances,
    };
    client->instances = instance;
    *instance_p = instance;
    return CUBIEMEM_OK;
}

static int ask_register(struct cubiemem_client *client, const char *name,
                        const struct cubiemem_instance_options *options,
                        struct incoming **answer_p)
{
    Cubiemem__RegisterInstance ask = CUBIEMEM__REGISTER_INSTANCE__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    message.register_instance = &ask;
    ask.name = (char *)(uintptr_t)name;
    ask.group = (char *)(uintptr_t)(options->group != NULL ? options->group : "default");
    ask.has_shared = true;
    ask.shared = options->shared != 0;
    ask.owner = (char *)(uintptr_t)options->owner;
    ask.has_proportion = options->manual != 0;
    ask.proportion = options->proportion;
    ask.has_evictable = true;
    ask.evictable = options->invalidate != NULL;
    return client_ask(client, &message, client->timeout_ns, "register", answer_p);
}

int cubiemem_register(struct cubiemem_client *client, const char *name,
                      const struct cubiemem_instance_options *options,
                      struct cubiemem_instance **instance_p)
{
    static const struct cubiemem_instance_options defaults = {.size = sizeof defaults};
    struct incoming *answer = NULL;
    options = options != NULL ? options : &defaults;
    int status = client_check(client, CLIENT_WAITS);
    if (status == CUBIEMEM_OK && instance_p == NULL) {
        status = failure_set(CUBIEMEM_INVALID_REQUEST, "nowhere to put the instance");
    }
    if (status == CUBIEMEM_OK) {
        status = check_registration(name, options);
    }
    if (status == CUBIEMEM_OK) {
        status = open_device(client);
    }
    if (status == CUBIEMEM_OK) {
        status = ask_register(client, name, options, &answer);
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    const Cubiemem__InstanceReply *reply = answer->message->instance;
    if (reply == NULL || reply->instance_id == 0) {
        status = failure_set(CUBIEMEM_INTERNAL, "the daemon's answer lacks the instance");
    } else {
        pthread_mutex_lock(&client->books);
        status = add_instance(client, name, options, reply, instance_p);
        pthread_mutex_unlock(&client->books);
        if (status != CUBIEMEM_OK) {
            tell_unregister(client, reply->instance_id);
        }
    }
    incoming_destroy(answer);
    return status;
}

/* -------------------------------------------------------- unregister */

void client_free_instance(struct cubiemem_instance *instance)
{
    struct cubiemem_client *client = instance->client;
    struct cubiemem_instance **link = &client->instances;
    while (*link != instance) {
        link = &(*link)->next;
    }
    *link = instance->next;
    holding_forget(instance);
    request_unref(instance->queued);
    cubiemem_response_free(instance->response);
    if (--instance->owner->n_instances == 0) {
        remove_owner(client, instance->owner);
    }
    free(instance->name);
    free(instance);
}

void cubiemem_unregister(struct cubiemem_instance *instance)
{
    if (instance == NULL || instance_check(instance, CLIENT_WAITS) != CUBIEMEM_OK) {
        return;
    }
    struct cubiemem_client *client = instance->client;
    uint64_t id = instance->id;
    /* Work that does not end keeps its memory; close leaves it to the driver. */
    int status = marks_wait(instance->owner, clock_deadline(client->timeout_ns));
    if (status == CUBIEMEM_TIMEOUT) {
        return;
    }
    pthread_mutex_lock(&client->books);
    while (instance->owner->n_users > 0 || instance->owner->evicting ||
           instance->group->committing) {
        pthread_cond_wait(&client->changed, &client->books);
    }
    status = holding_drop(instance, NULL, 0);
    if (status == CUBIEMEM_OK) {
        client_free_instance(instance);
        /* With the books held: a register that follows is sent behind it. */
        tell_unregister(client, id);
    }
    pthread_mutex_unlock(&client->books);
}

/* ------------------------------------------------------------- quota */

/* Ask something whose answer is an InstanceReply. */
static int ask_instance(struct cubiemem_client *client, Cubiemem__ClientMessage *message,
                        const char *what, struct cubiemem_instance_info *info_p)
{
    struct incoming *answer = NULL;
    int status = client_ask(client, message, client->timeout_ns, what, &answer);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    const Cubiemem__InstanceReply *reply = answer->message->instance;
    if (reply == NULL) {
        status = failure_set(CUBIEMEM_INTERNAL, "%s: the daemon's answer lacks the instance", what);
    } else if (info_p != NULL) {
        *info_p = (struct cubiemem_instance_info){
            .size = sizeof *info_p,
            .proportion = reply->proportion,
            .cap = reply->cap,
            .allocated = reply->allocated,
            .manual = reply->manual,
        };
    }
    incoming_destroy(answer);
    return status;
}

int cubiemem_set_proportion(struct cubiemem_instance *instance, double proportion)
{
    Cubiemem__SetProportion ask = CUBIEMEM__SET_PROPORTION__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    int status = instance_check(instance, CLIENT_WAITS);
    if (status == CUBIEMEM_OK) {
        status = check_proportion(proportion);
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    message.set_proportion = &ask;
    ask.has_instance_id = ask.has_proportion = true;
    ask.instance_id = instance->id;
    ask.proportion = proportion;
    return ask_instance(instance->client, &message, "set_proportion", NULL);
}

int cubiemem_set_auto(struct cubiemem_instance *instance)
{
    Cubiemem__SetAuto ask = CUBIEMEM__SET_AUTO__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    int status = instance_check(instance, CLIENT_WAITS);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    message.set_auto = &ask;
    ask.has_instance_id = true;
    ask.instance_id = instance->id;
    return ask_instance(instance->client, &message, "set_auto", NULL);
}

static int ask_group(struct cubiemem_instance *instance, const char *group, bool shared,
                     const char *what, struct cubiemem_instance_info *info_p)
{
    Cubiemem__ChangeGroup ask = CUBIEMEM__CHANGE_GROUP__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    message.change_group = &ask;
    ask.has_instance_id = ask.has_shared = true;
    ask.instance_id = instance->id;
    ask.group = (char *)(uintptr_t)group;
    ask.shared = shared;
    return ask_instance(instance->client, &message, what, info_p);
}

/* Send what was kept here: in a shared group anybody's allocate must find it. */
static int hand_over_queue(struct cubiemem_instance *instance)
{
    struct cubiemem_client *client = instance->client;
    pthread_mutex_lock(&client->books);
    struct request *request =
        instance->queued != NULL ? request_ref(instance->queued) : NULL;
    pthread_mutex_unlock(&client->books);
    if (request == NULL) {
        return CUBIEMEM_OK;
    }
    int status = request_send(&client->channel, instance->id, request, client->timeout_ns);
    pthread_mutex_lock(&client->books);
    if (status == CUBIEMEM_OK && instance->queued == request) {
        instance->queued = request_unref(instance->queued);
    }
    pthread_mutex_unlock(&client->books);
    request_unref(request);
    return status;
}

int cubiemem_change_group(struct cubiemem_instance *instance, const char *group, int shared)
{
    int status = instance_check(instance, CLIENT_WAITS);
    if (status == CUBIEMEM_OK) {
        status = check_name("a group's name", group);
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    struct cubiemem_client *client = instance->client;
    pthread_mutex_lock(&client->books);
    struct group *to = client_group(client, group, shared != 0);
    pthread_mutex_unlock(&client->books);
    if (to == NULL) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory for a group");
    }
    status = ask_group(instance, group, shared != 0, "change_group", NULL);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    pthread_mutex_lock(&client->books);
    instance->group = to;
    pthread_mutex_unlock(&client->books);
    return to->shared ? hand_over_queue(instance) : CUBIEMEM_OK;
}

int cubiemem_instance_info(struct cubiemem_instance *instance,
                           struct cubiemem_instance_info *info_p)
{
    struct cubiemem_instance_info info;
    int status = instance_check(instance, CLIENT_WAITS);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    pthread_mutex_lock(&instance->client->books);
    struct group *group = instance->group;
    pthread_mutex_unlock(&instance->client->books);
    /* Moving to the group it is in changes nothing, and the answer says all. */
    status = ask_group(instance, group->name, group->shared, "instance_info", &info);
    return status == CUBIEMEM_OK ? copy_out(info_p, &info, sizeof info) : status;
}

int cubiemem_memory_info(struct cubiemem_instance *instance, uint64_t *free_p, uint64_t *total_p)
{
    Cubiemem__Available ask = CUBIEMEM__AVAILABLE__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    struct incoming *answer = NULL;
    int status = instance_check(instance, CLIENT_WAITS);
    if (status == CUBIEMEM_OK && (free_p == NULL || total_p == NULL)) {
        status = failure_set(CUBIEMEM_INVALID_REQUEST, "nowhere to put the figures");
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    message.available = &ask;
    ask.has_instance_id = true;
    ask.instance_id = instance->id;
    status = client_ask(instance->client, &message, instance->client->timeout_ns, "memory_info",
                        &answer);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    const Cubiemem__AvailableReply *reply = answer->message->available;
    if (reply == NULL) {
        status = failure_set(CUBIEMEM_INTERNAL, "the daemon's answer lacks the figures");
    } else {
        *free_p = reply->available;
        *total_p = reply->total;
    }
    incoming_destroy(answer);
    return status;
}
