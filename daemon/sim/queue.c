/*
 * queue - what a program and its engine share: lanes of operations, in memory
 *
 * Sleeping and waking on the shared words, for both sides. What the words mean is
 * said in the header.
 */
#include "queue.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cuda_decl.h"

void queue_wait(uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                               .tv_nsec = (long)(timeout_ns % 1000000000u)};

    syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ns ? &timeout : NULL, NULL, 0);
}

void queue_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
}

bool queue_satisfies(uint64_t word, uint64_t value, uint64_t flags)
{
    switch (flags & ~(uint64_t)CU_STREAM_WAIT_VALUE_FLUSH) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (word & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return ~(word | value) != 0;
    default:
        return (int64_t)(word - value) >= 0;
    }
}
