/* context - the primary context of each GPU, and which one a thread uses */
#ifndef DAEMON_SIM_CONTEXT_H
#define DAEMON_SIM_CONTEXT_H

#include <stdbool.h>

#include "link.h"
#include "space.h"

/* Under the process's lock. */
CUresult context_retain(struct gpu *gpu, CUcontext *context_p);
CUresult context_release(struct gpu *gpu);
bool context_is_active(const struct gpu *gpu);

/* The calling thread's stack of contexts. */
CUcontext context_current(void);
CUresult context_set(CUcontext context);
CUresult context_push(CUcontext context);
CUresult context_pop(CUcontext *context_p);
/* The GPU or engine of the current context; INVALID_CONTEXT: there is none. */
CUresult context_gpu(struct gpu **gpu_p);
CUresult context_link(struct link **link_p);

/* Tell a GPU's engine, if there is one, of a mapping with its present rights, or
 * that there is none any more (waits until the engine has let go). */
CUresult context_map(const struct space_mapping *mapping);
void context_unmap(const struct gpu *gpu, uint64_t address);

bool contexts_exist(void);
void contexts_forked(void);

#endif
