/*
 * reclaim_thread - the device thread that gives memory back to the driver
 *
 * `waiting` and `released` are lists of segments under one lock. The thread takes one
 * segment at a time, so that it can stop, and let grants pass, between any two. It lets a
 * segment wait for grants at most PAUSE_NS: a stream of grants that never ends must not
 * keep the memory of the dead.
 */
#include "reclaim_thread.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "cubiemem.h"
#include "log.h"

#define PAUSE_NS 20000000u

struct segment_queue {
    struct segment *first, **end;
};

struct reclaim_thread {
    struct device *device;
    struct grant_thread *grants;
    reclaim_released_fn *released_fn;
    void *data;
    pthread_t thread;
    uv_async_t async;
    size_t n_pending; /* submitted, not yet reported; the loop's */
    uint64_t pending_bytes;
    struct log_limit log_limit; /* the thread's */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;
    struct segment_queue waiting, released;
    bool stopping;
};

static void queue_init(struct segment_queue *queue)
{
    queue->first = NULL;
    queue->end = &queue->first;
}

static void queue_push(struct segment_queue *queue, struct segment *segment)
{
    segment->next = NULL;
    *queue->end = segment;
    queue->end = &segment->next;
}

static struct segment *queue_pop(struct segment_queue *queue)
{
    struct segment *segment = queue->first;

    if (segment != NULL) {
        queue->first = segment->next;
        if (queue->first == NULL) {
            queue->end = &queue->first;
        }
    }
    return segment;
}

/* ---------------------------------------------------------- on the thread */

static void let_go(struct reclaim_thread *thread, struct segment *segment)
{
    char text[128];

    if (thread->grants != NULL) {
        grant_thread_wait_idle(thread->grants, PAUSE_NS);
    }
    CUresult result = device_segment_let_go(thread->device, segment);
    if (result != CUDA_SUCCESS) {
        log_ratelimited(&thread->log_limit, LOG_LEVEL_WARN,
                        "segment %" PRIu64 ": the driver did not take it back: %s", segment->id,
                        driver_error(&thread->device->driver, result, text));
    }
}

static void *thread_main(void *argument)
{
    struct reclaim_thread *thread = argument;

    pthread_setname_np(pthread_self(), "reclaim");
    pthread_mutex_lock(&thread->lock);
    for (;;) {
        while (!thread->stopping && thread->waiting.first == NULL) {
            pthread_cond_wait(&thread->work, &thread->lock);
        }
        if (thread->stopping) {
            break;
        }
        struct segment *segment = queue_pop(&thread->waiting);
        pthread_mutex_unlock(&thread->lock);
        let_go(thread, segment);
        pthread_mutex_lock(&thread->lock);
        queue_push(&thread->released, segment);
        uv_async_send(&thread->async);
    }
    pthread_mutex_unlock(&thread->lock);
    return NULL;
}

/* ------------------------------------------------------------ on the loop */

static void report_released(struct reclaim_thread *thread)
{
    for (;;) {
        pthread_mutex_lock(&thread->lock);
        struct segment *segment = queue_pop(&thread->released);
        pthread_mutex_unlock(&thread->lock);
        if (segment == NULL) {
            return;
        }
        thread->pending_bytes -= segment->size;
        if (--thread->n_pending == 0 && !uv_is_closing((uv_handle_t *)&thread->async)) {
            uv_unref((uv_handle_t *)&thread->async);
        }
        thread->released_fn(segment, thread->data); /* may submit more */
        free(segment);
    }
}

static void on_async(uv_async_t *async)
{
    report_released(async->data);
}

static void free_closed(uv_handle_t *handle)
{
    struct reclaim_thread *thread = handle->data;

    pthread_cond_destroy(&thread->work);
    pthread_mutex_destroy(&thread->lock);
    free(thread);
}

int reclaim_thread_create(uv_loop_t *loop, struct device *device, struct grant_thread *grants,
                          reclaim_released_fn *released, void *data,
                          struct reclaim_thread **thread_p)
{
    struct reclaim_thread *thread = calloc(1, sizeof(*thread));

    if (thread == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    thread->device = device;
    thread->grants = grants;
    thread->released_fn = released;
    thread->data = data;
    queue_init(&thread->waiting);
    queue_init(&thread->released);
    int error = uv_async_init(loop, &thread->async, on_async);
    if (error != 0) {
        free(thread);
        return error == UV_ENOMEM ? CUBIEMEM_HOST_MEMORY : CUBIEMEM_SYSTEM;
    }
    thread->async.data = thread;
    uv_unref((uv_handle_t *)&thread->async);
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->work, NULL);
    error = pthread_create(&thread->thread, NULL, thread_main, thread);
    if (error != 0) {
        uv_close((uv_handle_t *)&thread->async, free_closed);
        return error == ENOMEM ? CUBIEMEM_HOST_MEMORY : CUBIEMEM_SYSTEM;
    }
    *thread_p = thread;
    return CUBIEMEM_OK;
}

void reclaim_thread_submit(struct reclaim_thread *thread, struct segment *list)
{
    if (list == NULL) {
        return;
    }
    if (thread->n_pending == 0) {
        uv_ref((uv_handle_t *)&thread->async);
    }
    pthread_mutex_lock(&thread->lock);
    while (list != NULL) {
        struct segment *segment = list;
        list = segment->next;
        thread->n_pending++;
        thread->pending_bytes += segment->size;
        queue_push(&thread->waiting, segment);
    }
    pthread_cond_signal(&thread->work);
    pthread_mutex_unlock(&thread->lock);
}

size_t reclaim_thread_pending(const struct reclaim_thread *thread, uint64_t *bytes_p)
{
    *bytes_p = thread->pending_bytes;
    return thread->n_pending;
}

void reclaim_thread_destroy(struct reclaim_thread *thread)
{
    struct segment *segment;

    if (thread == NULL) {
        return;
    }
    pthread_mutex_lock(&thread->lock);
    thread->stopping = true;
    pthread_cond_signal(&thread->work);
    pthread_mutex_unlock(&thread->lock);
    pthread_join(thread->thread, NULL);

    uv_close((uv_handle_t *)&thread->async, free_closed);
    report_released(thread);
    while ((segment = queue_pop(&thread->waiting)) != NULL) {
        if (segment->fd >= 0) {
            close(segment->fd);
        }
        free(segment);
    }
}
