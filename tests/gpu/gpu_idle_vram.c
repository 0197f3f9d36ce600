/*
 * gpu_idle_vram - what a daemon that has lent nothing takes of the card
 *
 * It has no context (DESIGN 3.1), so it is a few MiB: at most 16 over an idle card,
 * as NVML counts. Nobody else, this program included, has the driver open meanwhile.
 * Prints the figure as a benchmark does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "card.h"
#include "harness.h"
#include "outcome.h"

#define MIB       ((uint64_t)1 << 20)
#define LIMIT_MIB 16

int main(void)
{
    struct harness harness;
    struct card card;

    harness_prepare(harness_device("sim:256MiB"), &harness);
    card_watch(&harness, &card);
    uint64_t idle = card_used(&card);
    harness_launch(&harness, NULL);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    uint64_t used = card_used(&card);
    uint64_t more = used > idle ? used - idle : 0;
    printf("vram_daemon_idle\t%.1f\tMiB\t%d\n", (double)more / (double)MIB, LIMIT_MIB);
    card_close(&card);
    harness_stop(&harness);
    expect(more <= LIMIT_MIB * MIB, "the daemon takes %" PRIu64 " bytes of the card", more);
    return 0;
}
