/*
 * fault - failures on order
 *
 * A process's faults come from CUBIEMEM_SIM_FAULTS or from the test itself. The
 * text is parsed whole before anything changes: a bad item leaves the faults as
 * they were and is named. Each item counts the calls of its own function from
 * the moment at which it was set.
 *
 *     cuMemCreate:3=2            the third call answers 2
 *     cuMemCreate:3+=2           the third and all later ones
 *     cuMemRelease:*~5s          every call takes 5 s longer
 *     lose@10s                   the device is lost in 10 s
 *     linger@2s                  engines outlive their programs by up to 2 s
 */
#include "fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_FAULTS 64
#define LINGER_NS 500000000ull

struct fault {
    enum sim_call call;
    uint64_t first, last; /* which calls, counted from 1 */
    uint64_t delay_ns;
    int result;
    uint64_t n_calls;
};

struct faults {
    struct fault list[N_FAULTS];
    size_t n;
    uint64_t lost_at_ns; /* CLOCK_MONOTONIC; 0: never */
    uint64_t linger_ns;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct faults current = {.linger_ns = LINGER_NS};

static const char *const names[N_CALLS] = {
#define FAULT_NAME(member, symbol, parameters) [CALL_##member] = #member,
    DRIVER_CUDA_MAP(FAULT_NAME) DRIVER_NVML_MAP(FAULT_NAME)
#undef FAULT_NAME
    [CALL_simDelay] = "simDelay",
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

enum sim_call fault_call_by_name(const char *name, size_t length)
{
    for (int i = 0; i < N_CALLS; i++) {
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0) {
            return (enum sim_call)i;
        }
    }
    return N_CALLS;
}

/* A decimal number at *at, which moves behind it. */
static bool take_number(const char **at, uint64_t *value_p)
{
    char *end;
    unsigned long long value;

    if (**at < '0' || **at > '9') {
        return false;
    }
    errno = 0;
    value = strtoull(*at, &end, 10);
    if (errno) {
        return false;
    }
    *at = end;
    *value_p = value;
    return true;
}

static bool take_duration(const char **at, uint64_t *ns_p)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    uint64_t value;

    if (!take_number(at, &value)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t length = strlen(units[i].name);

        if (strncmp(*at, units[i].name, length) == 0) {
            *at += length;
            return !__builtin_mul_overflow(value, units[i].ns, ns_p) && *ns_p < UINT64_MAX / 4;
        }
    }
    return false;
}

/* symbol:WHICH[=RESULT][~DELAY], behind the symbol */
static bool take_call(const char **at, struct fault *fault)
{
    uint64_t result;

    if (**at == '*') {
        (*at)++;
        fault->first = 1;
        fault->last = UINT64_MAX;
    } else {
        if (!take_number(at, &fault->first) || fault->first == 0) {
            return false;
        }
        fault->last = fault->first;
        if (**at == '+') {
            (*at)++;
            fault->last = UINT64_MAX;
        }
    }
    if (**at == '=') {
        (*at)++;
        if (!take_number(at, &result) || result == 0 || result > 9999) {
            return false;
        }
        fault->result = (int)result;
    }
    if (**at == '~') {
        (*at)++;
        if (!take_duration(at, &fault->delay_ns)) {
            return false;
        }
    }
    return fault->result || fault->delay_ns;
}

static bool take_item(const char **at, struct faults *faults)
{
    size_t length = strcspn(*at, ":@,");
    const char *name = *at;
    uint64_t ns;

    *at += length;
    if (**at == '@') {
        (*at)++;
        if (!take_duration(at, &ns)) {
            return false;
        }
        if (length == 4 && strncmp(name, "lose", length) == 0) {
            faults->lost_at_ns = now_ns() + ns;
            return true;
        }
        faults->linger_ns = ns;
        return length == 6 && strncmp(name, "linger", length) == 0;
    }
    if (**at == ':' && faults->n < N_FAULTS) {
        struct fault *fault = &faults->list[faults->n++];

        (*at)++;
        fault->call = fault_call_by_name(name, length);
        return fault->call != N_CALLS && take_call(at, fault);
    }
    return false;
}

int fault_set(const char *text, char *why, size_t why_size)
{
    struct faults faults = {.linger_ns = LINGER_NS};
    const char *at = text ? text : "";

    while (*at) {
        const char *item = at;

        if (!take_item(&at, &faults) || (*at && *at != ',')) {
            snprintf(why, why_size, "not a fault of the simulated driver: '%.*s'",
                     (int)strcspn(item, ","), item);
            return -1;
        }
        at += *at == ',';
    }
    pthread_mutex_lock(&mutex);
    current = faults;
    pthread_mutex_unlock(&mutex);
    return 0;
}

struct fault_outcome fault_next(enum sim_call call)
{
    struct fault_outcome outcome = {0};

    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < current.n; i++) {
        struct fault *fault = &current.list[i];

        if (fault->call != call) {
            continue;
        }
        fault->n_calls++;
        if (fault->n_calls >= fault->first && fault->n_calls <= fault->last) {
            outcome.delay_ns += fault->delay_ns;
            outcome.result = fault->result ? fault->result : outcome.result;
        }
    }
    outcome.lost = current.lost_at_ns && now_ns() >= current.lost_at_ns;
    pthread_mutex_unlock(&mutex);
    return outcome;
}

uint64_t fault_linger_ns(void)
{
    uint64_t ns;

    pthread_mutex_lock(&mutex);
    ns = current.linger_ns;
    pthread_mutex_unlock(&mutex);
    return ns;
}
