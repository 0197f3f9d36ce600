/*
 * clock - the monotonic clock in nanoseconds, and deadlines on it
 *
 * A deadline is a point of CLOCK_MONOTONIC. There is no 'for ever': a time-out
 * that would pass the clock's range ends at its end.
 */
#ifndef CLIENT_CLOCK_H
#define CLIENT_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define CLOCK_SECOND_NS 1000000000ll

static inline int64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * CLOCK_SECOND_NS + now.tv_nsec;
}

static inline int64_t clock_deadline(int64_t timeout_ns)
{
    int64_t deadline;
    if (__builtin_add_overflow(clock_now_ns(), timeout_ns, &deadline)) {
        return INT64_MAX;
    }
    return deadline;
}

/* What is left until the deadline; 0 when it is over. */
static inline int64_t clock_left(int64_t deadline)
{
    int64_t now = clock_now_ns();
    return deadline > now ? deadline - now : 0;
}

static inline struct timespec clock_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / CLOCK_SECOND_NS, .tv_nsec = ns % CLOCK_SECOND_NS};
}

/* A condition whose timed waits end at deadlines of this clock. */
static inline void clock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

static inline void clock_sleep(int64_t ns)
{
    struct timespec time = clock_timespec(ns);
    nanosleep(&time, NULL);
}

#endif
