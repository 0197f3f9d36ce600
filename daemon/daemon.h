/*
 * daemon - what all parts of the running daemon share
 *
 * One struct daemon a process: the loop, the device and its two threads, the
 * books, the pool, the policy, and who is connected. Everything in it belongs to
 * the loop's thread.
 */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <uv.h>

#include "books.h"
#include "device.h"
#include "grant_thread.h"
#include "policy.h"
#include "pool.h"
#include "reclaim_thread.h"
#include "user.h"
#include "waitq.h"

struct block;
struct connection;
struct eviction;
struct parked;
struct session;
struct transaction;

struct daemon {
    uv_loop_t loop;
    struct device device;
    char run_dir[256]; /* of the socket; handed to clients of the simulated device */
    struct grant_thread *grant;
    struct reclaim_thread *reclaim;
    struct books books;
    struct pool *pool;
    struct policy *policy;
    enum policy_mode mode;
    uint64_t limits_revision;
    gid_t admin_group;       /* -1: none */
    int64_t evict_timeout_ns;

    struct user_limits user_limits;
    struct user *users; /* who has a connection */
    uv_timer_t pace_timer; /* runs while somebody is not read from */
    struct connection *connections;
    struct connection *closing; /* to be ended by the loop */
    struct session *sessions;         /* in order of their ids */
    struct transaction *transactions; /* under way, oldest first */
    struct parked *parked;            /* messages that wait for a transaction, oldest first */
    uint64_t park_turn;
    uint64_t last_session_id, last_segment_id, last_block_id, last_generation;
    uint64_t last_grant, last_yield_id;
    struct waitq waitq;        /* who waits for memory, first come first served */
    uint64_t last_transaction; /* number; in the order in which they came */
    bool waiters_due;          /* the loop is to look at them */
    uv_timer_t wait_timer;     /* runs while somebody waits, to the next time-out */

    struct block *gone; /* blocks that the policy let go in the operation under way */

    uv_idle_t later;  /* runs once when something is to be done from the loop itself */
    uv_poll_t listen_poll;
    uv_timer_t accept_timer; /* runs while descriptors are short */
    uv_timer_cb accept_again;
    uv_signal_t sigterm, sigint;
    struct eviction *evictions; /* asked, not answered */
    uint64_t last_evict_id;
    uv_timer_t evict_timer; /* runs while somebody waits for an answer */
    uv_timer_t drain_timer; /* runs while something drains, or somebody waits */
    bool drain_reading;     /* a reading for it is under way */
    bool shutting_down;
    bool draining;        /* nobody new is let in */
    bool device_degraded; /* the last device operation failed */

    /* Who may connect when scrubbing on free is off: the first client's uid. */
    bool single_user;
    bool has_single_uid;
    uid_t single_uid;
};

/* Ends what is closing and takes up what is parked, soon, from the loop. */
void daemon_later(struct daemon *daemon);
/* The last client is gone and the loop may stop. */
void daemon_ended(struct daemon *daemon);
/* Clients are told, everything ends, the loop runs out. */
void daemon_shut_down(struct daemon *daemon, const char *reason);

static inline int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
