/*
 * channel_read - the reading side of a channel
 *
 * One packet at a time: acknowledge descriptors at once, put the parts of a
 * message together, and hand the whole to the call that waits for it or to the
 * inbox. Whatever breaks the protocol's framing ends the connection, with the
 * reason kept for those who ask.
 */
#include "channel_read.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "failure.h"
#include "packet.h"

#define ACK_TIMEOUT_NS (5 * CLOCK_SECOND_NS)
#define QUICK_SUCCESSION_NS 1000000ll
#define WATCH_NS 2000000ll

static _Thread_local bool in_hook;

bool channel_in_hook(void)
{
    return in_hook;
}

/* ------------------------------------------------------- inboxes */

struct incoming *inbox_pop(struct inbox *inbox)
{
    struct incoming *item = inbox->first;
    inbox->first = item->next;
    if (inbox->first == NULL) {
        inbox->last = &inbox->first;
    }
    item->next = NULL;
    return item;
}

static void inbox_push(struct inbox *inbox, struct incoming *item)
{
    item->next = NULL;
    *inbox->last = item;
    inbox->last = &item->next;
}

void channel_act(struct channel *channel, struct incoming *event)
{
    channel->acting = true;
    pthread_mutex_unlock(&channel->lock);
    channel->on_event(event, channel->event_arg);
    pthread_mutex_lock(&channel->lock);
    channel->acting = false;
    channel_rouse(channel);
}

bool channel_is_ready(struct channel *channel)
{
    const struct incoming *event = channel->inbox.first;
    channel->acting = true; /* so that it stays the first */
    pthread_mutex_unlock(&channel->lock);
    bool ready = channel->is_ready(event, channel->event_arg);
    if (!ready) {
        atomic_store(&channel->postponed, true);
        /* The work may have ended between the look and the note. */
        ready = channel->is_ready(event, channel->event_arg);
    }
    pthread_mutex_lock(&channel->lock);
    channel->acting = false;
    if (!ready && !channel->manual) {
        channel_wake(channel);
    }
    return ready;
}

void channel_wake(struct channel *channel)
{
    uint64_t one = 1;
    /* Fails only if the counter is full: then it is readable anyway. */
    ssize_t written = write(channel->wakeup, &one, sizeof one);
    (void)written;
}

void channel_rouse(struct channel *channel)
{
    if (channel->notices.first != NULL) {
        channel_wake(channel);
    }
    struct incoming *head = channel->inbox.first;
    if (head == NULL || channel->acting) {
        return;
    }
    if (head->pending != NULL) {
        pthread_cond_signal(&head->pending->cond);
        return;
    }
    /* An ordered call that sleeps may act; one that reads will look by itself. */
    for (struct pending *pending = channel->waiting; pending != NULL; pending = pending->next) {
        if (pending->ordered && !pending->leads) {
            pthread_cond_signal(&pending->cond);
            return;
        }
    }
    channel_wake(channel);
}

void channel_die(struct channel *channel, const char *reason)
{
    if (channel->dead) {
        return;
    }
    channel->dead = true;
    snprintf(channel->dead_reason, sizeof channel->dead_reason, "%s", reason);
    for (struct pending *pending = channel->waiting; pending != NULL; pending = pending->next) {
        pthread_cond_signal(&pending->cond);
    }
    pthread_cond_broadcast(&channel->room);
    channel_wake(channel); /* the handler is to hear of it */
}

/* --------------------------------------------------------- roles */

/* The background thread's watch on the socket. A hang-up is reported whatever
 * one asks for: one-shot, so that it is reported once. */
static void listen_to_socket(struct channel *channel, bool on)
{
    if (channel->manual || channel->listening == on) {
        return;
    }
    struct epoll_event event = {.events = EPOLLONESHOT | (on ? EPOLLIN : 0),
                                .data.fd = channel->socket};
    epoll_ctl(channel->epoll, EPOLL_CTL_MOD, channel->socket, &event);
    channel->listening = on;
}

void channel_take_reading(struct channel *channel)
{
    channel->reading = true;
    listen_to_socket(channel, false);
}

void channel_pass_reading(struct channel *channel)
{
    if (!channel->dead) {
        for (struct pending *pending = channel->waiting; pending != NULL;
             pending = pending->next) {
            if (!pending->leads && !pending->queued) {
                pending->leads = true;
                pthread_cond_signal(&pending->cond);
                return;
            }
        }
    }
    channel->reading = false;
    if (channel->dead || channel->manual || channel->watching) {
        return;
    }
    int64_t now = clock_now_ns();
    if (channel->has_thread && now - channel->last_read_ns < QUICK_SUCCESSION_NS) {
        channel->watching = true;
        channel->watch_end_ns = now + WATCH_NS;
        channel_wake(channel);
    } else {
        listen_to_socket(channel, true);
    }
    channel->last_read_ns = now;
}

/* ------------------------------------------------------- reading */

static void acknowledge(struct channel *channel, uint64_t packet, bool lost)
{
    Cubiemem__Ack ack = CUBIEMEM__ACK__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    ack.has_packet = true;
    ack.packet = packet;
    ack.has_lost = lost;
    ack.lost = lost;
    message.ack = &ack;
    /* If it fails the connection is broken, and the next read says so. */
    (void)channel_send(channel, &message, 1, clock_deadline(ACK_TIMEOUT_NS));
}

/* What calls the program's functions. */
static bool is_notice(const Cubiemem__DaemonMessage *message)
{
    return message->invalidate != NULL || message->waiting != NULL ||
           message->limits_changed != NULL;
}

/* In order; but of what is said of one waiting call only the last counts, if nobody
 * has come to hear it. */
static void push_notice(struct channel *channel, struct incoming *incoming)
{
    const Cubiemem__Waiting *waiting = incoming->message->waiting;
    struct incoming **link = &channel->notices.first;
    while (waiting != NULL && *link != NULL) {
        const Cubiemem__Waiting *older = (*link)->message->waiting;
        if (older != NULL && older->request_id == waiting->request_id) {
            incoming->next = (*link)->next;
            incoming_destroy(*link);
            *link = incoming;
            if (incoming->next == NULL) {
                channel->notices.last = &incoming->next;
            }
            return;
        }
        link = &(*link)->next;
    }
    inbox_push(&channel->notices, incoming);
}

/* Hand a whole message to whom it belongs, lock held. */
static void deliver(struct channel *channel, struct incoming *incoming)
{
    uint64_t id = incoming->message->id;
    struct pending *pending = channel->waiting;
    while (pending != NULL && pending->id != id) {
        pending = pending->next;
    }
    if (id != 0 && pending != NULL && !pending->queued) {
        pending->queued = true;
        if (!pending->ordered) {
            pending->answer = incoming;
            if (!pending->leads) {
                pthread_cond_signal(&pending->cond);
            }
            return;
        }
        incoming->pending = pending;
        inbox_push(&channel->inbox, incoming);
    } else if (id == 0 && is_notice(incoming->message)) {
        push_notice(channel, incoming);
    } else if (id == 0 || incoming->message->response != NULL) {
        inbox_push(&channel->inbox, incoming); /* also an answer that came too late */
    } else {
        incoming_destroy(incoming);
        return;
    }
    /* The usual case: the reader's own answer, which needs nobody else. */
    if (incoming->pending == NULL || !incoming->pending->leads) {
        channel_rouse(channel);
    }
}

static void die_unlocked(struct channel *channel, const char *reason)
{
    pthread_mutex_lock(&channel->lock);
    channel_die(channel, reason);
    pthread_mutex_unlock(&channel->lock);
}

static void take_packet(struct channel *channel, size_t size, struct fdset *fds, bool fds_lost)
{
    uint64_t packet = 0;
    struct incoming *incoming = NULL;
    enum assembly_outcome outcome = assembly_add(&channel->assembly, channel->buffer, size, fds,
                                                 fds_lost, &packet, &incoming);
    if (outcome == ASSEMBLY_BROKEN) {
        die_unlocked(channel, "the daemon sent something that is not of the protocol");
        return;
    }
    if (outcome == ASSEMBLY_MEMORY) {
        die_unlocked(channel, "no host memory to receive the daemon's message");
        return;
    }
    if (packet != 0 || fds_lost) {
        acknowledge(channel, packet, fds_lost);
    }
    if (outcome == ASSEMBLY_WHOLE) {
        pthread_mutex_lock(&channel->lock);
        deliver(channel, incoming);
        pthread_mutex_unlock(&channel->lock);
    }
}

/* False when nothing came until the deadline. */
static bool wait_readable(struct channel *channel, int64_t deadline)
{
    struct pollfd poll_fd = {.fd = channel->socket, .events = POLLIN};
    for (;;) {
        struct timespec time = clock_timespec(clock_left(deadline));
        int n = ppoll(&poll_fd, 1, &time, NULL);
        if (n > 0) {
            return true;
        }
        if (n == 0 || errno != EINTR) {
            return false;
        }
    }
}

bool channel_read(struct channel *channel, int64_t deadline)
{
    struct fdset fds;
    struct packet_info info;
    if (!wait_readable(channel, deadline)) {
        return false;
    }
    fdset_init(&fds);
    switch (packet_receive(channel->socket, channel->buffer, &fds, MSG_DONTWAIT, &info)) {
    case PACKET_OK:
        take_packet(channel, info.size, &fds, info.fds_lost);
        return true;
    case PACKET_AGAIN:
        return false;
    case PACKET_END:
        die_unlocked(channel, "the daemon closed the connection");
        return true;
    case PACKET_TOO_LONG:
        die_unlocked(channel, "the daemon sent a packet that is too long");
        return true;
    case PACKET_ERROR:
    default:
        die_unlocked(channel, "the connection to the daemon failed");
        return true;
    }
}

/* -------------------------------------- background and dispatch */

/* The handler's turn to call the program's functions, lock held. */
static void notify(struct channel *channel, struct incoming *notice)
{
    pthread_mutex_unlock(&channel->lock);
    in_hook = true;
    channel->on_event(notice, channel->event_arg);
    in_hook = false;
    pthread_mutex_lock(&channel->lock);
}

/* Act on everything that is not a call's answer, lock held. */
static void drain(struct channel *channel)
{
    while (channel->inbox.first != NULL && channel->inbox.first->pending == NULL &&
           !channel->acting && (!channel->manual || channel_is_ready(channel))) {
        channel_act(channel, inbox_pop(&channel->inbox));
    }
    while (channel->notices.first != NULL && !channel->stopping) {
        notify(channel, inbox_pop(&channel->notices));
    }
    if (channel->dead && !channel->told_dead && !channel->stopping) {
        channel->told_dead = true;
        notify(channel, NULL);
    }
}

/* Read what is there without waiting, if nobody else reads; lock held. */
static void read_all(struct channel *channel)
{
    if (channel->reading || channel->dead) {
        return;
    }
    channel_take_reading(channel);
    pthread_mutex_unlock(&channel->lock);
    while (channel_read(channel, 0)) {
        pthread_mutex_lock(&channel->lock);
        bool dead = channel->dead;
        pthread_mutex_unlock(&channel->lock);
        if (dead) {
            break;
        }
    }
    pthread_mutex_lock(&channel->lock);
    channel_pass_reading(channel);
}

static void clear_wakeup(struct channel *channel)
{
    uint64_t count;
    ssize_t n = read(channel->wakeup, &count, sizeof count);
    (void)n; /* empty is fine */
}

/* Milliseconds that the background thread may sleep, lock held. */
static int sleep_ms(const struct channel *channel)
{
    return channel->watching ? (int)((clock_left(channel->watch_end_ns) + 999999) / 1000000) : -1;
}

/* The watch is over: listen again, unless a call reads just now, lock held. */
static void end_watch(struct channel *channel)
{
    if (channel->watching && clock_left(channel->watch_end_ns) == 0) {
        channel->watching = false;
        if (!channel->reading && !channel->dead) {
            listen_to_socket(channel, true);
        }
    }
}

static void *background(void *arg)
{
    struct channel *channel = arg;
    struct epoll_event events[2];
    pthread_mutex_lock(&channel->lock);
    while (!channel->stopping) {
        int timeout = sleep_ms(channel);
        pthread_mutex_unlock(&channel->lock);
        int n = epoll_wait(channel->epoll, events, 2, timeout);
        pthread_mutex_lock(&channel->lock);
        end_watch(channel);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == channel->wakeup) {
                clear_wakeup(channel);
            } else if (!channel->reading) {
                channel->listening = false; /* one-shot: it is off now */
                read_all(channel);
            }
        }
        drain(channel);
    }
    pthread_mutex_unlock(&channel->lock);
    return NULL;
}

int channel_start(struct channel *channel)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&channel->thread, NULL, background, channel);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0) {
        return failure_system(CUBIEMEM_SYSTEM, error, "cannot start the library's thread");
    }
    pthread_setname_np(channel->thread, "cubiemem");
    channel->has_thread = true;
    return CUBIEMEM_OK;
}

int channel_dispatch(struct channel *channel, int64_t deadline)
{
    struct pollfd poll_fd = {.fd = channel->epoll, .events = POLLIN};
    struct timespec time = clock_timespec(clock_left(deadline));
    if (ppoll(&poll_fd, 1, &time, NULL) < 0 && errno != EINTR) {
        return failure_system(CUBIEMEM_SYSTEM, errno, "cannot wait for events");
    }
    pthread_mutex_lock(&channel->lock);
    clear_wakeup(channel);
    read_all(channel);
    drain(channel);
    bool dead = channel->dead;
    pthread_mutex_unlock(&channel->lock);
    return dead ? failure_set(CUBIEMEM_DISCONNECTED, "%s", channel->dead_reason) : CUBIEMEM_OK;
}
