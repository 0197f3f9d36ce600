/*
 * hostwork - what a stream does in the program itself
 *
 * Host functions, copies from and to host memory, and stream memory operations
 * on registered host memory need the program's address space: the engine hands
 * them back in stream order, and one thread for each lane that ever had one
 * performs them. They die with the program, as on the real device, where nobody
 * is left to see them. Copies go through process_vm_readv(), so that memory that
 * was unmapped meanwhile is an error of the stream and not a crash (where a sandbox
 * forbids that call, plain copies have to do).
 */
#include "hostwork.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "call.h"

#define POLL_NS 50000

struct host_thread {
    struct link *link;
    uint32_t lane;
};

static bool is_stopped(const struct link *link)
{
    return __atomic_load_n(&link->queue->stopped, __ATOMIC_ACQUIRE);
}

static void fail(struct link *link, CUresult result)
{
    uint32_t none = 0;

    __atomic_compare_exchange_n(&link->queue->error, &none, (uint32_t)result, false,
                                __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static void copy(struct link *link, const struct queue_op *op)
{
    uint64_t done = 0;

    while (done < op->size) {
        struct iovec to = {.iov_base = (void *)(uintptr_t)(op->to + done),
                           .iov_len = op->size - done};
        struct iovec from = {.iov_base = (void *)(uintptr_t)(op->from + done),
                             .iov_len = op->size - done};
        ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);

        if (n < 0 && (errno == EPERM || errno == ENOSYS)) {
            memmove(to.iov_base, from.iov_base, to.iov_len);
            return;
        }
        if (n <= 0) {
            fail(link, CUDA_ERROR_ILLEGAL_ADDRESS);
            return;
        }
        done += (uint64_t)n;
    }
}

static void wait_for_value(const struct link *link, const struct queue_op *op)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    const uint64_t *word = (const uint64_t *)(uintptr_t)op->to;

    while (!is_stopped(link) &&
           !queue_satisfies(__atomic_load_n(word, __ATOMIC_SEQ_CST), op->value, op->from)) {
        nanosleep(&pause, NULL);
    }
}

static void run(struct link *link, const struct queue_op *op)
{
    switch (op->kind) {
    case OP_HOST_FUNCTION:
        ((CUhostFn)(uintptr_t)op->to)((void *)(uintptr_t)op->from);
        break;
    case OP_HOST_COPY:
        copy(link, op);
        break;
    case OP_HOST_WRITE64:
        __atomic_store_n((uint64_t *)(uintptr_t)op->to, op->value, __ATOMIC_SEQ_CST);
        break;
    default:
        wait_for_value(link, op);
        break;
    }
}

static void *work(void *argument)
{
    struct host_thread *thread = argument;
    struct link *link = thread->link;
    struct queue_lane *lane = &link->queue->lanes[thread->lane];

    free(thread);
    while (!is_stopped(link)) {
        uint32_t done = lane->host_done;
        uint32_t wanted = __atomic_load_n(&lane->host_wanted, __ATOMIC_ACQUIRE);
        struct queue_op op;

        if (wanted == done) {
            queue_wait(&lane->host_wanted, wanted, 0);
            continue;
        }
        if (is_stopped(link)) {
            break; /* link_stop() has moved the word on, and no operation is behind it */
        }
        /* The engine, which the submitter told of the operation, told us; within this
         * process the two are ordered by this word. */
        __atomic_load_n(&link->host_order, __ATOMIC_ACQUIRE);
        op = lane->ops[(wanted - 1) % QUEUE_N_OPS];
        run(link, &op);
        __atomic_fetch_add(&link->host_order, 1, __ATOMIC_ACQ_REL);
        __atomic_store_n(&lane->host_done, wanted, __ATOMIC_SEQ_CST);
        queue_wake(&lane->host_done);
    }
    sim_lock();
    link_put(link);
    sim_unlock();
    return NULL;
}

CUresult hostwork_start(struct link *link, uint32_t lane)
{
    struct host_thread *thread = malloc(sizeof(*thread));
    sigset_t all, before;
    pthread_t id;
    int result;

    if (!thread) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *thread = (struct host_thread){link, lane};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    result = pthread_create(&id, NULL, work, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result != 0) {
        free(thread);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    pthread_detach(id);
    link_get(link);
    return CUDA_SUCCESS;
}
