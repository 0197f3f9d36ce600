/*
 * waiting - a transaction that waits for device memory, see waiting.h
 *
 * The device is read every 100 ms while somebody waits (session.h, drain_watch), and
 * each reading wakes the queue. So what nobody says, such as an owner that becomes
 * idle in its work word or another program's end, is seen in time, too.
 */
#include "waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "answer.h"
#include "checked.h"
#include "transaction.h"

#define TELL_AGAIN_NS 100000000ll /* who holds what changes often; this often it is told */

static struct transaction *transaction_of(struct waiter *waiter)
{
    size_t offset = offsetof(struct transaction, wait) + offsetof(struct wait, waiter);
    return waiter != NULL ? (struct transaction *)(void *)((char *)waiter - offset) : NULL;
}

struct transaction *waiting_next(const struct daemon *daemon, const struct transaction *previous)
{
    return transaction_of(previous != NULL ? previous->wait.waiter.next : daemon->waitq.first);
}

void waiting_init(struct transaction *transaction, const struct wait_terms *terms)
{
    struct wait *wait = &transaction->wait;
    wait->waiter.number = ++transaction->daemon->last_transaction;
    wait->terms = *terms;
    if (__builtin_add_overflow(now_ns(), terms->timeout_ns, &wait->deadline_ns)) {
        wait->deadline_ns = INT64_MAX;
    }
}

bool waiting_may(const struct transaction *transaction)
{
    const struct wait *wait = &transaction->wait;
    return wait->terms.timeout_ns > 0 && !wait->cancelled && now_ns() < wait->deadline_ns;
}

bool waiting_is_behind(const struct transaction *transaction)
{
    return waitq_is_behind(&transaction->daemon->waitq, transaction->wait.waiter.number);
}

/* ------------------------------------------------------------------ timer */

static void time_is_over(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    daemon->waiters_due = true;
    waiting_serve(daemon);
}

/* The timer runs until the next deadline of one that waits, and only then. */
static void watch(struct daemon *daemon)
{
    int64_t next = INT64_MAX;
    for (const struct transaction *t = waiting_next(daemon, NULL); t != NULL;
         t = waiting_next(daemon, t)) {
        if (t->state == TRANSACTION_WAITING && t->wait.deadline_ns < next) {
            next = t->wait.deadline_ns;
        }
    }
    if (next == INT64_MAX) {
        uv_timer_stop(&daemon->wait_timer);
        return;
    }
    int64_t left = next - now_ns();
    uv_update_time(&daemon->loop);
    daemon->wait_timer.data = daemon;
    uv_timer_start(&daemon->wait_timer, time_is_over,
                   left > 0 ? (uint64_t)((left + 999999) / 1000000) : 0, 0);
}

/* ------------------------------------------------------------------ telling */

/* The clients that hold memory, the largest first. One that waits for what it holds
 * itself is among them only if nobody else is. */
static size_t find_holders(const struct transaction *transaction, uint64_t *ids)
{
    uint64_t sizes[WAITING_MAX_HOLDERS];
    size_t n = 0;
    for (const struct session *s = transaction->daemon->sessions; s != NULL; s = s->next) {
        if (s->held_size == 0 || s == transaction->session) {
            continue;
        }
        size_t at = n;
        while (at > 0 && sizes[at - 1] < s->held_size) {
            at--;
        }
        if (at == WAITING_MAX_HOLDERS) {
            continue;
        }
        n += n < WAITING_MAX_HOLDERS;
        memmove(&sizes[at + 1], &sizes[at], (n - at - 1) * sizeof(sizes[0]));
        memmove(&ids[at + 1], &ids[at], (n - at - 1) * sizeof(ids[0]));
        sizes[at] = s->held_size;
        ids[at] = s->id;
    }
    if (n == 0 && transaction->session != NULL && transaction->session->held_size > 0) {
        ids[n++] = transaction->session->id;
    }
    return n;
}

static void append(char *text, size_t size, const char *what, uint64_t bytes)
{
    char figure[SIZE_TEXT_MAX];
    size_t length = strlen(text);
    if (bytes > 0) {
        snprintf(text + length, size - length, ", %s %s", what, size_format(bytes, figure));
    }
}

static void describe(const struct transaction *transaction, size_t position, char *text,
                     size_t size)
{
    const struct books *books = &transaction->daemon->books;
    char asked[SIZE_TEXT_MAX], free_size[SIZE_TEXT_MAX];
    if (position > 1) {
        snprintf(text, size, "%zu that came before %s", position - 1,
                 position == 2 ? "waits" : "wait");
        return;
    }
    snprintf(text, size, "asks for %s, free %s", size_format(transaction->wait.asked, asked),
             size_format(books_free(books), free_size));
    append(text, size, "held by clients", books->lent);
    append(text, size, "promised", books->promised);
    append(text, size, "draining", books->draining);
    append(text, size, "other programs", books->others);
}

void waiting_read(const struct transaction *transaction, struct waiting_view *view_p)
{
    const struct daemon *daemon = transaction->daemon;
    view_p->position = waitq_position(&daemon->waitq, &transaction->wait.waiter);
    view_p->n_holders = find_holders(transaction, view_p->holders);
    describe(transaction, view_p->position, view_p->reason, sizeof(view_p->reason));
}

/* An event for the client, if there is something new in it. */
static void tell(struct transaction *transaction)
{
    struct wait *wait = &transaction->wait;
    struct waiting_view view;
    uint64_t hash = 1;
    int64_t now = now_ns();
    waiting_read(transaction, &view);
    for (size_t i = 0; i < view.n_holders; i++) {
        hash = (hash ^ view.holders[i]) * 1099511628211u;
    }
    if (view.position == wait->told_position &&
        (hash == wait->told_holders || now - wait->told_ns < TELL_AGAIN_NS)) {
        return;
    }
    wait->told_position = view.position;
    wait->told_holders = hash;
    wait->told_ns = now;
    Cubiemem__Waiting body = CUBIEMEM__WAITING__INIT;
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    body.has_request_id = body.has_instance_id = body.has_position = true;
    body.has_asked = body.has_max_chunks = true;
    body.request_id = transaction->request_id;
    body.instance_id = transaction->trigger->id;
    body.position = view.position;
    body.asked = wait->asked;
    body.max_chunks = wait->max_chunks;
    body.reason = view.reason;
    body.holders = view.holders;
    body.n_holders = view.n_holders;
    message.waiting = &body;
    answer_event(transaction->session, &message);
}

/* -------------------------------------------------------------- the queue */

void waiting_enter(struct transaction *transaction)
{
    struct daemon *daemon = transaction->daemon;
    waitq_enter(&daemon->waitq, &transaction->wait.waiter);
    if (transaction->wait.since_ns == 0) {
        transaction->wait.since_ns = now_ns();
    }
    if (transaction->state == TRANSACTION_WAITING) {
        tell(transaction);
        watch(daemon);
    }
    drain_watch(daemon);
}

void waiting_leave(struct transaction *transaction)
{
    struct daemon *daemon = transaction->daemon;
    if (transaction->wait.waiter.waits) {
        waitq_leave(&daemon->waitq, &transaction->wait.waiter);
        if (daemon->waitq.first == NULL) {
            uv_timer_stop(&daemon->wait_timer);
        }
        waiting_wake(daemon);
    }
}

void waiting_wake(struct daemon *daemon)
{
    if (daemon->waitq.first != NULL) {
        daemon->waiters_due = true;
        daemon_later(daemon);
    }
}

void waiting_serve(struct daemon *daemon)
{
    if (!daemon->waiters_due) {
        return;
    }
    daemon->waiters_due = false;
    struct transaction *next;
    for (struct transaction *t = waiting_next(daemon, NULL); t != NULL; t = next) {
        next = waiting_next(daemon, t);
        if (t->state == TRANSACTION_WAITING) {
            transaction_reconsider(t);
        }
    }
    for (struct transaction *t = waiting_next(daemon, NULL); t != NULL;
         t = waiting_next(daemon, t)) {
        if (t->state == TRANSACTION_WAITING) {
            tell(t);
        }
    }
    watch(daemon);
}
