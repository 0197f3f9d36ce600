/*
 * lane - the engine's thread for one lane of operations
 *
 * Operations run in their lane's order, one after the other, whether or not the
 * program lives: the engine is what makes late writes of the dead. An access to
 * memory that is not mapped, or not with these rights, is an error that sticks,
 * and after it operations are counted as done but do nothing, as on a device
 * whose context has failed.
 *
 * A dead program's host functions never return, so their lane stands still;
 * writes to its host memory are of no concern to anybody and are left out.
 */
#include "lane.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "cuda_decl.h"
#include "window.h"

#define SLICE ((uint64_t)1 << 20)
#define POLL_NS 50000u
#define HOST_CHECK_NS 200000000u

struct worker {
    struct queue *queue;
    struct queue_lane *lane;
};

static struct worker workers[QUEUE_N_LANES];
static bool orphaned;

static void fail(struct queue *queue, CUresult result)
{
    uint32_t none = 0;

    __atomic_compare_exchange_n(&queue->error, &none, (uint32_t)result, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
}

static void sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u),
                            .tv_nsec = (long)(ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) != 0) {
    }
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void fill_slice(char *to, uint64_t size, uint64_t value, uint64_t width)
{
    if (width == 1) {
        memset(to, (int)value, size);
        return;
    }
    for (uint64_t i = 0; i + 4 <= size; i += 4) {
        uint32_t word = (uint32_t)value;

        memcpy(to + i, &word, sizeof(word));
    }
}

static void run_fill(struct queue *queue, const struct queue_op *op)
{
    uint64_t at = op->to;
    uint64_t left = op->size;

    while (left > 0) {
        uint64_t size;
        char *to;

        window_enter();
        to = window_at(at, true, &size);
        if (!to) {
            window_leave();
            fail(queue, CUDA_ERROR_ILLEGAL_ADDRESS);
            return;
        }
        size = smaller(size, smaller(left, SLICE));
        fill_slice(to, size, op->value, op->from);
        window_leave();
        at += size;
        left -= size;
    }
}

static void run_copy(struct queue *queue, const struct queue_op *op)
{
    uint64_t done = 0;

    while (done < op->size) {
        uint64_t to_size, from_size;
        uint64_t size = 0;
        char *to;
        const char *from;

        window_enter();
        to = window_at(op->to + done, true, &to_size);
        from = window_at(op->from + done, false, &from_size);
        if (to && from) {
            size = smaller(smaller(to_size, from_size), smaller(op->size - done, SLICE));
            memmove(to, from, size);
        }
        window_leave();
        if (size == 0) {
            fail(queue, CUDA_ERROR_ILLEGAL_ADDRESS);
            return;
        }
        done += size;
    }
}

static void run_write(struct queue *queue, const struct queue_op *op)
{
    uint64_t size;
    uint64_t *to;

    window_enter();
    to = window_at(op->to, true, &size);
    if (to && size >= sizeof(*to)) {
        __atomic_store_n(to, op->value, __ATOMIC_SEQ_CST);
    } else {
        fail(queue, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    window_leave();
}

/* Is the wait over? */
static bool wait_is_over(struct queue *queue, const struct queue_op *op)
{
    uint64_t size;
    const uint64_t *word;
    bool over = true;

    window_enter();
    word = window_at(op->to, false, &size);
    if (word && size >= sizeof(*word)) {
        over = queue_satisfies(__atomic_load_n(word, __ATOMIC_SEQ_CST), op->value, op->from);
    } else {
        fail(queue, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    window_leave();
    return over;
}

static void wait_for_count(uint32_t *word, uint32_t target)
{
    uint32_t count;

    while (!queue_reached(count = __atomic_load_n(word, __ATOMIC_ACQUIRE), target)) {
        queue_wait(word, count, 0);
    }
}

static void run_in_program(struct queue_lane *lane, const struct queue_op *op, uint32_t number)
{
    uint32_t done;

    __atomic_store_n(&lane->host_wanted, number, __ATOMIC_RELEASE);
    queue_wake(&lane->host_wanted);
    while (!queue_reached(done = __atomic_load_n(&lane->host_done, __ATOMIC_ACQUIRE), number)) {
        if (__atomic_load_n(&orphaned, __ATOMIC_ACQUIRE) && op->kind != OP_HOST_FUNCTION) {
            return;
        }
        queue_wait(&lane->host_done, done, HOST_CHECK_NS);
    }
}

static void run(struct queue *queue, struct queue_lane *lane, const struct queue_op *op,
                uint32_t number)
{
    switch (op->kind) {
    case OP_FILL:
        run_fill(queue, op);
        break;
    case OP_COPY:
        run_copy(queue, op);
        break;
    case OP_DELAY:
        sleep_ns(op->value);
        break;
    case OP_WRITE64:
        run_write(queue, op);
        break;
    case OP_WAIT64:
        while (!wait_is_over(queue, op)) {
            sleep_ns(POLL_NS);
        }
        break;
    case OP_WAIT_LANE:
        wait_for_count(&queue->lanes[op->to % QUEUE_N_LANES].completed, (uint32_t)op->value);
        break;
    case OP_NOTHING:
        break;
    default:
        run_in_program(lane, op, number);
        break;
    }
}

static void *work(void *argument)
{
    const struct worker *worker = argument;
    struct queue_lane *lane = worker->lane;
    uint32_t next = lane->completed;

    for (;;) {
        struct queue_op op;

        wait_for_count(&lane->submitted, next + 1);
        op = lane->ops[next % QUEUE_N_OPS];
        next++;
        wait_for_count(&worker->queue->control_done, op.control);
        if (!__atomic_load_n(&worker->queue->error, __ATOMIC_ACQUIRE)) {
            run(worker->queue, lane, &op, next);
        }
        __atomic_store_n(&lane->completed, next, __ATOMIC_SEQ_CST);
        queue_wake(&lane->completed);
    }
    return NULL;
}

int lane_start(struct queue *queue, uint32_t lane)
{
    struct worker *worker = &workers[lane % QUEUE_N_LANES];
    pthread_t thread;

    if (worker->queue) {
        return 0;
    }
    *worker = (struct worker){.queue = queue, .lane = &queue->lanes[lane % QUEUE_N_LANES]};
    if (pthread_create(&thread, NULL, work, worker) != 0) {
        worker->queue = NULL;
        return -1;
    }
    pthread_detach(thread);
    return 0;
}

void lanes_orphan(void)
{
    __atomic_store_n(&orphaned, true, __ATOMIC_RELEASE);
}

bool lanes_are_idle(const struct queue *queue)
{
    for (uint32_t i = 0; i < QUEUE_N_LANES; i++) {
        const struct queue_lane *lane = &queue->lanes[i];

        if (__atomic_load_n(&lane->completed, __ATOMIC_ACQUIRE) !=
            __atomic_load_n(&lane->submitted, __ATOMIC_ACQUIRE)) {
            return false;
        }
    }
    return true;
}
