/*
 * reclaim_thread - the device thread that gives memory back to the driver
 *
 * What may not be lent again (DESIGN 3.3) is let go here, one segment after the
 * other, with a pause while grants wait: the driver serialises the two (DESIGN 3.5).
 * The queue is made of the segments themselves, so nothing can fail, and submitting
 * never blocks. Each segment is reported exactly once, on the loop.
 *
 * All functions are called from the loop's thread.
 */
#ifndef RECLAIM_THREAD_H
#define RECLAIM_THREAD_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "device.h"
#include "grant_thread.h"

struct reclaim_thread;

/*
 * On the loop, once for each segment that was let go: the daemon has no hold on it any
 * more, but others may, so its bytes are draining until NVML says otherwise. The segment
 * may be read during the call and is freed behind it.
 */
typedef void reclaim_released_fn(struct segment *segment, void *data);

/*
 * reclaim_thread_create() - start the thread
 * @grants:   whose jobs go first; may be NULL; outlives this thread
 *
 * Return: CUBIEMEM_OK, HOST_MEMORY or SYSTEM.
 */
int reclaim_thread_create(uv_loop_t *loop, struct device *device, struct grant_thread *grants,
                          reclaim_released_fn *released, void *data,
                          struct reclaim_thread **thread_p);

/* Takes over the segments of a list (linked by ->next, ended by NULL; NULL is fine). */
void reclaim_thread_submit(struct reclaim_thread *thread, struct segment *list);

/* Segments submitted and not yet reported, and their bytes. */
size_t reclaim_thread_pending(const struct reclaim_thread *thread, uint64_t *bytes_p);

/*
 * Ends the thread after the driver call that it is in. Reports what was let go; of the
 * rest only descriptors and structs are freed, without a call to the driver, which
 * takes it all when the process ends. The loop has to be run once more to close what
 * remains. NULL is fine.
 */
void reclaim_thread_destroy(struct reclaim_thread *thread);

#endif
