/*
 * legacy - blocks with 64-byte CUDA IPC handles, made by a helper process
 *
 * Legacy handles need a CUDA context, which the daemon does not have (DESIGN 3.1, 3.2).
 * So each session that asks for them gets a helper: a process of the daemon's own
 * program with nothing of the daemon but one socket and stderr. It makes its context
 * at the first allocation (518 MiB, 0.1 s), clears every block before its handle
 * is given out, and dies with the daemon or when its socket is closed.
 *
 * What becomes of the memory: a block that its live client has closed is given back with
 * legacy_helper_free(), and its bytes are free when done() says OK. At any other end
 * of the session legacy_helper_kill() ends the process, which frees nothing, and the
 * blocks count as draining: the driver keeps pages that others have opened.
 *
 * Everything is asynchronous and happens on the loop's thread.
 */
#ifndef LEGACY_H
#define LEGACY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "device.h"

#define LEGACY_GRANULARITY (2ull << 20) /* bytes; block sizes are multiples of it */
#define LEGACY_HANDLE_SIZE 64u

struct legacy_helper;

struct legacy_block {
    uint64_t generation; /* never twice the same in a daemon's life, never 0 */
    uint64_t size;
    unsigned char handle[LEGACY_HANDLE_SIZE];
};

/* status OK: the block, cleared. Else block is NULL and nothing was allocated: NO_MEMORY,
 * CUDA, DEVICE_LOST (also: the helper died, and with it all its blocks), CANCELLED. */
typedef void legacy_alloc_fn(int status, CUresult result, const struct legacy_block *block,
                             void *data);
/* status OK: the block's memory is back at the driver. */
typedef void legacy_free_fn(int status, CUresult result, void *data);
/* The helper died by itself (wait status as of waitpid). Called once, after the
 * callbacks of all that was under way, and never after legacy_helper_kill(). The helper is
 * still to be killed: that ends it as an object. */
typedef void legacy_died_fn(int wait_status, void *data);

/*
 * legacy_helper_create() - start a helper
 * @device: its UUID and kind tell the helper what to open; only read in this call
 *
 * Quick: the helper loads the driver by itself, and what goes wrong there shows as the
 * first allocation's failure or as its death.
 *
 * Return: CUBIEMEM_OK; HANDLE_KIND where the device's compute mode forbids a context;
 * NO_FDS, HOST_MEMORY or SYSTEM.
 */
int legacy_helper_create(uv_loop_t *loop, const struct device *device, legacy_died_fn *died,
                         void *data, struct legacy_helper **helper_p);

/*
 * legacy_helper_alloc() - ask for one block
 * @size: bytes, a multiple of LEGACY_GRANULARITY, not 0
 *
 * Return: CUBIEMEM_OK: done will be called, once, and never from here; INVALID_REQUEST,
 * HOST_MEMORY or DEVICE_LOST: it will not.
 */
int legacy_helper_alloc(struct legacy_helper *helper, uint64_t size, legacy_alloc_fn *done,
                        void *data);

/* legacy_helper_free() - free a block of this helper that its client has closed. Return: as
 * legacy_helper_alloc(); on failure the only way to free is to kill. */
int legacy_helper_free(struct legacy_helper *helper, uint64_t generation, legacy_free_fn *done,
                       void *data);

/* The helper's process, for logs. */
pid_t legacy_helper_pid(const struct legacy_helper *helper);

/*
 * Kill the process and give the object up; the callbacks of what is under way are called from
 * here with CANCELLED, and none after it. The loop is kept alive until the
 * process has been reaped. NULL is fine. Must not be called from one of the helper's
 * alloc or free callbacks while it is cancelling.
 */
void legacy_helper_kill(struct legacy_helper *helper);

/* For main(): is this process such a helper? Then its main does all and returns the exit
 * status. To be asked before anything else is done. */
bool legacy_is_helper(int argc, char *const *argv);
int legacy_helper_main(int argc, char *const *argv);

#endif
