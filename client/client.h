/*
 * client - one session with a daemon, and what it consists of
 *
 * The books (instances, owners, groups, blocks) are guarded by one lock. It is
 * never held while somebody waits for the daemon or for marked work: an event
 * must be able to take it at any time.
 */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "context.h"
#include "cubiemem.h"
#include "marks.h"
#include "pages.h"
#include "placement.h"
#include "request.h"

/* Instances of this process that share a stream and queue together. */
struct group {
    char *name;
    bool shared;
    bool committing;  /* an allocate is under way */
    CUstream stream;  /* of group_stream; NULL: not made yet */
    struct group *next; /* client::groups; groups live as long as the client */
};

struct cubiemem_instance {
    struct cubiemem_client *client;
    uint64_t id;
    char *name;
    struct owner *owner;
    struct group *group;
    cubiemem_invalidate_fn *invalidate;
    void *invalidate_arg;

    struct request *queued; /* kept here until an allocate; a shared group's are sent at once */
    struct placements held;
    uint64_t grant; /* the newest that was applied */
    struct block_view *blocks;
    unsigned n_cancels; /* calls of cubiemem_cancel() */
    struct cubiemem_response *response; /* of another's allocate, not taken yet */
    int response_status;                /* or why that grant could not be applied */
    atomic_bool bereft; /* what it held was taken, and the program was given nothing since */
    struct cubiemem_instance *next;     /* client::instances */
};

struct cubiemem_client {
    struct channel channel;
    struct pages pages;
    struct context context;
    atomic_bool forked; /* this is a child of the process that connected */
    bool tool;
    char *name;
    int handle_kind;
    int64_t timeout_ns;

    /* what HelloReply said */
    struct cubiemem_device_info device;
    char *run_dir;
    char *daemon_version;
    uint64_t id;

    pthread_mutex_t books;
    pthread_cond_t changed; /* an allocate or an eviction has ended */
    struct cubiemem_instance *instances;
    struct owner *owners;
    struct group *groups;
    cubiemem_event_fn *event_fn; /* or NULL */
    void *event_arg;

    struct cubiemem_client *next; /* of the process; see registry.h */
};

struct cubiemem_response {
    struct cubiemem_partition partition;
    uint64_t grant;
    struct placements arrays;
};

/* --------------------------------------------------------- entering */

enum client_call_kind {
    CLIENT_QUICK, /* waits for nothing */
    CLIENT_WAITS, /* not allowed in a hook */
};
/* What every public function asks first: OK, INVALID_REQUEST, FORKED, IN_CALLBACK. */
int client_check(const struct cubiemem_client *client, enum client_call_kind kind);
int instance_check(const struct cubiemem_instance *instance, enum client_call_kind kind);

/* One request and its answer, whose result was OK; free it with
 * incoming_destroy(). `what` begins the text of a failure. */
int client_ask(struct cubiemem_client *client, Cubiemem__ClientMessage *message,
               int64_t timeout_ns, const char *what, struct incoming **answer_p);
/* Without an answer. */
int client_tell(struct cubiemem_client *client, Cubiemem__ClientMessage *message);

/* ------------------------------------------------- finding (books) */

struct cubiemem_instance *client_instance(struct cubiemem_client *client, uint64_t id);
struct owner *client_owner(struct cubiemem_client *client, const char *name);
/* Made if there is none; NULL when host memory is short. */
struct group *client_group(struct cubiemem_client *client, const char *name, bool shared);

/* One more control page. */
int client_add_page(struct cubiemem_client *client);

/* Frees what the instance is, without telling the daemon or unmapping: by
 * unregister and close, which have done so. Books held. */
void client_free_instance(struct cubiemem_instance *instance);

/* The channel's events. */
void client_on_event(struct incoming *event, void *client);
bool client_event_is_ready(const struct incoming *event, void *client);

#endif
