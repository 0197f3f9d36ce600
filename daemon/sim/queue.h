/*
 * queue - what a program and its engine share: lanes of operations, in memory
 *
 * A lane carries a stream's operations: a ring that the program fills and one
 * thread of the engine empties, in order. `submitted` and `completed` count
 * operations from the lane's beginning and never restart, so a (lane, count)
 * pair is a point in time for ever; counts are compared by difference. Both are
 * futex words.
 *
 * An operation that needs the program (its memory, its functions) is handed
 * back: the engine sets `host_wanted` to the operation's count and waits for
 * `host_done`.
 *
 * Commands on the control socket (maps, new lanes) are counted too: `control`
 * in an operation is the number of the last command that it relies on.
 */
#ifndef DAEMON_SIM_QUEUE_H
#define DAEMON_SIM_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#define QUEUE_N_LANES 256
#define QUEUE_N_OPS 512 /* more than a barrier over all lanes needs */

enum queue_kind {
    OP_NOTHING,
    OP_FILL,      /* size bytes at `to` with value, of `from` bytes width */
    OP_COPY,      /* size bytes between device ranges */
    OP_DELAY,     /* value ns */
    OP_WRITE64,   /* value at `to` */
    OP_WAIT64,    /* until the word at `to` satisfies value under flags `from` */
    OP_WAIT_LANE, /* until lane `to` has completed `value` operations */
    OP_HOST,      /* from here on: in the program */
    OP_HOST_FUNCTION = OP_HOST, /* call `to` with `from` */
    OP_HOST_COPY,
    OP_HOST_WRITE64,
    OP_HOST_WAIT64,
};

struct queue_op {
    uint32_t kind;
    uint32_t control;
    uint64_t to, from, size, value;
};

struct queue_lane {
    uint32_t submitted, completed;
    uint32_t host_wanted, host_done;
    struct queue_op ops[QUEUE_N_OPS];
};

struct queue {
    uint32_t control_done;
    uint32_t error; /* a CUresult; the first sticks */
    uint32_t stopped; /* the program gives the engine up */
    struct queue_lane lanes[QUEUE_N_LANES];
};

/* Commands of the control socket. */
enum control_kind { CONTROL_MAP, CONTROL_UNMAP, CONTROL_LANE, CONTROL_QUIT };

struct control {
    uint32_t kind, number;
    uint64_t address, size;
    int32_t protection;
    uint32_t lane;
};

/* The engine's fds and its arguments: GPU file, slot, linger in ns. */
#define ENGINE_CONTROL_FD 3
#define ENGINE_QUEUE_FD 4

static inline bool queue_reached(uint32_t count, uint32_t target)
{
    return (int32_t)(count - target) >= 0;
}

/* Sleep while *word is value, for timeout_ns at most (0: for ever). */
void queue_wait(uint32_t *word, uint32_t value, uint64_t timeout_ns);
void queue_wake(uint32_t *word);
/* Does a word satisfy a stream's wait? */
bool queue_satisfies(uint64_t word, uint64_t value, uint64_t flags);

#endif
