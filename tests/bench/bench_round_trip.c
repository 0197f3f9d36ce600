/*
 * bench_round_trip - what a word with the daemon costs a calling thread
 *
 * Ping, and the ArrayRequest of six arrays whose blocks are mapped already (the same
 * shapes again: one round trip, nothing to map), held against a bare echo of the same
 * size over a SOCK_SEQPACKET pair with poll. All are measured in the same run, in turn,
 * the caller on one processor, daemon and echo on another; medians. The same request
 * after a release, with new mapping, is reported beside it.
 */
#include <stdlib.h>

#include "echo.h"
#include "harness.h"
#include "measure.h"
#include "outcome.h"
#include "role.h"
#include "tenant.h"

#define N_ROUNDS     100
#define N_EACH       50 /* of each kind in a round */
#define N_SAMPLES    ((size_t)N_ROUNDS * N_EACH)
#define N_NEW        500
#define N_ARRAYS     6
#define PING_SIZE    8 /* bytes of a packet, either way */
#define REQUEST_SIZE 384
#define PATIENCE_NS  10000000000

#define KIB ((uint64_t)1 << 10)

static double ping_us[N_SAMPLES], ping_floor_us[N_SAMPLES];
static double request_us[N_SAMPLES], request_floor_us[N_SAMPLES];
static double new_us[N_NEW];

/* A batch as a solver has it: four large arrays, two small ones. 18 MiB. */
static const uint64_t sizes[N_ARRAYS] = {4096 * KIB, 6144 * KIB, 4096 * KIB,
                                         2048 * KIB, 512 * KIB,  64 * KIB};

static double since_us(uint64_t begin_ns)
{
    return (double)(measure_now_ns() - begin_ns) * 1e-3;
}

static double ping_once(const struct tenant *tenant)
{
    uint64_t begin_ns = measure_now_ns();

    must(cubiemem_ping(tenant->client, PATIENCE_NS), "ping");
    return since_us(begin_ns);
}

static double request_once(struct tenant *tenant)
{
    struct cubiemem_array arrays[N_ARRAYS];
    uint64_t begin_ns = measure_now_ns();

    tenant_take(tenant, sizes, N_ARRAYS, arrays);
    return since_us(begin_ns);
}

static double new_request_once(struct tenant *tenant)
{
    struct cubiemem_array arrays[N_ARRAYS];
    uint64_t begin_ns = measure_now_ns();

    tenant_release(tenant);
    tenant_take(tenant, sizes, N_ARRAYS, arrays);
    return since_us(begin_ns);
}

static void measure(struct tenant *tenant, const struct role *echo)
{
    size_t at = 0;

    request_once(tenant); /* maps */
    for (int round = 0; round < N_ROUNDS; round++, at += N_EACH) {
        for (size_t i = 0; i < N_EACH; i++) {
            ping_floor_us[at + i] = echo_once(echo, PING_SIZE);
        }
        for (size_t i = 0; i < N_EACH; i++) {
            ping_us[at + i] = ping_once(tenant);
        }
        for (size_t i = 0; i < N_EACH; i++) {
            request_floor_us[at + i] = echo_once(echo, REQUEST_SIZE);
        }
        for (size_t i = 0; i < N_EACH; i++) {
            request_us[at + i] = request_once(tenant);
        }
    }
    for (size_t i = 0; i < N_NEW; i++) {
        new_us[i] = new_request_once(tenant);
    }
}

/* Where the time of a request goes that is not the socket's. */
static void report_processor_time(const struct harness *harness, struct tenant *tenant)
{
    uint64_t daemon_ns = measure_processor_ns(harness->pid);
    uint64_t caller_ns = measure_processor_ns(0);

    for (int i = 0; i < N_NEW; i++) {
        request_once(tenant);
    }
    measure_report("six arrays, processor time of the caller",
                   (double)(measure_processor_ns(0) - caller_ns) * 1e-3 / N_NEW, "us",
                   MEASURE_NO_LIMIT);
    measure_report("six arrays, processor time of the daemon",
                   (double)(measure_processor_ns(harness->pid) - daemon_ns) * 1e-3 / N_NEW, "us",
                   MEASURE_NO_LIMIT);
}

static void report(bool simulated)
{
    double ping_floor = measure_median(ping_floor_us, N_SAMPLES);
    double request_floor = measure_median(request_floor_us, N_SAMPLES);
    double ping = measure_median(ping_us, N_SAMPLES);
    double request = measure_median(request_us, N_SAMPLES);

    measure_report("echo of 8 bytes (raw floor)", ping_floor, "us", MEASURE_NO_LIMIT);
    measure_report("ping", ping, "us", MEASURE_NO_LIMIT);
    measure_report("ping / floor", ping / ping_floor, "x", 1.5);
    measure_report("echo of 384 bytes (raw floor)", request_floor, "us", MEASURE_NO_LIMIT);
    measure_report("six arrays, mapped already", request, "us", MEASURE_NO_LIMIT);
    measure_report("six arrays, mapped already / floor", request / request_floor, "x",
                   simulated ? 2 : MEASURE_NO_LIMIT);
    measure_report("six arrays, released and mapped anew", measure_median(new_us, N_NEW), "us",
                   MEASURE_NO_LIMIT);
    measure_report_spread("ping", ping_us, N_SAMPLES, "us");
    measure_report_spread("six arrays, mapped already", request_us, N_SAMPLES, "us");
}

int main(void)
{
    const char *device = harness_device("sim:64MiB");
    struct harness harness;
    struct tenant tenant;
    struct role echo;

    echo_start(&echo);
    harness_start(device, NULL, &harness);
    measure_pin(0, 0); /* and the library's thread with it */
    measure_pin(harness.pid, 1);
    tenant_open(&harness, "round-trip", 0, &tenant);
    measure(&tenant, &echo);
    report(harness_device_is_simulated(device));
    report_processor_time(&harness, &tenant);
    tenant_close(&tenant);
    echo_stop(&echo);
    harness_stop(&harness);
    return 0;
}
