/*
 * session - one connected process: its instances and the memory it holds
 *
 * A session begins with Hello and ends at the first of hang-up, protocol error,
 * death of its process. What it held then goes through the driver (DESIGN 3.3);
 * what it gives back while alive goes to the pool.
 *
 * Memory is held in blocks: a contiguous range in the client, stitched of
 * segments (or one legacy allocation). A block belongs to one instance and
 * stands behind one block of the policy. Segments of a block that was replaced
 * are owed until the client has unmapped them and said so.
 */
#ifndef DAEMON_SESSION_H
#define DAEMON_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control_page.h"
#include "cubiemem.h"
#include "daemon.h"
#include "hash.h"
#include "identity.h"
#include "protocol_limits.h"
#include "policy.h"
#include "segment.h"

struct connection;
struct legacy_helper;
struct instance;
struct request_set;

struct block {
    uint64_t id; /* on the wire */
    uint64_t size;
    uint64_t generation;
    enum cubiemem_handle_kind kind;
    struct segment *segments; /* list, in the order of the range; legacy: one */
    struct instance *instance;
    bool kept;           /* a transaction keeps it whole for its successor */
    struct block *next;  /* in a list of blocks that are going */
};

struct instance {
    uint64_t id;
    struct session *session;
    struct policy_instance *policy;
    uint32_t owner_slot; /* control page reference, shared by the owner's instances */
    uint32_t warnings;   /* of its last grant or change of quota; enum cubiemem_warning bits */
    size_t n_parked;      /* messages that wait for an Allocate of its group */
    uint64_t parked_turn; /* the last turn in which one of them stayed parked */
    struct request_set *gathered; /* while a message is taken apart */
    UT_hash_handle hh;    /* session.instances, by id */
};

struct session {
    uint64_t id;
    struct daemon *daemon;
    struct connection *connection;
    struct identity identity;
    char name[CUBIEMEM_MAX_LABEL + 1];
    enum cubiemem_handle_kind handle_kind;
    bool tool;        /* a viewer: no instances */
    bool contextless; /* registered, and its context does not exist yet */
    uint64_t process_key;
    unsigned char token[TOKEN_SIZE];

    struct instance *instances; /* hash */
    uint64_t last_instance_id;
    struct segment *owed; /* list: replaced, to be given back */
    int64_t owed_since_ns;
    uint64_t held_size; /* bytes of the segments in its blocks and of those owed */
    uint64_t pinned_size;
    struct control_page *pages;
    uint32_t n_pages;
    struct legacy_helper *legacy;

    struct user *user;
    size_t n_under_way; /* requests without an answer yet; session_request_*() */
    size_t n_parked, parked_size; /* messages that wait for an Allocate, and their bytes */
    struct session *prev, *next; /* daemon.sessions */
};

/* What Hello said. */
struct session_hello {
    const char *name;
    enum cubiemem_handle_kind handle_kind;
    bool tool;
};

/* Takes the identity's pidfd on success. control_fd_p: the first control page's
 * descriptor, the caller's. Return: OK, HOST_MEMORY, NO_FDS, SYSTEM. */
int session_create(struct daemon *daemon, struct connection *connection,
                   struct identity *identity, const struct session_hello *hello,
                   struct session **session_p, int *control_fd_p);
/* Ends it: transactions undone, instances unregistered, memory to the driver. */
void session_end(struct session *session);

/* A request has come; it was answered. */
void session_request_begun(struct session *session);
void session_request_ended(struct session *session);

/* Instances. The statuses of policy.h; LIMIT. */
int session_register(struct session *session, const struct policy_registration *registration,
                     struct instance **instance_p, uint32_t *warnings_p);
void session_unregister(struct session *session, struct instance *instance);
struct instance *session_instance(struct session *session, uint64_t id);

/* Arrays back, by a live client: memory to the pool. */
/* What a later grant placed stays: the client did not know of it when it released. */
void session_release(struct instance *instance, const char *label /* NULL: all */,
                     uint64_t newest_grant);

/* Everything of it back, by its live client's answer to Invalidate. */
void session_evict(struct instance *instance);

/* Segments of replaced blocks back, by a live client; legacy blocks by the ids
 * of the blocks. Ids that are not owed are ignored: false, and the session
 * should be ended. */
bool session_give_back(struct session *session, const uint64_t *ids, size_t n,
                       const uint64_t *block_ids, size_t n_blocks);

/* A lent legacy allocation that no client has open: its helper frees it. Takes
 * the segment, which the session does not hold any more. */
void session_free_legacy(struct session *session, struct segment *segment);
/* The session's helper process, started at the first call. HANDLE_KIND, ... */
int session_legacy_helper(struct session *session, struct legacy_helper **helper_p);

/* One more control page. Return: OK, LIMIT, HOST_MEMORY, NO_FDS, SYSTEM. */
int session_add_page(struct session *session, uint32_t *number_p, int *fd_p);
void session_context_ready(struct session *session);

/* Blocks. */
struct block *block_create(struct instance *instance, uint64_t size);
/* The segment is lent to the block's session from now on. */
void block_add_segment(struct block *block, struct segment *segment);
/* All segments of a list to the pool (live holder), or to the driver. */
void segments_to_pool(struct session *session, struct segment *list);
void segments_to_driver(struct session *session, struct segment *list);
/* The block is no more; its segments go as said. */
enum block_end { BLOCK_TO_POOL, BLOCK_TO_DRIVER, BLOCK_OWED };
void block_end(struct block *block, enum block_end how);

/* The policy's hook: collects the blocks that an operation lets go. */
void session_block_gone(struct policy_instance *instance, struct policy_block *gone, void *daemon);

/* Booked as draining already: to the thread that gives them to the driver. */
void let_go(struct daemon *daemon, struct segment *list);
/* Cached segments to the driver; they were taken out of the pool. */
void cached_to_driver(struct daemon *daemon, struct segment *list);
/* If something failed with NO_FDS: cached segments give up theirs. */
void descriptors_short(struct daemon *daemon, int status);

/* The device's readings while something drains, or somebody waits. */
void drain_watch(struct daemon *daemon);

#endif
