/*
 * gpu_copy - copies in lent memory are as fast as in memory of cuMemAlloc
 *
 * The same copy on the device, one after the other in both kinds of memory, so that
 * clocks and neighbours are the same for both; medians of many. A lent block is at
 * least 99 % as fast. The simulated device moves the same bytes and is not held to it:
 * there both are the host's memory.
 */
#include <stdio.h>
#include <stdlib.h>

#include "card.h"
#include "harness.h"
#include "measure.h"
#include "outcome.h"
#include "tenant.h"

#define MIB           ((uint64_t)1 << 20)
#define N_SAMPLES     31
#define LEAST_PERCENT 99.0

struct pair {
    CUdeviceptr from, to;
};

/* Bytes a second, of reading and writing together as card makers count. */
static double copy_rate(const struct card *card, const struct pair *pair, uint64_t size, int n)
{
    uint64_t begin_ns = measure_now_ns();

    for (int i = 0; i < n; i++) {
        card_must(card, card->driver.cuMemcpyAsync(pair->to, pair->from, size, NULL),
                  "cuMemcpyAsync");
    }
    card_must(card, card->driver.cuStreamSynchronize(NULL), "cuStreamSynchronize");
    return 2.0 * (double)size * n / ((double)(measure_now_ns() - begin_ns) * 1e-9);
}

int main(void)
{
    const char *device = harness_device("sim:256MiB");
    bool simulated = harness_device_is_simulated(device);
    uint64_t size = simulated ? 16 * MIB : 1024 * MIB;
    int n_copies = simulated ? 1 : 40;
    double in_lent[N_SAMPLES], in_plain[N_SAMPLES], in_percent[N_SAMPLES];
    struct cubiemem_array arrays[2];
    struct pair lent, plain;
    struct harness harness;
    struct tenant tenant;
    struct card card;

    harness_start(device, NULL, &harness);
    tenant_open(&harness, "copy", 0, &tenant);
    card_open(&harness, &card);
    card_use(&card);
    tenant_take(&tenant, (const uint64_t[]){size, size}, 2, arrays);
    lent = (struct pair){(CUdeviceptr)arrays[0].pointer, (CUdeviceptr)arrays[1].pointer};
    card_must(&card, card.driver.cuMemAlloc(&plain.from, size), "cuMemAlloc");
    card_must(&card, card.driver.cuMemAlloc(&plain.to, size), "cuMemAlloc");
    card_fill(&card, lent.from, size, 1);
    card_fill(&card, plain.from, size, 2);
    copy_rate(&card, &lent, size, n_copies); /* both warm */
    copy_rate(&card, &plain, size, n_copies);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        in_lent[i] = copy_rate(&card, &lent, size, n_copies);
        in_plain[i] = copy_rate(&card, &plain, size, n_copies);
        in_percent[i] = 100 * in_lent[i] / in_plain[i];
    }
    expect(card_count_foreign(&card, lent.to, size, 1, NULL) == 0, "the copy is not the original");
    card.driver.cuMemFree(plain.from);
    card.driver.cuMemFree(plain.to);
    tenant_close(&tenant);
    card_close(&card);
    harness_stop(&harness);

    double percent = 100 * measure_median(in_lent, N_SAMPLES) / measure_median(in_plain, N_SAMPLES);
    printf("copy_lent\t%.1f\tGB/s\t\n", measure_median(in_lent, N_SAMPLES) * 1e-9);
    printf("copy_cuMemAlloc\t%.1f\tGB/s\t\n", measure_median(in_plain, N_SAMPLES) * 1e-9);
    printf("copy_lent_slower\t%.2f\t%%\t%s\n", 100 - percent, simulated ? "" : "1");
    printf("copy_pairs_slower\t%.2f\t%%\t\n", 100 - measure_median(in_percent, N_SAMPLES));
    expect(simulated || percent >= LEAST_PERCENT, "a lent block copies at %.2f %% of cuMemAlloc",
           percent);
    return 0;
}
