/*
 * call - what every function of the driver begins with, and the one lock
 *
 * The rules: a call is counted before anything else, an ordered fault comes
 * before the work (a delay sleeps here, without the lock), and in a forked child
 * of a process that had initialised the driver every call fails, as on the real
 * one. The child closes what it must not keep of the parent's memory and keeps
 * what makes the kernel hold the device for it: the GPU's open file.
 */
#include "call.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "context.h"
#include "device.h"
#include "segment.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t n_calls[N_CALLS];
static bool initialised, forked;

void sim_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

static void fork_child(void)
{
    if (__atomic_load_n(&initialised, __ATOMIC_RELAXED)) {
        __atomic_store_n(&forked, true, __ATOMIC_RELAXED);
        contexts_forked();
        segments_forked();
    }
    device_forked(forked);
    sim_unlock();
}

__attribute__((constructor)) static void call_init(void)
{
    pthread_atfork(sim_lock, sim_unlock, fork_child);
}

void call_set_initialised(bool value)
{
    __atomic_store_n(&initialised, value, __ATOMIC_RELEASE);
}

bool call_is_initialised(void)
{
    return __atomic_load_n(&initialised, __ATOMIC_ACQUIRE);
}

static void sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u),
                            .tv_nsec = (long)(ns % 1000000000u)};

    while (ns && clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
}

static struct fault_outcome count_call(enum sim_call call)
{
    struct fault_outcome outcome;

    __atomic_fetch_add(&n_calls[call], 1, __ATOMIC_RELAXED);
    outcome = fault_next(call);
    sleep_ns(outcome.delay_ns);
    return outcome;
}

CUresult call_enter(enum sim_call call)
{
    bool free_of_init = call == CALL_cuInit || call == CALL_cuGetErrorName ||
                        call == CALL_cuGetErrorString || call == CALL_cuDriverGetVersion;
    struct fault_outcome outcome = count_call(call);

    if (outcome.result) {
        return (CUresult)outcome.result;
    }
    if (call == CALL_cuGetErrorName || call == CALL_cuGetErrorString) {
        return CUDA_SUCCESS;
    }
    if (outcome.lost) {
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    if (__atomic_load_n(&forked, __ATOMIC_RELAXED) || (!free_of_init && !call_is_initialised())) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    return CUDA_SUCCESS;
}

int call_enter_nvml(enum sim_call call)
{
    struct fault_outcome outcome = count_call(call);

    if (outcome.result) {
        return outcome.result;
    }
    if (outcome.lost) {
        return 15; /* NVML_ERROR_GPU_IS_LOST */
    }
    return 0;
}

uint64_t cubiemem_sim_calls(const char *symbol)
{
    uint64_t n = 0;

    if (symbol && *symbol) {
        enum sim_call call = fault_call_by_name(symbol, strlen(symbol));

        return call == N_CALLS ? 0 : __atomic_load_n(&n_calls[call], __ATOMIC_RELAXED);
    }
    for (int i = 0; i < N_CALLS; i++) {
        n += __atomic_load_n(&n_calls[i], __ATOMIC_RELAXED);
    }
    return n;
}

int cubiemem_sim_set_faults(const char *faults, char *why, size_t why_size)
{
    return fault_set(faults, why, why_size);
}

CUresult call_errno(int error)
{
    switch (error) {
    case 0:
        return CUDA_SUCCESS;
    case -ENOMEM:
    case -ENOSPC:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case -EINVAL:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
}
