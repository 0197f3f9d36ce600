/*
 * player - a client in a process of its own that does what it is told
 *
 * A story of eviction or death needs clients that can be stopped, killed and started
 * again, and a test that says who does what next. The test tells a player one order
 * at a time over a socket and hears what came of it; a player keeps its instances by
 * number. Orders can be sent without waiting for the answer, for calls that block.
 */
#ifndef SUPPORT_PLAYER_H
#define SUPPORT_PLAYER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "harness.h"
#include "role.h"

#define PLAYER_INSTANCES 8

enum player_do {
    PLAYER_REGISTER, /* instance, text: the owner, group, shared, hook */
    PLAYER_TAKE,     /* an array `text` of size bytes; runs > 1: cut along its first axis */
    PLAYER_QUEUE,    /* the same without the allocate */
    PLAYER_ALLOCATE, /* what is queued */
    PLAYER_RESPONSE, /* take_response */
    PLAYER_BEGIN,
    PLAYER_END,      /* in the group's stream */
    PLAYER_SYNC,
    PLAYER_USE,      /* begin, write the array, end, sync */
    PLAYER_DELAY,    /* keep the group's stream busy for size ns */
    PLAYER_WRITE,    /* the word `size` all over the array, at once */
    PLAYER_CHECK,    /* .value: how many words of the array are not `size` */
    PLAYER_RELEASE,  /* text: a label; empty: everything */
    PLAYER_HOOKS,    /* .value: how often this instance's hook ran */
    PLAYER_UNREGISTER,
    PLAYER_FORK,     /* a child that does nothing and stays; .value: its pid */
    PLAYER_EXEC,     /* becomes `sleep`; answers before */
    PLAYER_HANG_UP,  /* closes the connection's descriptor behind the library's back */
    PLAYER_CLOSE,    /* ends in order */
    PLAYER_EXIT,     /* ends without release */
};

/* What a hook does beside counting. */
enum player_hook {
    PLAYER_NO_HOOK,
    PLAYER_COUNTS,
    PLAYER_CALLS, /* every call that waits, and those that do not; .value of HOOKS
                     counts only what was answered as documented */
};

struct player_order {
    enum player_do what;
    unsigned int instance;
    char text[24];
    char group[24];
    uint64_t size;
    uint64_t runs;
    bool shared;
    enum player_hook hook;
};

struct player_answer {
    int status; /* of the library */
    uint64_t value;
    uint64_t chunks;
    uint64_t grant;
};

struct player {
    struct role role;
};

/* Connects under this name; PLAYER_REGISTER makes its instances. */
void player_start(struct player *player_p, const struct harness *harness, const char *name);
/* The same with a setting of its environment, "NAME=value". */
void player_start_with(struct player *player_p, const struct harness *harness, const char *name,
                       const char *setting);
void player_tell(struct player *player, const struct player_order *order);
struct player_answer player_hear(struct player *player);
/* Is the answer there? Waits this long at most. */
bool player_has_answered(struct player *player, int timeout_ms);
struct player_answer player_do(struct player *player, const struct player_order *order);

/* The usual orders for instance 0; those without a status fail if it is not OK. */
void player_register(struct player *player, enum player_hook hook);
int player_take(struct player *player, uint64_t size);
void player_use(struct player *player);
int player_begin(struct player *player);
void player_end(struct player *player);
uint64_t player_hooks(struct player *player);

void player_stop(struct player *player);     /* SIGSTOP, and it stands */
void player_continue(struct player *player); /* SIGCONT */
void player_close(struct player *player);    /* in order */
void player_kill(struct player *player);     /* SIGKILL, and wait */

#endif
