/*
 * context - the device as this process sees it: driver, primary context
 *
 * The library works in the primary context, so that cudart programs, Numba,
 * CuPy and PyTorch use its pointers as their own. The context is retained by
 * the first register, not by connect: a viewer costs no device memory.
 *
 * Every other driver call of the library stands between context_enter() and
 * context_leave(): the right context is current, and the thread is in the
 * relaxed capture mode, so that nobody's stream capture is broken by us.
 */
#ifndef CLIENT_CONTEXT_H
#define CLIENT_CONTEXT_H

#include <stdbool.h>

#include "driver.h"

struct context {
    struct driver driver;
    bool loaded;
    bool ready; /* retained; what follows is valid */
    CUdevice device;
    CUcontext context;
    bool stream_values; /* 64-bit stream memory operations work */
    CUevent probe;      /* never recorded: its query tells of a dead context */
    char uuid[UUID_TEXT_SIZE];
};

struct context_guard {
    bool pushed;
    CUstreamCaptureMode mode;
};

/*
 * Load the driver (the simulated one from run_dir) and retain the primary
 * context of the device with this UUID. What an earlier, failed try has done
 * is kept.
 *
 * Return: CUBIEMEM_OK; NOT_FOUND (no driver); DEVICE_MISMATCH (the device is
 * not among those this process sees); CUDA.
 */
int context_open(struct context *context, bool simulated, const char *run_dir, const char *uuid);
void context_close(struct context *context);

int context_enter(struct context *context, struct context_guard *guard);
void context_leave(struct context *context, struct context_guard *guard);

/* The stream's context, without the capture mode: for work marks alone. */
int context_push(struct context *context, struct context_guard *guard);
void context_pop(struct context *context, struct context_guard *guard);

/* CUBIEMEM_OK, or DEVICE_LOST: nothing that was submitted will ever end. */
int context_probe(struct context *context);

#endif
