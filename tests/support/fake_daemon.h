/*
 * fake_daemon - a scripted daemon in a thread, for tests of the library
 *
 * Speaks the protocol over a real socket and does what a test tells it to, also
 * what no good daemon would do. It keeps no books: a block per device array, as
 * large as the array, made by the simulated driver where a test loads one.
 */
#ifndef FAKE_DAEMON_H
#define FAKE_DAEMON_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "control.h"
#include "cubiemem.pb-c.h"
#include "driver.h"

#define FAKE_BLOCKS_MAX 256
/* For an answer that is sure to come: what no loaded machine takes, ns. */
#define PATIENCE_NS 20000000000

struct fake_daemon;

/* A test's own answer to a message: true if it has dealt with it. Runs in the
 * daemon's thread. */
typedef bool fake_handler_fn(struct fake_daemon *fake, const Cubiemem__ClientMessage *message);

struct fake_segment {
    uint64_t id, size, block;
    char label[64];
    uint64_t instance;
    CUmemGenericAllocationHandle handle;
    bool live; /* the client holds it */
};

struct fake_daemon {
    char directory[64], path[96];
    int listener, stop;
    _Atomic int socket;
    pthread_t thread;
    uint8_t *packet; /* the thread's; a forked child has to find it, too, for valgrind */
    fake_handler_fn *_Atomic handler;
    void *arg;

    struct driver *driver; /* NULL: no memory */
    char uuid[UUID_TEXT_SIZE];
    _Atomic uint32_t major;
    union control_slot *page;
    uint32_t n_owners;
    uint64_t last_id, last_packet, last_grant;
    struct fake_segment segments[FAKE_BLOCKS_MAX];
    size_t n_segments;
    uint8_t joined[1 << 20];
    size_t joined_size;

    /* What tests look at, once the daemon has come past what they look for: an answer
     * may arrive before its sender has closed and counted. A ping settles that. */
    _Atomic unsigned n_acks, n_lost, n_give_backs, n_given, n_releases, n_unregisters, n_busy,
        n_evicted, n_allocates, n_parts, n_contexts;
    atomic_bool lose_fds;         /* send grants without their descriptors, as after MSG_CTRUNC */
    _Atomic int refuse;        /* answer Allocate with this status */
    _Atomic int n_fake_parts;  /* parts of a Status answer */
};

/* Listens on its own socket and starts the thread; driver may be NULL. */
void fake_daemon_start(struct fake_daemon *fake, struct driver *driver, fake_handler_fn *handler,
                       void *arg);
void fake_daemon_stop(struct fake_daemon *fake);
/* Hang up on the client. */
void fake_daemon_hang_up(struct fake_daemon *fake);

void fake_daemon_send(struct fake_daemon *fake, Cubiemem__DaemonMessage *message, const int *fds,
                      size_t n_fds);
/* An answer with nothing but a result. */
void fake_daemon_answer(struct fake_daemon *fake, uint64_t id, int status, const char *text);
/* Ask for the arrays of one instance. */
void fake_daemon_invalidate(struct fake_daemon *fake, uint64_t instance);

#endif
