/*
 * incoming - one whole message from the daemon, with its descriptors
 *
 * Parts are collected as bytes and descriptors and decoded once, when the last
 * one is there. Sizes and memory are capped; a message that breaks a cap breaks
 * the connection.
 */
#ifndef CLIENT_INCOMING_H
#define CLIENT_INCOMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "cubiemem.pb-c.h"
#include "fdset.h"

struct pending;

struct incoming {
    Cubiemem__DaemonMessage *message; /* in the arena */
    struct arena arena;
    int *fds; /* the message's descriptors in order, -1 where stolen */
    size_t n_fds;
    size_t next_fd;
    bool fds_lost;           /* not all arrived */
    struct pending *pending; /* an ordered answer: who waits for it; else NULL */
    struct incoming *next;   /* in an inbox */
};

/* The parts of one message, as far as they have come. */
struct assembly {
    uint8_t *bytes;
    size_t size, capacity;
    int *fds;
    size_t n_fds;
    bool fds_lost;
    bool open; /* a part with `more` came */
    uint64_t id;
    uint32_t next_part;
};

enum assembly_outcome {
    ASSEMBLY_MORE,   /* taken; the message is not whole yet */
    ASSEMBLY_WHOLE,  /* *incoming_p is the message */
    ASSEMBLY_BROKEN, /* not of the protocol, or above a cap */
    ASSEMBLY_MEMORY, /* host memory is short */
};

/*
 * Take one packet and its descriptors (the set is emptied in any case).
 * *packet_p gets the number to be acknowledged, 0 if there is none, whenever
 * the packet itself could be decoded (MORE and WHOLE).
 */
enum assembly_outcome assembly_add(struct assembly *assembly, const uint8_t *data, size_t size,
                                   struct fdset *fds, bool fds_lost, uint64_t *packet_p,
                                   struct incoming **incoming_p);
void assembly_finish(struct assembly *assembly);

/* The next descriptor, now the caller's; -1 if none is left. */
int incoming_steal_fd(struct incoming *incoming);
/* Frees the message and closes what was not stolen; NULL is fine. Returns NULL. */
struct incoming *incoming_destroy(struct incoming *incoming);

#endif
