/*
 * grant_thread - the device thread that serves who waits for memory
 *
 * A job lets go of segments, creates others (all or none) and reads the free memory,
 * in this order, on a thread of its own; its answer comes back on the loop. Jobs are
 * done in the order in which they were submitted. Nothing runs and nothing wakes up
 * while there is no job, and only outstanding jobs keep the loop alive.
 *
 * Everything but grant_thread_busy() and grant_thread_wait_idle() is called from the
 * loop's thread.
 */
#ifndef GRANT_THREAD_H
#define GRANT_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "device.h"

struct grant_thread;

/*
 * Memory of the caller, which it leaves alone from grant_thread_submit() to done().
 * A job with n_release and n_sizes 0 only reads the memory.
 */
struct grant_job {
    /* in; the arrays are the caller's and live as long as the job */
    struct segment **release; /* destroyed first; each pointer becomes NULL */
    size_t n_release;
    const uint64_t *sizes; /* bytes, each a multiple of the granularity */
    size_t n_sizes;
    struct segment **created; /* room for n_sizes */
    void (*done)(struct grant_job *job);
    void *data; /* the caller's */

    /* out */
    size_t n_created; /* n_sizes, or 0: all or none */
    int status;       /* of the creation: OK, or the first failure's; CANCELLED */
    CUresult cu_result;
    bool memory_known; /* the two below are as NVML gave them when all was done */
    uint64_t device_free, device_total;

    /* the thread's */
    struct grant_job *next;
};

/* Return: CUBIEMEM_OK, HOST_MEMORY or SYSTEM. */
int grant_thread_create(uv_loop_t *loop, struct device *device, struct grant_thread **thread_p);

/* Never fails, never blocks; done() is called from the loop later, never from here. */
void grant_thread_submit(struct grant_thread *thread, struct grant_job *job);

/*
 * Ends the thread after the driver call that it is in. Jobs that are not done are
 * called back from here with CANCELLED: nothing was created, and what is not NULL in
 * `release` is the caller's again. A job that was done is called back with its result. No
 * more jobs are accepted. The loop has to be run once more to close what
 * remains. NULL is fine.
 */
void grant_thread_destroy(struct grant_thread *thread);

/* Jobs waiting or running; from any thread. */
size_t grant_thread_busy(struct grant_thread *thread);

/* Wait until no job is waiting or running, or the time is over; from any thread but
 * the loop's. */
void grant_thread_wait_idle(struct grant_thread *thread, uint64_t timeout_ns);

#endif
