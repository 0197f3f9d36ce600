/*
 * grant_thread - the device thread that serves who waits for memory
 *
 * Two queues of intrusive jobs under one lock: `waiting`, filled by the loop, and
 * `finished`, filled by the thread and emptied on the loop when its async fires. The async is
 * referenced exactly while jobs are outstanding, so an idle daemon sleeps.
 */
#include "grant_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "cubiemem.h"

/* first in, first out */
struct job_queue {
    struct grant_job *first, **end;
};

struct grant_thread {
    struct device *device;
    pthread_t thread;
    uv_async_t async;
    size_t outstanding; /* submitted, not yet called back; the loop's */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;  /* a job waits, or stopping */
    pthread_cond_t idle;  /* busy became 0 */
    struct job_queue waiting, finished;
    size_t busy; /* waiting or running */
    bool stopping;
};

static void queue_init(struct job_queue *queue)
{
    queue->first = NULL;
    queue->end = &queue->first;
}

static void queue_push(struct job_queue *queue, struct grant_job *job)
{
    job->next = NULL;
    *queue->end = job;
    queue->end = &job->next;
}

static struct grant_job *queue_pop(struct job_queue *queue)
{
    struct grant_job *job = queue->first;

    if (job != NULL) {
        queue->first = job->next;
        if (queue->first == NULL) {
            queue->end = &queue->first;
        }
    }
    return job;
}

/* ---------------------------------------------------------- on the thread */

static bool is_stopping(struct grant_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    bool stopping = thread->stopping;
    pthread_mutex_unlock(&thread->lock);
    return stopping;
}

/* All or none of the job's segments. */
static void job_create(struct grant_thread *thread, struct grant_job *job)
{
    for (size_t i = 0; i < job->n_sizes && job->status == CUBIEMEM_OK; i++) {
        if (is_stopping(thread)) {
            job->status = CUBIEMEM_CANCELLED;
        } else {
            job->status = device_segment_create(thread->device, job->sizes[i], &job->created[i],
                                                &job->cu_result);
        }
        if (job->status == CUBIEMEM_OK) {
            job->n_created++;
        }
    }
    if (job->status != CUBIEMEM_OK) {
        while (job->n_created > 0) {
            struct segment *segment = job->created[--job->n_created];
            job->created[job->n_created] = NULL;
            device_segment_destroy(thread->device, segment);
        }
    }
}

static void job_run(struct grant_thread *thread, struct grant_job *job)
{
    for (size_t i = 0; i < job->n_release && !is_stopping(thread); i++) {
        device_segment_destroy(thread->device, job->release[i]);
        job->release[i] = NULL;
    }
    if (is_stopping(thread)) {
        job->status = CUBIEMEM_CANCELLED;
        return;
    }
    job_create(thread, job);
    job->memory_known = device_memory(thread->device, &job->device_total, &job->device_free) ==
                        CUBIEMEM_OK;
}

static void *thread_main(void *argument)
{
    struct grant_thread *thread = argument;

    pthread_setname_np(pthread_self(), "grant");
    pthread_mutex_lock(&thread->lock);
    for (;;) {
        while (!thread->stopping && thread->waiting.first == NULL) {
            pthread_cond_wait(&thread->work, &thread->lock);
        }
        if (thread->stopping) {
            break;
        }
        struct grant_job *job = queue_pop(&thread->waiting);
        pthread_mutex_unlock(&thread->lock);
        job_run(thread, job);
        pthread_mutex_lock(&thread->lock);
        queue_push(&thread->finished, job);
        if (--thread->busy == 0) {
            pthread_cond_broadcast(&thread->idle);
        }
        uv_async_send(&thread->async);
    }
    pthread_mutex_unlock(&thread->lock);
    return NULL;
}

/* ------------------------------------------------------------ on the loop */

static void call_back_finished(struct grant_thread *thread)
{
    for (;;) {
        pthread_mutex_lock(&thread->lock);
        struct grant_job *job = queue_pop(&thread->finished);
        pthread_mutex_unlock(&thread->lock);
        if (job == NULL) {
            return;
        }
        if (--thread->outstanding == 0 && !uv_is_closing((uv_handle_t *)&thread->async)) {
            uv_unref((uv_handle_t *)&thread->async);
        }
        job->done(job); /* may submit, and may free the job */
    }
}

static void on_async(uv_async_t *async)
{
    call_back_finished(async->data);
}

static int errno_status(int error)
{
    return error == ENOMEM ? CUBIEMEM_HOST_MEMORY
           : error == EMFILE || error == ENFILE ? CUBIEMEM_NO_FDS
                                                : CUBIEMEM_SYSTEM;
}

static void free_closed(uv_handle_t *handle)
{
    struct grant_thread *thread = handle->data;

    pthread_cond_destroy(&thread->work);
    pthread_cond_destroy(&thread->idle);
    pthread_mutex_destroy(&thread->lock);
    free(thread);
}

/* The idle condition is waited for with a time-out, which must not jump with the
 * clock of the day. */
static void condition_init_monotonic(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

int grant_thread_create(uv_loop_t *loop, struct device *device, struct grant_thread **thread_p)
{
    struct grant_thread *thread = calloc(1, sizeof(*thread));

    if (thread == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    thread->device = device;
    queue_init(&thread->waiting);
    queue_init(&thread->finished);
    int error = uv_async_init(loop, &thread->async, on_async);
    if (error != 0) {
        free(thread);
        return errno_status(-error);
    }
    thread->async.data = thread;
    uv_unref((uv_handle_t *)&thread->async);
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->work, NULL);
    condition_init_monotonic(&thread->idle);
    error = pthread_create(&thread->thread, NULL, thread_main, thread);
    if (error != 0) {
        uv_close((uv_handle_t *)&thread->async, free_closed);
        return errno_status(error);
    }
    *thread_p = thread;
    return CUBIEMEM_OK;
}

void grant_thread_submit(struct grant_thread *thread, struct grant_job *job)
{
    job->n_created = 0;
    job->status = CUBIEMEM_OK;
    job->cu_result = CUDA_SUCCESS;
    job->memory_known = false;
    if (thread->outstanding++ == 0) {
        uv_ref((uv_handle_t *)&thread->async);
    }
    pthread_mutex_lock(&thread->lock);
    queue_push(&thread->waiting, job);
    thread->busy++;
    pthread_cond_signal(&thread->work);
    pthread_mutex_unlock(&thread->lock);
}

void grant_thread_destroy(struct grant_thread *thread)
{
    if (thread == NULL) {
        return;
    }
    pthread_mutex_lock(&thread->lock);
    thread->stopping = true;
    pthread_cond_signal(&thread->work);
    pthread_mutex_unlock(&thread->lock);
    pthread_join(thread->thread, NULL);

    struct grant_job *job;
    while ((job = queue_pop(&thread->waiting)) != NULL) {
        job->status = CUBIEMEM_CANCELLED;
        queue_push(&thread->finished, job);
    }
    thread->busy = 0;
    uv_close((uv_handle_t *)&thread->async, free_closed);
    call_back_finished(thread);
}

size_t grant_thread_busy(struct grant_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    size_t busy = thread->busy;
    pthread_mutex_unlock(&thread->lock);
    return busy;
}

void grant_thread_wait_idle(struct grant_thread *thread, uint64_t timeout_ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t ns = (uint64_t)until.tv_nsec + timeout_ns % 1000000000u;
    until.tv_sec += (time_t)(timeout_ns / 1000000000u + ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    pthread_mutex_lock(&thread->lock);
    while (thread->busy > 0 &&
           pthread_cond_timedwait(&thread->idle, &thread->lock, &until) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&thread->lock);
}
