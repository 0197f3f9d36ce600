/*
 * eviction - asking an idle owner to give everything back, see eviction.h
 */
#include "eviction.h"

#include <inttypes.h>
#include <stdlib.h>
#include <utlist.h>

#include "admin.h"
#include "answer.h"
#include "checked.h"
#include "log.h"
#include "seam.h"
#include "session.h"
#include "transaction.h"

#define TICK_MS 50
#define ASK_AGAIN_NS 500000000ll

/* ------------------------------------------------------------------ marks */

/* Somebody who waits asks again after a while. */
static bool has_refused(const struct transaction *transaction, const struct instance *instance)
{
    int64_t since = transaction->wait.since_ns != 0 ? now_ns() - ASK_AGAIN_NS : 0;
    for (const struct eviction_refusal *r = transaction->refusals; r != NULL; r = r->next) {
        if (r->session_id == instance->session->id && r->owner_slot == instance->owner_slot &&
            r->at_ns > since) {
            return true;
        }
    }
    return false;
}

static bool is_asked(const struct daemon *daemon, const struct instance *instance)
{
    for (const struct eviction *e = daemon->evictions; e != NULL; e = e->next) {
        if (e->session == instance->session && e->owner_slot == instance->owner_slot) {
            return true;
        }
    }
    return false;
}

void evictions_note_marks(struct daemon *daemon, const struct transaction *transaction)
{
    policy_set_clock(daemon->policy, (uint64_t)now_ns());
    for (struct session *session = daemon->sessions; session != NULL; session = session->next) {
        control_pages_look(session->pages);
        for (struct instance *instance = session->instances; instance != NULL;
             instance = instance->hh.next) {
            const struct control_owner *owner =
                control_page_owner(session->pages, instance->owner_slot);
            int64_t begun = atomic_load(&owner->last_begin_ns);
            /* Who has something to give back already is not asked for the rest: its
             * library could not tell the one from the other any more. */
            bool working = !control_page_is_idle(session->pages, instance->owner_slot) ||
                           has_refused(transaction, instance) || is_asked(daemon, instance) ||
                           session->owed != NULL;
            policy_note_work(daemon->policy, instance->policy, working,
                             begun > 0 ? (uint64_t)begun : 0);
        }
    }
}

/* ----------------------------------------------------------------- asking */

/* An administrator hears how it went. */
static void settle_order(struct eviction *eviction, enum evict_outcome outcome, uint64_t released)
{
    struct evict_order *order = eviction->order;
    eviction->order = NULL;
    if (order != NULL) {
        evict_order_note(order, outcome, released);
    }
}

static void eviction_end(struct eviction *eviction, enum evict_outcome outcome, uint64_t released)
{
    struct daemon *daemon = eviction->session->daemon;
    settle_order(eviction, outcome, released);
    DL_DELETE(daemon->evictions, eviction);
    free(eviction);
    if (daemon->evictions == NULL) {
        uv_timer_stop(&daemon->evict_timer);
    }
}

static void refused(struct eviction *eviction)
{
    struct eviction_refusal *refusal = eviction->transaction->refusals;
    while (refusal != NULL && (refusal->session_id != eviction->session->id ||
                               refusal->owner_slot != eviction->owner_slot)) {
        refusal = refusal->next;
    }
    if (refusal != NULL) { /* asked again by one that waits */
        refusal->at_ns = now_ns();
        return;
    }
    refusal = malloc(sizeof(*refusal));
    if (refusal != NULL) {
        *refusal = (struct eviction_refusal){eviction->session->id, eviction->owner_slot,
                                             now_ns(), eviction->transaction->refusals};
        eviction->transaction->refusals = refusal;
    } else {
        /* It cannot be remembered: then this transaction evicts no more. */
        eviction->transaction->may_evict = false;
    }
}

static void tick(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    int64_t now = now_ns();
    bool waiting = false;
    struct eviction *eviction;
    DL_FOREACH(daemon->evictions, eviction)
    {
        if (now - eviction->asked_ns < daemon->evict_timeout_ns) {
            waiting = true;
            continue;
        }
        settle_order(eviction, EVICT_SILENT, 0);
        if (eviction->transaction == NULL) {
            continue;
        }
        log_info("client %" PRIu64 " does not answer Invalidate: others are asked",
                 eviction->session->id);
        refused(eviction);
        eviction->transaction = NULL;
    }
    if (!waiting) {
        uv_timer_stop(timer);
    }
    transactions_wake(daemon);
}

/* One Invalidate with all instances of the victim's owner. */
static void send_invalidate(const struct eviction *eviction)
{
    struct session *session = eviction->session;
    uint64_t *ids = calloc(HASH_COUNT(session->instances), sizeof(*ids));
    if (ids == NULL) {
        return; /* no answer will come: the timeout sees to it */
    }
    Cubiemem__Invalidate body = CUBIEMEM__INVALIDATE__INIT;
    body.has_evict_id = true;
    body.evict_id = eviction->id;
    body.instance_ids = ids;
    for (const struct instance *instance = session->instances; instance != NULL;
         instance = instance->hh.next) {
        if (instance->owner_slot == eviction->owner_slot) {
            ids[body.n_instance_ids++] = instance->id;
        }
    }
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    message.invalidate = &body;
    SEAM("ask");
    answer_event(session, &message);
    free(ids);
}

static struct eviction *ask(struct session *session, uint32_t owner_slot)
{
    struct daemon *daemon = session->daemon;
    struct eviction *eviction = calloc(1, sizeof(*eviction));
    if (eviction == NULL) {
        return NULL;
    }
    eviction->id = ++daemon->last_evict_id;
    eviction->session = session;
    eviction->owner_slot = owner_slot;
    eviction->asked_ns = now_ns();
    DL_APPEND(daemon->evictions, eviction);
    send_invalidate(eviction);
    daemon->evict_timer.data = daemon;
    uv_timer_start(&daemon->evict_timer, tick, TICK_MS, TICK_MS);
    return eviction;
}

bool eviction_order(struct session *session, uint32_t owner_slot, struct evict_order *order)
{
    struct eviction *eviction = session->daemon->evictions;
    while (eviction != NULL &&
           (eviction->session != session || eviction->owner_slot != owner_slot)) {
        eviction = eviction->next;
    }
    if (eviction == NULL) {
        eviction = ask(session, owner_slot);
    } else if (now_ns() - eviction->asked_ns >= session->daemon->evict_timeout_ns) {
        eviction = NULL; /* asked long ago, and silent since */
    }
    if (eviction == NULL || eviction->order != NULL) {
        return false;
    }
    eviction->order = order;
    return true;
}

bool evictions_ask(struct transaction *transaction, struct policy_instance *const *victims,
                   size_t n)
{
    struct daemon *daemon = transaction->daemon;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const struct instance *victim = policy_instance_data(victims[i]);
        if (is_asked(daemon, victim)) {
            continue; /* another instance of this owner */
        }
        struct eviction *eviction = ask(victim->session, victim->owner_slot);
        if (eviction == NULL) {
            break;
        }
        eviction->transaction = transaction;
        any = true;
    }
    return any;
}

/* -------------------------------------------------------------- answering */

/* Everything of the owner's instances; returns the bytes that came back. */
static uint64_t take_all(struct session *session, uint32_t owner_slot)
{
    uint64_t before = session->held_size;
    for (struct instance *instance = session->instances; instance != NULL;
         instance = instance->hh.next) {
        if (instance->owner_slot == owner_slot) {
            session_evict(instance);
        }
    }
    return before - session->held_size;
}

bool eviction_answered(struct session *session, uint64_t id, bool busy)
{
    struct daemon *daemon = session->daemon;
    struct eviction *eviction = daemon->evictions;
    while (eviction != NULL && (eviction->id != id || eviction->session != session)) {
        eviction = eviction->next;
    }
    if (eviction == NULL) {
        return false;
    }
    for (struct instance *instance = session->instances; !busy && instance != NULL;
         instance = instance->hh.next) {
        /* A plan counts on what this answer says is gone. */
        if (instance->owner_slot == eviction->owner_slot && transaction_reserves(instance)) {
            return false;
        }
    }
    struct transaction *transaction = eviction->transaction;
    SEAM("take");
    if (busy && transaction != NULL) {
        refused(eviction);
    }
    uint64_t released = busy ? 0 : take_all(session, eviction->owner_slot);
    if (transaction != NULL && released > 0) {
        transaction_earmark(transaction, released);
    }
    eviction_end(eviction, busy ? EVICT_BUSY : EVICT_GIVEN, released);
    transactions_wake(daemon);
    return true;
}

/* Would a grant to the transaction's group give this instance something? */
static bool may_be_granted(const struct transaction *transaction, const struct instance *instance)
{
    struct policy_instance_view view;
    if (!transaction_same_group(transaction->trigger, instance)) {
        return false;
    }
    policy_instance_read(instance->policy, &view);
    return instance->session == transaction->session || view.has_request;
}

/* An answer that is still to come gives back all that the owner holds when it
 * comes. So nothing may be granted to an owner in question, however long it takes:
 * the timeout is for the others. */
bool evictions_pending(const struct transaction *transaction)
{
    const struct eviction *eviction;
    DL_FOREACH(transaction->daemon->evictions, eviction)
    {
        if (eviction->transaction == transaction) {
            return true;
        }
        for (const struct instance *instance = eviction->session->instances; instance != NULL;
             instance = instance->hh.next) {
            if (instance->owner_slot == eviction->owner_slot &&
                may_be_granted(transaction, instance)) {
                return true;
            }
        }
    }
    return false;
}

void evictions_forget_session(struct daemon *daemon, struct session *session)
{
    struct eviction *eviction, *next;
    DL_FOREACH_SAFE(daemon->evictions, eviction, next)
    {
        if (eviction->order != NULL) {
            evict_order_forget_asker(eviction->order, session);
        }
        if (eviction->session == session) {
            eviction_end(eviction, EVICT_GONE, 0);
        }
    }
}

void evictions_forget_transaction(struct transaction *transaction)
{
    struct eviction *eviction;
    DL_FOREACH(transaction->daemon->evictions, eviction)
    {
        if (eviction->transaction == transaction) {
            eviction->transaction = NULL;
        }
    }
    while (transaction->refusals != NULL) {
        struct eviction_refusal *refusal = transaction->refusals;
        transaction->refusals = refusal->next;
        free(refusal);
    }
}
