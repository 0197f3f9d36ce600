/*
 * bench_idle - what a daemon costs that has nothing to do
 *
 * Host memory with no client and with 1000 connections, and how often it wakes up in
 * 10 s of silence: never. The limits are the simulated device's; on a GPU the driver's
 * own memory and threads come on top and the figures are for information.
 */
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "harness.h"
#include "measure.h"
#include "outcome.h"

#define N_CONNECTIONS 1000
#define SILENCE_S     10

static void sleep_s(time_t s)
{
    nanosleep(&(struct timespec){.tv_sec = s}, NULL);
}

static double rss_mib(const struct harness *harness)
{
    return (double)measure_status_kib(harness->pid, "VmRSS:") / 1024;
}

/* As many descriptors as we are allowed; two a connection are needed. */
static void raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_max < 4 * N_CONNECTIONS) {
        skip("this process may open %llu files only", (unsigned long long)limit.rlim_max);
    }
}

int main(void)
{
    const char *device = harness_device("sim:64MiB");
    bool simulated = harness_device_is_simulated(device);
    /* No thread each: what is measured is the daemon. */
    const struct cubiemem_options options = {.size = sizeof(options), .manual_dispatch = 1};
    static struct cubiemem_client *clients[N_CONNECTIONS];
    struct harness harness;

    raise_limit();
    harness_start(device, NULL, &harness);
    sleep_s(1);
    uint64_t n_wakeups = measure_wakeups(harness.pid);
    sleep_s(SILENCE_S);
    n_wakeups = measure_wakeups(harness.pid) - n_wakeups;
    measure_report("wakeups in 10 s, idle", (double)n_wakeups, "",
                   simulated ? 0 : MEASURE_NO_LIMIT);
    measure_report("RSS, no client", rss_mib(&harness), "MiB", simulated ? 20 : MEASURE_NO_LIMIT);
    for (size_t i = 0; i < N_CONNECTIONS; i++) {
        clients[i] = harness_connect(&harness, &options);
    }
    measure_report("RSS, 1000 connections", rss_mib(&harness), "MiB",
                   simulated ? 64 : MEASURE_NO_LIMIT);
    for (size_t i = 0; i < N_CONNECTIONS; i++) {
        cubiemem_close(clients[i]);
    }
    harness_stop(&harness);
    return 0;
}
