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

struct block;
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

    struct session *sessions;         /* in order of their ids */
    struct transaction *transactions; /* under way, oldest first */
    struct parked *parked;            /* messages that wait for a transaction, oldest first */
    uint64_t last_session_id, last_segment_id, last_block_id, last_generation;

    struct block *gone; /* blocks that the policy let go in the operation under way */

    uv_timer_t drain_timer; /* runs while something drains */
    bool drain_reading;     /* a reading for it is under way */
    bool shutting_down;
    bool device_degraded; /* the last device operation failed */

    /* Who may connect when scrubbing on free is off: the first client's uid. */
    bool single_user;
    bool has_single_uid;
    uid_t single_uid;
};

static inline int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
