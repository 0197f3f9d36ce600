/*
 * channel - the client's end of the connection: calls, answers, events
 *
 * A thread that waits for its answer reads the socket itself: a hand-over
 * between threads would double the round trip. At most one thread holds the
 * read role; what it reads for others it hands to them, and when it has its own
 * answer it passes the role on. While nobody waits, a background thread (or
 * cubiemem_dispatch) reads; a call takes the socket out of that thread's epoll
 * set, so that an answer wakes one thread and not two. Between calls in quick
 * succession it is left out, and that thread looks after 2 ms: two system calls
 * less on each round trip, and an event waits no longer than that.
 *
 * Events and the answers of ordered calls stand in one inbox, in the order in
 * which they came, and are acted on one after the other: whoever acts holds the
 * act role. So an answer to Allocate is never applied before an event that came
 * before it. Notices stand in a queue of their own: they call the program's own
 * functions, which run in the background thread (or in dispatch) alone. They are
 * invalidations and what an event function hears.
 *
 * The channel knows nothing of instances and memory: events go to a handler.
 */
#ifndef CLIENT_CHANNEL_H
#define CLIENT_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cubiemem.pb-c.h"
#include "incoming.h"
#include "protocol_limits.h"

struct pending;

/* Acts on an event (or on the late answer of an ordered call) and frees it; NULL:
 * the daemon is gone, told once. Called without locks. */
typedef void channel_event_fn(struct incoming *event, void *arg);
/* Could it be acted on now without waiting for the program's own work? A thread of the
 * program may be the one that has begun it. Called without locks. */
typedef bool channel_ready_fn(const struct incoming *event, void *arg);

struct inbox {
    struct incoming *first, **last;
};

struct channel {
    int socket; /* non-blocking; -1 when closed */
    int epoll;  /* socket and wakeup; what cubiemem_get_fd gives */
    int wakeup; /* eventfd: the inbox or `stopping` needs the background thread */
    bool manual; /* no background thread */
    channel_event_fn *on_event;
    channel_ready_fn *is_ready;
    void *event_arg;
    atomic_bool postponed; /* an event waits for work to end: channel_work_ended() */

    pthread_mutex_t send_lock; /* keeps the parts of a message together */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t room;  /* fewer than the allowed number of calls wait */
    uint64_t next_id;
    struct pending *waiting; /* calls that wait for their answer */
    unsigned n_waiting;
    struct inbox inbox;
    struct inbox notices;
    bool reading; /* somebody holds the read role */
    bool acting;  /* somebody holds the act role */
    bool listening; /* the background thread's epoll set has the socket */
    bool watching;  /* instead: it will look at the socket at watch_end_ns */
    int64_t watch_end_ns;
    int64_t last_read_ns; /* when the last call gave the read role up */
    bool stopping;
    bool dead;            /* the daemon is gone, or broke the protocol */
    bool told_dead;       /* and the handler has heard of it */
    char dead_reason[256];
    bool has_thread;
    pthread_t thread;

    struct assembly assembly;          /* the read role's */
    uint8_t buffer[PACKET_MAX_SIZE];   /* the read role's */
};

/* Takes the socket in any case. Returns a status. */
int channel_init(struct channel *channel, int socket, bool manual, channel_event_fn *on_event,
                 channel_ready_fn *is_ready, void *event_arg);
/* Starts the background thread (signals blocked); not for a manual channel. */
int channel_start(struct channel *channel);
/* Ends the background thread; calls still work. */
void channel_stop(struct channel *channel);
/* Is the client being closed, so that the background thread may wait no longer? */
bool channel_is_closing(struct channel *channel);
/* Stops, and closes everything; queued events are dropped. */
void channel_finish(struct channel *channel);
/* In a forked child: closes the descriptors and touches nothing else. */
void channel_abandon(struct channel *channel);

/*
 * Send the parts (ids, part numbers and `more` are filled in here) and wait for
 * the answer, whose result the caller looks at.
 *
 * Return: CUBIEMEM_OK; LIMIT (a part is longer than a packet); TIMEOUT;
 * DISCONNECTED; HOST_MEMORY. A late answer is dropped.
 */
int channel_call(struct channel *channel, Cubiemem__ClientMessage *parts, size_t n_parts,
                 int64_t deadline, struct incoming **answer_p);

/*
 * The same for a call whose answer changes what the client holds: with
 * CUBIEMEM_OK the caller holds the act role and gives it back with
 * channel_acted(). While it waits it acts on events itself. After TIMEOUT the
 * answer, when it comes, goes to the event handler.
 */
int channel_call_ordered(struct channel *channel, Cubiemem__ClientMessage *parts, size_t n_parts,
                         int64_t deadline, struct incoming **answer_p);
void channel_acted(struct channel *channel);
/* What waited for it may be acted on. */
void channel_work_ended(struct channel *channel);

/* Send without waiting for an answer (id 0). */
int channel_send(struct channel *channel, Cubiemem__ClientMessage *parts, size_t n_parts,
                 int64_t deadline);

/* Read and act until there is nothing left, waiting for something until the
 * deadline; for manual channels. */
int channel_dispatch(struct channel *channel, int64_t deadline);

/* Is the calling thread in a function of the program's, called by a notice? Calls that wait are refused then. */
bool channel_in_hook(void);

#endif
