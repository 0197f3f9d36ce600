/*
 * channel - the client's end of the connection: sending, calls, roles
 *
 * See channel.h for the two roles. Reading packets and the background thread
 * are in channel_read.c. Lock order: none of the two locks is held while the
 * other is taken, and none while an event is acted on.
 */
#include "channel.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel_read.h"
#include "clock.h"
#include "failure.h"
#include "packet.h"

/* ---------------------------------------------------------- life */

static void inbox_init(struct inbox *inbox)
{
    inbox->first = NULL;
    inbox->last = &inbox->first;
}

static void inbox_finish(struct inbox *inbox)
{
    while (inbox->first != NULL) {
        struct incoming *next = inbox->first->next;
        incoming_destroy(inbox->first);
        inbox->first = next;
    }
    inbox_init(inbox);
}

int channel_init(struct channel *channel, int socket, bool manual, channel_event_fn *on_event,
                 channel_ready_fn *is_ready, void *event_arg)
{
    *channel = (struct channel){
        .socket = socket,
        .manual = manual,
        .on_event = on_event,
        .is_ready = is_ready,
        .event_arg = event_arg,
        .listening = true,
    };
    inbox_init(&channel->inbox);
    inbox_init(&channel->notices);
    pthread_mutex_init(&channel->send_lock, NULL);
    pthread_mutex_init(&channel->lock, NULL);
    clock_cond_init(&channel->room);
    channel->epoll = epoll_create1(EPOLL_CLOEXEC);
    channel->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    /* A manual channel's socket always listens: get_fd must show what is there. */
    struct epoll_event on_socket = {.events = manual ? EPOLLIN : EPOLLIN | EPOLLONESHOT,
                                    .data.fd = socket};
    struct epoll_event on_wakeup = {.events = EPOLLIN, .data.fd = channel->wakeup};
    if (channel->epoll < 0 || channel->wakeup < 0 ||
        epoll_ctl(channel->epoll, EPOLL_CTL_ADD, socket, &on_socket) != 0 ||
        epoll_ctl(channel->epoll, EPOLL_CTL_ADD, channel->wakeup, &on_wakeup) != 0) {
        int error = errno;
        channel_finish(channel);
        return failure_system(error == EMFILE || error == ENFILE ? CUBIEMEM_NO_FDS
                                                                 : CUBIEMEM_SYSTEM,
                              error, "cannot watch the daemon's socket");
    }
    return CUBIEMEM_OK;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

void channel_abandon(struct channel *channel)
{
    close_fd(&channel->socket);
    close_fd(&channel->epoll);
    close_fd(&channel->wakeup);
}

void channel_stop(struct channel *channel)
{
    if (channel->has_thread) {
        pthread_mutex_lock(&channel->lock);
        channel->stopping = true;
        channel_wake(channel);
        pthread_mutex_unlock(&channel->lock);
        pthread_join(channel->thread, NULL);
        channel->has_thread = false;
    }
}

bool channel_is_closing(struct channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    bool closing = channel->stopping;
    pthread_mutex_unlock(&channel->lock);
    return closing;
}

void channel_finish(struct channel *channel)
{
    channel_stop(channel);
    channel_abandon(channel);
    inbox_finish(&channel->inbox);
    inbox_finish(&channel->notices);
    assembly_finish(&channel->assembly);
    pthread_cond_destroy(&channel->room);
    pthread_mutex_destroy(&channel->lock);
    pthread_mutex_destroy(&channel->send_lock);
}

/* ------------------------------------------------------- sending */

static int dead_failure(const struct channel *channel)
{
    return failure_set(CUBIEMEM_DISCONNECTED, "%s", channel->dead_reason);
}

/* The socket is full: wait for room. */
static int wait_writable(const struct channel *channel, int64_t deadline)
{
    struct pollfd poll_fd = {.fd = channel->socket, .events = POLLOUT};
    int64_t left = clock_left(deadline);
    /* ETOOMANYREFS also reads as 'again', with a writable socket: do not spin. */
    clock_sleep(left < 50000 ? left : 50000);
    struct timespec time = clock_timespec(clock_left(deadline));
    if (ppoll(&poll_fd, 1, &time, NULL) < 0 && errno != EINTR) {
        return failure_system(CUBIEMEM_SYSTEM, errno, "cannot wait for the daemon's socket");
    }
    if (clock_left(deadline) == 0) {
        return failure_set(CUBIEMEM_TIMEOUT, "the daemon does not read its socket");
    }
    return CUBIEMEM_OK;
}

static int send_packet(struct channel *channel, const uint8_t *data, size_t size,
                       int64_t deadline)
{
    for (;;) {
        switch (packet_send(channel->socket, data, size, NULL, MSG_DONTWAIT)) {
        case PACKET_OK:
            return CUBIEMEM_OK;
        case PACKET_AGAIN: {
            int status = wait_writable(channel, deadline);
            if (status != CUBIEMEM_OK) {
                return status;
            }
            break;
        }
        case PACKET_TOO_LONG:
            return failure_set(CUBIEMEM_LIMIT, "a message of %zu bytes is longer than a packet",
                               size);
        case PACKET_END:
            return failure_set(CUBIEMEM_DISCONNECTED, "the daemon closed the connection");
        case PACKET_ERROR:
        default:
            return failure_system(CUBIEMEM_SYSTEM, errno, "cannot send to the daemon");
        }
    }
}

/* At least the encoded size of an Allocate of few short labels, which is what
 * programs wait for; SIZE_MAX of any other message. Cheaper than to measure. */
static size_t size_bound(const Cubiemem__ClientMessage *message)
{
    size_t bound = 64;
    for (size_t i = 0; message->allocate != NULL && i < message->allocate->n_requests; i++) {
        const Cubiemem__ArrayRequests *requests = message->allocate->requests[i];
        for (size_t a = 0; a < requests->n_arrays && bound < PACKET_MAX_SIZE; a++) {
            bound += strlen(requests->arrays[a]->label) + 10 * requests->arrays[a]->n_shape + 96;
        }
        bound += 32;
    }
    return message->allocate != NULL ? bound : SIZE_MAX;
}

static int send_part(struct channel *channel, const Cubiemem__ClientMessage *message,
                     int64_t deadline)
{
    uint8_t small[2048];
    if (size_bound(message) <= sizeof small) {
        size_t packed = cubiemem__client_message__pack(message, small);
        return send_packet(channel, small, packed, deadline);
    }
    size_t size = cubiemem__client_message__get_packed_size(message);
    if (size > PACKET_MAX_SIZE) {
        return failure_set(CUBIEMEM_LIMIT, "a message of %zu bytes is longer than a packet", size);
    }
    uint8_t *data = size <= sizeof small ? small : malloc(size);
    if (data == NULL) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to encode a message");
    }
    cubiemem__client_message__pack(message, data);
    int status = send_packet(channel, data, size, deadline);
    if (data != small) {
        free(data);
    }
    return status;
}

static int send_parts(struct channel *channel, Cubiemem__ClientMessage *parts, size_t n_parts,
                      uint64_t id, int64_t deadline)
{
    int status = CUBIEMEM_OK;
    pthread_mutex_lock(&channel->send_lock);
    for (size_t i = 0; i < n_parts && status == CUBIEMEM_OK; i++) {
        parts[i].has_id = id != 0;
        parts[i].id = id;
        parts[i].has_part = parts[i].has_more = n_parts > 1;
        parts[i].part = (uint32_t)i;
        parts[i].more = i + 1 < n_parts;
        status = send_part(channel, &parts[i], deadline);
        if (status != CUBIEMEM_OK && i > 0) {
            /* Half a message is on its way: nothing sensible can follow it. */
            pthread_mutex_unlock(&channel->send_lock);
            pthread_mutex_lock(&channel->lock);
            channel_die(channel, "a message could not be sent whole");
            pthread_mutex_unlock(&channel->lock);
            return status;
        }
    }
    pthread_mutex_unlock(&channel->send_lock);
    return status;
}

int channel_send(struct channel *channel, Cubiemem__ClientMessage *parts, size_t n_parts,
                 int64_t deadline)
{
    pthread_mutex_lock(&channel->lock);
    bool dead = channel->dead;
    pthread_mutex_unlock(&channel->lock);
    return dead ? dead_failure(channel) : send_parts(channel, parts, n_parts, 0, deadline);
}

/* --------------------------------------------------------- calls */

/* Wait, with the channel's lock held, until fewer than the allowed number of
 * calls are under way. */
static int wait_for_room(struct channel *channel, int64_t deadline)
{
    while (!channel->dead && channel->n_waiting >= LIMIT_REQUESTS_UNDER_WAY) {
        struct timespec end = clock_timespec(deadline);
        if (pthread_cond_timedwait(&channel->room, &channel->lock, &end) == ETIMEDOUT) {
            return failure_set(CUBIEMEM_TIMEOUT, "%u requests wait for their answer already",
                               channel->n_waiting);
        }
    }
    return channel->dead ? dead_failure(channel) : CUBIEMEM_OK;
}

static void pending_link(struct channel *channel, struct pending *pending)
{
    pending->id = ++channel->next_id;
    pending->next = channel->waiting;
    channel->waiting = pending;
    channel->n_waiting++;
}

static void pending_unlink(struct channel *channel, struct pending *pending)
{
    struct pending **link = &channel->waiting;
    while (*link != pending) {
        link = &(*link)->next;
    }
    *link = pending->next;
    channel->n_waiting--;
    /* An ordered answer that nobody waits for any more is an event. */
    for (struct incoming *item = channel->inbox.first; item != NULL; item = item->next) {
        if (item->pending == pending) {
            item->pending = NULL;
        }
    }
    pthread_cond_signal(&channel->room);
}

/*
 * An ordered call's look at the inbox, lock held: act on the events that came
 * before its answer. True when the answer is taken, and the act role with it.
 */
static bool take_in_order(struct channel *channel, struct pending *pending)
{
    while (!channel->acting && channel->inbox.first != NULL) {
        struct incoming *head = channel->inbox.first;
        if (head->pending == pending) {
            pending->answer = inbox_pop(&channel->inbox);
            channel->acting = true;
            return true;
        }
        if (head->pending != NULL) {
            return false; /* another call's turn; it has been woken */
        }
        if (!channel_is_ready(channel)) {
            return false; /* the library's thread waits for it, or the next dispatch looks */
        }
        if (pending->leads) {
            channel_pass_reading(channel);
            pending->leads = false;
        }
        channel_act(channel, inbox_pop(&channel->inbox));
    }
    return false;
}

/* Wait for the answer, lock held. */
static int await(struct channel *channel, struct pending *pending, int64_t deadline)
{
    for (;;) {
        if (pending->ordered ? take_in_order(channel, pending) : pending->answer != NULL) {
            return CUBIEMEM_OK;
        }
        if (channel->dead && !pending->queued) {
            return dead_failure(channel);
        }
        if (clock_left(deadline) == 0) {
            return failure_set(CUBIEMEM_TIMEOUT, "the daemon did not answer in time");
        }
        if (pending->leads && pending->queued) {
            channel_pass_reading(channel); /* its answer is there, behind an event */
            pending->leads = false;
        } else if (!channel->reading && !channel->dead && !pending->queued) {
            channel_take_reading(channel);
            pending->leads = true;
        }
        if (pending->leads) {
            pthread_mutex_unlock(&channel->lock);
            channel_read(channel, deadline);
            pthread_mutex_lock(&channel->lock);
        } else {
            struct timespec end = clock_timespec(deadline);
            pthread_cond_timedwait(&pending->cond, &channel->lock, &end);
        }
    }
}

static int call(struct channel *channel, Cubiemem__ClientMessage *parts, size_t n_parts,
                bool ordered, int64_t deadline, struct incoming **answer_p)
{
    struct pending pending = {.ordered = ordered};
    clock_cond_init(&pending.cond);
    pthread_mutex_lock(&channel->lock);
    int status = wait_for_room(channel, deadline);
    if (status != CUBIEMEM_OK) {
        goto out;
    }
    pending_link(channel, &pending);
    if (!channel->reading) {
        channel_take_reading(channel);
        pending.leads = true;
    }
    pthread_mutex_unlock(&channel->lock);
    status = send_parts(channel, parts, n_parts, pending.id, deadline);
    pthread_mutex_lock(&channel->lock);
    if (status == CUBIEMEM_OK) {
        status = await(channel, &pending, deadline);
    }
    pending_unlink(channel, &pending);
    if (pending.leads) {
        channel_pass_reading(channel);
    }
    channel_rouse(channel);
    if (status == CUBIEMEM_OK) {
        *answer_p = pending.answer;
    } else {
        incoming_destroy(pending.answer);
    }
out:
    pthread_mutex_unlock(&channel->lock);
    pthread_cond_destroy(&pending.cond);
    return status;
}

int channel_call(struct channel *channel, Cubiemem__ClientMessage *parts, size_t n_parts,
                 int64_t deadline, struct incoming **answer_p)
{
    return call(channel, parts, n_parts, false, deadline, answer_p);
}

int channel_call_ordered(struct channel *channel, Cubiemem__ClientMessage *parts, size_t n_parts,
                         int64_t deadline, struct incoming **answer_p)
{
    return call(channel, parts, n_parts, true, deadline, answer_p);
}

void channel_acted(struct channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    channel->acting = false;
    channel_rouse(channel);
    pthread_mutex_unlock(&channel->lock);
}

void channel_work_ended(struct channel *channel)
{
    if (atomic_load_explicit(&channel->postponed, memory_order_relaxed)) {
        pthread_mutex_lock(&channel->lock);
        atomic_store(&channel->postponed, false);
        channel_rouse(channel);
        pthread_mutex_unlock(&channel->lock);
    }
}
