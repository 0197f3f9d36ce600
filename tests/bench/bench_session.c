/*
 * bench_session - what coming, taking and going cost: medians and 99th percentiles
 *
 * Connecting and closing, one array that is taken anew from a warm pool, and its
 * release, as the calling thread sees them. For information.
 */
#include <stdlib.h>

#include "harness.h"
#include "measure.h"
#include "outcome.h"
#include "tenant.h"

#define N_CONNECTS 500
#define N_ARRAYS   1000
#define ARRAY_SIZE ((uint64_t)4 << 20) /* bytes */

static double connect_us[N_CONNECTS], close_us[N_CONNECTS];
static double take_us[N_ARRAYS], release_us[N_ARRAYS];

/* Microseconds since *at_ns, which becomes now. */
static double lap_us(uint64_t *at_ns)
{
    uint64_t now_ns = measure_now_ns();
    double us = (double)(now_ns - *at_ns) * 1e-3;

    *at_ns = now_ns;
    return us;
}

int main(void)
{
    struct cubiemem_array array;
    struct harness harness;
    struct tenant tenant;

    harness_start(harness_device("sim:64MiB"), NULL, &harness);
    for (size_t i = 0; i < N_CONNECTS; i++) {
        uint64_t at_ns = measure_now_ns();
        struct cubiemem_client *client = harness_connect(&harness, NULL);
        connect_us[i] = lap_us(&at_ns);
        cubiemem_close(client);
        close_us[i] = lap_us(&at_ns);
    }
    tenant_open(&harness, "session", 0, &tenant);
    must(tenant_try(&tenant, ARRAY_SIZE, &array), "allocate");
    tenant_release(&tenant);
    for (size_t i = 0; i < N_ARRAYS; i++) {
        uint64_t at_ns = measure_now_ns();
        must(tenant_try(&tenant, ARRAY_SIZE, &array), "allocate");
        take_us[i] = lap_us(&at_ns);
        tenant_release(&tenant);
        release_us[i] = lap_us(&at_ns);
    }
    measure_report_spread("connect", connect_us, N_CONNECTS, "us");
    measure_report_spread("close", close_us, N_CONNECTS, "us");
    measure_report_spread("allocate 4 MiB, cached", take_us, N_ARRAYS, "us");
    measure_report_spread("release 4 MiB", release_us, N_ARRAYS, "us");
    tenant_close(&tenant);
    harness_stop(&harness);
    return 0;
}
