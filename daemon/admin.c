/*
 * admin - an administrator's hand on clients, see admin.h
 */
#include "admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "checked.h"
#include "eviction.h"
#include "handlers.h"
#include "log.h"
#include "transaction.h"

struct evict_order {
    struct session *asker; /* NULL: nobody waits for the answer any more */
    uint64_t request_id;
    uint64_t client_id;
    uint64_t released;
    uint32_t n_owners, n_busy, n_silent, n_unevictable;
    size_t n_pending; /* asked and not answered, and 1 while still asking */
};

struct session *admin_find_client(const struct daemon *daemon, uint64_t id)
{
    struct session *session = daemon->sessions;
    while (session != NULL && (session->id != id || session->tool)) {
        session = session->next;
    }
    return session;
}

static int no_client(struct request *request, uint64_t id)
{
    snprintf(request->why, sizeof(request->why), "there is no client %" PRIu64, id);
    return CUBIEMEM_NOT_FOUND;
}

/* ------------------------------------------------------------------ evict */

static void order_answer(const struct evict_order *order)
{
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
    Cubiemem__EvictDone done = CUBIEMEM__EVICT_DONE__INIT;
    char text[WHY_SIZE];
    result.has_code = true;
    if (order->n_owners > 0 &&
        order->n_busy + order->n_silent + order->n_unevictable == order->n_owners) {
        snprintf(text, sizeof(text),
                 "client %" PRIu64 " gave nothing back: of %u owners that hold memory %u are at "
                 "work, %u did not answer, %u have no invalidate hook",
                 order->client_id, order->n_owners, order->n_busy, order->n_silent,
                 order->n_unevictable);
        result.code = CUBIEMEM_BUSY;
        result.text = text;
    }
    done.has_released = done.has_owners = done.has_busy = done.has_silent = true;
    done.has_unevictable = true;
    done.released = order->released;
    done.owners = order->n_owners;
    done.busy = order->n_busy;
    done.silent = order->n_silent;
    done.unevictable = order->n_unevictable;
    message.result = &result;
    message.evict_done = &done;
    answer_message(order->asker, order->request_id, &message, -1);
}

static void order_settle(struct evict_order *order)
{
    if (--order->n_pending > 0) {
        return;
    }
    if (order->asker != NULL) {
        order_answer(order);
    }
    free(order);
}

void evict_order_note(struct evict_order *order, enum evict_outcome outcome, uint64_t released)
{
    order->released += released;
    order->n_busy += outcome == EVICT_BUSY;
    order->n_silent += outcome == EVICT_SILENT;
    order_settle(order);
}

void evict_order_forget_asker(struct evict_order *order, const struct session *session)
{
    if (order->asker == session) {
        order->asker = NULL;
    }
}

/* Everything that one owner of a session comes to. */
struct owner_state {
    uint64_t held;
    bool evictable, in_batch;
};

static struct owner_state owner_look(const struct session *session, uint32_t owner_slot)
{
    struct owner_state state = {.evictable = true};
    for (const struct instance *instance = session->instances; instance != NULL;
         instance = instance->hh.next) {
        if (instance->owner_slot == owner_slot) {
            struct policy_instance_view view;
            policy_instance_read(instance->policy, &view);
            state.held += view.allocated;
            state.evictable &= view.evictable;
            state.in_batch |= transaction_locks(instance, false) || transaction_reserves(instance);
        }
    }
    return state;
}

static void order_owner(struct evict_order *order, struct session *session, uint32_t owner_slot)
{
    struct owner_state state = owner_look(session, owner_slot);
    if (state.held == 0) {
        return;
    }
    order->n_owners++;
    if (!state.evictable) {
        order->n_unevictable++;
    } else if (state.in_batch || !eviction_order(session, owner_slot, order)) {
        order->n_busy++;
    } else {
        order->n_pending++;
    }
}

/* Is it the first instance of its owner, as they are walked? */
static bool is_first_of_owner(const struct session *session, const struct instance *instance)
{
    const struct instance *first = session->instances;
    while (first->owner_slot != instance->owner_slot) {
        first = first->hh.next;
    }
    return first == instance;
}

int handle_evict(struct request *request)
{
    const Cubiemem__Evict *body = request->message->evict;
    struct daemon *daemon = connection_daemon(request->connection);
    struct session *session = admin_find_client(daemon, body->client_id);
    if (session == NULL) {
        return no_client(request, body->client_id);
    }
    const struct instance *only = NULL;
    if (body->instance_name != NULL) {
        struct policy_instance *found =
            policy_find(daemon->policy, session->id, body->instance_name);
        if (found == NULL) {
            snprintf(request->why, sizeof(request->why),
                     "client %" PRIu64 " has no instance '%.100s'", session->id,
                     body->instance_name);
            return CUBIEMEM_NOT_FOUND;
        }
        only = policy_instance_data(found);
    }
    struct evict_order *order = calloc(1, sizeof(*order));
    if (order == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    *order = (struct evict_order){.asker = request->session,
                                  .request_id = request->id,
                                  .client_id = session->id,
                                  .n_pending = 1};
    log_info("evicting client %" PRIu64 " (client %" PRIu64 ", uid %u)", session->id,
             request->session->id, request->session->identity.uid);
    for (const struct instance *instance = session->instances; instance != NULL;
         instance = instance->hh.next) {
        if (only != NULL ? instance == only : is_first_of_owner(session, instance)) {
            order_owner(order, session, instance->owner_slot);
        }
    }
    order_settle(order);
    return HANDLED;
}

/* ------------------------------------------------------------- kick, drain */

int handle_kick(struct request *request)
{
    const Cubiemem__Kick *body = request->message->kick;
    struct daemon *daemon = connection_daemon(request->connection);
    struct session *session = admin_find_client(daemon, body->client_id);
    if (session == NULL) {
        return no_client(request, body->client_id);
    }
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Kicked kicked = CUBIEMEM__KICKED__INIT;
    kicked.has_pid = kicked.has_start_time = session->identity.pid > 0;
    kicked.pid = (uint32_t)session->identity.pid;
    kicked.start_time = session->identity.start_time;
    message.kicked = &kicked;
    Cubiemem__ShuttingDown goodbye = CUBIEMEM__SHUTTING_DOWN__INIT;
    char text[80], reason[80];
    snprintf(text, sizeof(text), "an administrator (uid %u) ended this session",
             request->session->identity.uid);
    snprintf(reason, sizeof(reason), "kicked by client %" PRIu64 ", uid %u", request->session->id,
             request->session->identity.uid);
    goodbye.text = text;
    Cubiemem__DaemonMessage event = CUBIEMEM__DAEMON_MESSAGE__INIT;
    event.shutting_down = &goodbye;
    answer_event(session, &event);
    connection_close(session->connection, reason);
    answer_message(request->session, request->id, &message, -1);
    return HANDLED;
}

int handle_drain(struct request *request)
{
    struct daemon *daemon = connection_daemon(request->connection);
    daemon->draining = !request->message->drain->off;
    log_info("%s (client %" PRIu64 ", uid %u)",
             daemon->draining ? "draining: nobody new is let in" : "letting clients in again",
             request->session->id, request->session->identity.uid);
    return CUBIEMEM_OK;
}
