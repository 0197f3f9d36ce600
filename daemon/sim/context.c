/*
 * context - the primary context of each GPU, and which one a thread uses
 *
 * A context exists from the first retain to the last release, and is an engine
 * process (link.c). What is allocated with cuMemAlloc and opened from legacy
 * handles belongs to it and goes with it; segments and their mappings do not need
 * one, and a new context's engine is told of those that exist.
 *
 * A CUcontext is the address of a place in a table and is only ever compared, so
 * a stale one is answered and not followed.
 */
#include "context.h"

#include "call.h"
#include "hostmem.h"
#include "stream.h"

#define STACK_DEPTH 16

struct context {
    struct gpu *gpu;
    struct link *link; /* NULL: no context */
    unsigned int n_retained;
};

static struct context contexts[N_GPUS];
static _Thread_local CUcontext stack[STACK_DEPTH];
static _Thread_local unsigned int depth;

static struct context *find(CUcontext handle)
{
    for (size_t i = 0; i < N_GPUS; i++) {
        if ((CUcontext)&contexts[i] == handle) {
            return contexts[i].link ? &contexts[i] : NULL;
        }
    }
    return NULL;
}

CUresult context_retain(struct gpu *gpu, CUcontext *context_p)
{
    struct context *context = &contexts[gpu->number];
    CUresult result = CUDA_SUCCESS;

    if (!context->link) {
        result = link_start(gpu, &context->link);
        context->gpu = gpu;
        if (result == CUDA_SUCCESS) {
            result = space_replay(gpu);
        }
    }
    if (result == CUDA_SUCCESS) {
        context->n_retained++;
        *context_p = (CUcontext)context;
    } else if (context->link && context->n_retained == 0) {
        link_stop(context->link);
        link_put(context->link);
        context->link = NULL;
    }
    return result;
}

CUresult context_release(struct gpu *gpu)
{
    struct context *context = &contexts[gpu->number];
    struct link *link = context->link;

    if (!link) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (--context->n_retained > 0) {
        return CUDA_SUCCESS;
    }
    context->link = NULL;
    streams_destroy(link);
    link_stop(link);
    link_put(link);
    space_remove_kind(gpu, SPACE_ALLOC);
    space_remove_kind(gpu, SPACE_IPC);
    hostmem_forget(gpu);
    return CUDA_SUCCESS;
}

bool context_is_active(const struct gpu *gpu)
{
    return contexts[gpu->number].link != NULL;
}

/* --- the current context --- */

CUcontext context_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

CUresult context_set(CUcontext handle)
{
    if (handle && !find(handle)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (depth > 0) {
        depth--;
    }
    if (handle) {
        stack[depth++] = handle;
    }
    return CUDA_SUCCESS;
}

CUresult context_push(CUcontext handle)
{
    if (!handle || !find(handle)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (depth == STACK_DEPTH) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stack[depth++] = handle;
    return CUDA_SUCCESS;
}

CUresult context_pop(CUcontext *handle_p)
{
    if (depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    depth--;
    if (handle_p) {
        *handle_p = stack[depth];
    }
    return CUDA_SUCCESS;
}

CUresult context_link(struct link **link_p)
{
    CUcontext handle = context_current();
    const struct context *context = handle ? find(handle) : NULL;

    if (!context) {
        return handle ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    }
    *link_p = context->link;
    return CUDA_SUCCESS;
}

CUresult context_gpu(struct gpu **gpu_p)
{
    struct link *link;
    CUresult result = context_link(&link);

    if (result == CUDA_SUCCESS) {
        *gpu_p = link->gpu;
    }
    return result;
}

/* --- engines --- */

CUresult context_map(const struct space_mapping *mapping)
{
    struct link *link = contexts[mapping->segment->gpu->number].link;
    const struct control control = {.kind = CONTROL_MAP, .address = mapping->address,
                                    .size = mapping->size, .protection = mapping->protection};

    return link ? link_command(link, control, mapping->segment->fd) : CUDA_SUCCESS;
}

void context_unmap(const struct gpu *gpu, uint64_t address)
{
    struct link *link = contexts[gpu->number].link;

    /* A failed context has let go already, with its engine. */
    if (link) {
        link_command(link, (struct control){.kind = CONTROL_UNMAP, .address = address}, -1);
    }
}

bool contexts_exist(void)
{
    for (size_t i = 0; i < N_GPUS; i++) {
        if (contexts[i].link) {
            return true;
        }
    }
    return false;
}

void contexts_forked(void)
{
    for (size_t i = 0; i < N_GPUS; i++) {
        if (contexts[i].link) {
            link_forked(contexts[i].link);
        }
    }
}

int cubiemem_sim_engine_pid(void)
{
    struct link *link;
    int pid = 0;

    sim_lock();
    if (context_link(&link) == CUDA_SUCCESS) {
        pid = link->engine_pid;
    }
    sim_unlock();
    return pid;
}
