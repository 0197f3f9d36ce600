/* link - a program's end of its engine */
#ifndef DAEMON_SIM_LINK_H
#define DAEMON_SIM_LINK_H

#include <stdbool.h>

#include "device.h"
#include "queue.h"

/* What the program remembers of a lane. */
struct link_lane {
    bool used;        /* by a stream that exists */
    bool blocking;    /* ordered with the legacy stream */
    bool started;     /* the engine works on it */
    bool has_host;    /* our thread for host operations runs */
};

struct link {
    unsigned int n_refs;
    uint64_t number; /* never given twice in a process */
    struct gpu *gpu;
    int control, engine_pid;
    uint32_t control_sent;
    bool broken; /* the engine is gone, or is to be */
    uint32_t host_order; /* orders host operations and their waiters, for us alone */
    struct queue *queue;
    struct link_lane lanes[QUEUE_N_LANES];
};

/* Under the process's lock, unless said otherwise. */

/* Start an engine; the caller holds the first reference. */
CUresult link_start(struct gpu *gpu, struct link **link_p);
/* End the engine, with what it has queued, and wait until it is gone. */
void link_stop(struct link *link);
void link_get(struct link *link);
void link_put(struct link *link);
/* In a forked child. */
void link_forked(struct link *link);

/* Send a command; fd -1: none. CONTROL_UNMAP is waited for. */
CUresult link_command(struct link *link, struct control control, int fd);
/* Is the engine there? Any thread. */
bool link_is_alive(struct link *link);
/* What has gone wrong, CUDA_SUCCESS: nothing. Any thread. */
CUresult link_error(struct link *link);
/* Wait until *word has reached target, without the lock. */
CUresult link_wait(struct link *link, uint32_t *word, uint32_t target);

/* Queue an operation on a lane behind those that it has to wait for; *number_p:
 * the lane's count once it is done. Waits for room with the lock given up. */
CUresult link_submit(struct link *link, uint32_t lane, struct queue_op op, uint32_t *number_p);
/* The count after which all that the lane has to do is done. */
uint32_t link_lane_end(const struct link *link, uint32_t lane);
bool link_lane_reached(const struct link *link, uint32_t lane, uint32_t number);
/* Has the legacy lane, or one that orders with it, work left? */
bool link_legacy_is_busy(const struct link *link);
/* A lane for a new stream; QUEUE_N_LANES: none is left. */
uint32_t link_take_lane(struct link *link, bool blocking);

#define LINK_LEGACY_LANE 0

#endif
