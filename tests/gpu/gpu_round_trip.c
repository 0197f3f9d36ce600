/*
 * gpu_round_trip - the shortest story: take, write, copy, read, give back
 *
 *   gpu_round_trip [SOCKET]      a daemon that runs already; none: one of its own
 *
 * Two arrays of several segments: a copy that crosses segment borders comes back
 * whole. Run by the MPS test too, with daemon and client under MPS.
 */
#include <stdio.h>
#include <stdlib.h>

#include "card.h"
#include "harness.h"
#include "outcome.h"
#include "tenant.h"

#define MIB  ((uint64_t)1 << 20)
#define WORD 0x5eed5eedu

int main(int argc, char **argv)
{
    const char *device = harness_device("sim:256MiB");
    /* On a GPU above the largest segment, so that blocks are stitched. */
    uint64_t size = harness_device_is_simulated(device) ? 32 * MIB : 1536 * MIB;
    struct cubiemem_array arrays[2];
    struct harness harness;
    struct tenant tenant;
    struct card card;

    if (argc > 1) {
        harness_prepare(device, &harness);
        snprintf(harness.socket, sizeof(harness.socket), "%s", argv[1]);
    } else {
        harness_start(device, NULL, &harness);
    }
    tenant_open(&harness, "round-trip", 0, &tenant);
    card_open(&harness, &card);
    card_use(&card);
    tenant_take(&tenant, (const uint64_t[]){size, size}, 2, arrays);
    CUdeviceptr from = (CUdeviceptr)arrays[0].pointer, to = (CUdeviceptr)arrays[1].pointer;
    card_fill(&card, from, size, WORD);
    card_must(&card, card.driver.cuMemcpyAsync(to, from, size, NULL), "cuMemcpyAsync");
    card_must(&card, card.driver.cuStreamSynchronize(NULL), "cuStreamSynchronize");
    expect(card_count_foreign(&card, to, size, WORD, NULL) == 0, "the copy is not the original");
    tenant_release(&tenant);
    expect(tenant_figure(&tenant, "lent_bytes") == 0, "released and still lent");
    tenant_close(&tenant);
    card_close(&card);
    if (argc == 1) {
        harness_stop(&harness);
    }
    return 0;
}
