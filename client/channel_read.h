/*
 * channel_read - the reading side of a channel
 *
 * Internal to the channel: the roles, the inbox, and the background thread.
 * Functions marked (locked) want channel->lock held.
 */
#ifndef CLIENT_CHANNEL_READ_H
#define CLIENT_CHANNEL_READ_H

#include "channel.h"

/* A call that waits for its answer; lives on the caller's stack. */
struct pending {
    uint64_t id;
    bool ordered; /* its answer goes through the inbox */
    bool queued;  /* the answer is there, or in the inbox */
    bool leads;   /* holds the read role */
    struct incoming *answer;
    pthread_cond_t cond;
    struct pending *next; /* channel::waiting */
};

struct incoming *inbox_pop(struct inbox *inbox); /* (locked) not empty */

/* (locked) Take the read role, which nobody has. */
void channel_take_reading(struct channel *channel);
/* (locked) Give it to a call that waits, else to the background thread. */
void channel_pass_reading(struct channel *channel);
/* Without lock, holding the read role: wait for one packet until the deadline
 * and hand it to whom it belongs. False when nothing came. */
bool channel_read(struct channel *channel, int64_t deadline);

/* (locked) Act on one event: the lock is open while it lasts. */
void channel_act(struct channel *channel, struct incoming *event);
/* (locked) May a thread of the program act on the first event, or would it wait for work
 * that it has perhaps begun itself? The lock is open while it is asked. */
bool channel_is_ready(struct channel *channel);
/* (locked) Wake whoever has to look at the inbox now. */
void channel_rouse(struct channel *channel);
/* (locked) The background thread, or get_fd's poller, has something to do. */
void channel_wake(struct channel *channel);
/* (locked) The connection is over: everybody who waits learns it. */
void channel_die(struct channel *channel, const char *reason);

#endif
