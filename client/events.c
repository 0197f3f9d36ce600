/*
 * events - what the daemon says without being asked
 *
 * A grant by another member's allocate is applied and waits for
 * take_response(). A Yield unmaps what a grant under way replaces. An Invalidate
 * takes an idle owner's arrays: the marks decide, the hooks hear of it, then
 * everything is unmapped, and only then the daemon hears that it is gone. Of what
 * concerns the program it hears by its event function.
 */
#include <stdlib.h>

#include "client.h"
#include "failure.h"
#include "holding.h"
#include "seam.h"

/* ------------------------------------------------------ event function */

int cubiemem_set_event_fn(struct cubiemem_client *client, cubiemem_event_fn *fn, void *arg)
{
    int status = client_check(client, CLIENT_QUICK);
    if (status == CUBIEMEM_OK) {
        pthread_mutex_lock(&client->books);
        client->event_fn = fn;
        client->event_arg = arg;
        pthread_mutex_unlock(&client->books);
    }
    return status;
}

/* No lock held. */
static void tell_program(struct cubiemem_client *client, const struct cubiemem_event *event)
{
    pthread_mutex_lock(&client->books);
    cubiemem_event_fn *fn = client->event_fn;
    void *arg = client->event_arg;
    pthread_mutex_unlock(&client->books);
    if (fn != NULL) {
        fn(client, event, arg);
    }
}

static void tell_waiting(struct cubiemem_client *client, const Cubiemem__Waiting *waiting)
{
    struct cubiemem_event event = {.size = sizeof event,
                                   .kind = CUBIEMEM_EVENT_WAITING,
                                   .text = waiting->reason != NULL ? waiting->reason : "",
                                   .position = waiting->position,
                                   .asked = waiting->asked,
                                   .max_chunks = waiting->max_chunks,
                                   .holders = waiting->holders,
                                   .n_holders = waiting->n_holders};
    pthread_mutex_lock(&client->books);
    event.instance = client_instance(client, waiting->instance_id);
    if (event.instance != NULL) {
        event.instance->owner->n_users++; /* it stays while the program looks at it */
    }
    pthread_mutex_unlock(&client->books);
    if (event.instance == NULL) {
        return;
    }
    tell_program(client, &event);
    pthread_mutex_lock(&client->books);
    event.instance->owner->n_users--;
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->books);
}

static void tell_limits(struct cubiemem_client *client, const Cubiemem__LimitsChanged *limits)
{
    const struct cubiemem_event event = {.size = sizeof event,
                                         .kind = CUBIEMEM_EVENT_LIMITS,
                                         .revision = limits->revision};
    tell_program(client, &event);
}

static void tell_lost(struct cubiemem_client *client)
{
    const struct cubiemem_event event = {.size = sizeof event,
                                         .kind = CUBIEMEM_EVENT_LOST,
                                         .text = client->channel.dead_reason};
    tell_program(client, &event);
}

/* ------------------------------------------------------------- grants */

static void take_response(struct cubiemem_client *client, struct incoming *event)
{
    const Cubiemem__Result *result = event->message->result;
    if (result != NULL && result->code != CUBIEMEM_OK) {
        return; /* a refusal that came after its caller's time-out */
    }
    (void)holding_apply(client, event, NULL);
}

/* ----------------------------------------------------------- eviction */

struct eviction {
    struct cubiemem_client *client;
    struct owner *owner; /* NULL: none of the instances is here any more */
    struct cubiemem_instance **instances;
    size_t n;
};

/* The instances that are asked for, all of one owner and with hooks. Books
 * held. False: it cannot be done. */
static bool eviction_begin(struct eviction *eviction, const Cubiemem__Invalidate *invalidate)
{
    eviction->instances = calloc(invalidate->n_instance_ids + 1, sizeof *eviction->instances);
    if (eviction->instances == NULL) {
        return false;
    }
    for (size_t i = 0; i < invalidate->n_instance_ids; i++) {
        struct cubiemem_instance *instance =
            client_instance(eviction->client, invalidate->instance_ids[i]);
        if (instance == NULL) {
            continue; /* unregistered meanwhile: its memory is on its way */
        }
        /* What was granted and not taken yet was not used either, whatever the owner's other
         * instances have worked with. */
        if (instance->invalidate == NULL || holding_has_untaken(instance) ||
            (eviction->owner != NULL && eviction->owner != instance->owner)) {
            return false;
        }
        eviction->owner = instance->owner;
        eviction->instances[eviction->n++] = instance;
    }
    if (eviction->owner == NULL) {
        return true;
    }
    if (eviction->owner->n_users > 0 || eviction->owner->evicting ||
        !marks_evict(eviction->owner)) {
        eviction->owner = NULL;
        return false;
    }
    eviction->owner->evicting = true;
    for (size_t i = 0; i < eviction->n; i++) {
        if (eviction->instances[i]->held.n > 0) { /* else it may begin for the others */
            atomic_store(&eviction->instances[i]->bereft, true);
        }
    }
    return true;
}

/* No lock held: hooks are the program's code. */
static bool eviction_carry_out(struct eviction *eviction)
{
    bool dropped = true;
    SEAM("run the hook");
    for (size_t i = 0; i < eviction->n; i++) {
        struct cubiemem_instance *instance = eviction->instances[i];
        instance->invalidate(instance, instance->invalidate_arg);
    }
    SEAM("unmap");
    pthread_mutex_lock(&eviction->client->books);
    for (size_t i = 0; i < eviction->n; i++) {
        dropped = holding_drop(eviction->instances[i], NULL, 0) == CUBIEMEM_OK && dropped;
    }
    pthread_mutex_unlock(&eviction->client->books);
    for (size_t i = 0; i < eviction->n; i++) {
        const struct cubiemem_event event = {.size = sizeof event,
                                             .kind = CUBIEMEM_EVENT_EVICTED,
                                             .instance = eviction->instances[i]};
        tell_program(eviction->client, &event);
    }
    pthread_mutex_lock(&eviction->client->books);
    eviction->owner->evicting = false;
    pthread_cond_broadcast(&eviction->client->changed);
    pthread_mutex_unlock(&eviction->client->books);
    return dropped;
}

static void evict(struct cubiemem_client *client, const Cubiemem__Invalidate *invalidate)
{
    Cubiemem__EvictReply reply = CUBIEMEM__EVICT_REPLY__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    struct eviction eviction = {.client = client};
    SEAM("invalidate");
    pthread_mutex_lock(&client->books);
    bool done = eviction_begin(&eviction, invalidate);
    pthread_mutex_unlock(&client->books);
    if (done && eviction.owner != NULL) {
        done = eviction_carry_out(&eviction);
    }
    free(eviction.instances);
    message.evict_reply = &reply;
    reply.has_evict_id = true;
    reply.evict_id = invalidate->evict_id;
    reply.has_busy = true;
    reply.busy = !done;
    SEAM("answer");
    (void)client_tell(client, &message);
}

/* ----------------------------------------------------------- dispatch */

bool client_event_is_ready(const struct incoming *event, void *client)
{
    return !holding_waits(client, event);
}

void client_on_event(struct incoming *event, void *arg)
{
    struct cubiemem_client *client = arg;
    if (event == NULL) {
        tell_lost(client);
        return;
    }
    const Cubiemem__DaemonMessage *message = event->message;
    /* Nobody asked: nothing here is a failure of this thread's last call. */
    failure_hold(true);
    if (message->response != NULL) {
        take_response(client, event);
    } else if (message->yield != NULL) {
        holding_yield(client, message->yield);
    } else if (message->invalidate != NULL) {
        evict(client, message->invalidate);
    } else if (message->waiting != NULL) {
        tell_waiting(client, message->waiting);
    } else if (message->limits_changed != NULL) {
        tell_limits(client, message->limits_changed);
    }
    failure_hold(false);
    incoming_destroy(event);
}
