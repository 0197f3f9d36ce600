/*
 * gpu_cycles - the books and the device agree before and after 1000 leases
 *
 * A client takes and gives back arrays of changing sizes. Whatever is lent is used on
 * the device, what came back is cached or used no more, and when client and daemon
 * are gone so is everything that they took (CASES 12).
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "card.h"
#include "harness.h"
#include "outcome.h"
#include "role.h"
#include "tenant.h"

#define MIB         ((uint64_t)1 << 20)
#define N_CYCLES    1000
#define PATIENCE_MS 10000
/* Other programs' and the driver's own bytes may move by so much on a real card. */
#define DRIFT (8 * MIB)

struct plan {
    const struct harness *harness;
    uint64_t unit; /* bytes */
};

/* What is booked is what the device says, to the drift of what is not ours. */
static void books_must_match(struct tenant *tenant, const struct card *card, uint64_t lent,
                             const char *when)
{
    static const char *const parts[] = {"lent_bytes", "cached_bytes", "draining_bytes",
                                        "others_bytes"};
    uint64_t booked = 0;

    uint64_t is_lent = tenant_figure(tenant, "lent_bytes");
    expect(is_lent == lent, "%s: %" PRIu64 " bytes are lent, not %" PRIu64, when, is_lent, lent);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        booked += tenant_figure(tenant, parts[i]);
    }
    uint64_t used = card_used(card);
    uint64_t off = used > booked ? used - booked : booked - used;
    expect(off <= DRIFT, "%s: %" PRIu64 " bytes are booked, %" PRIu64 " used", when, booked, used);
}

static void client_run(int fd, const void *argument)
{
    const struct plan *plan = argument;
    struct cubiemem_array arrays[3];
    struct tenant tenant;
    struct card card;

    (void)fd;
    tenant_open(plan->harness, "cycles", 0, &tenant);
    card_open(plan->harness, &card);
    card_use(&card);
    for (unsigned int i = 0; i < N_CYCLES; i++) {
        const uint64_t sizes[] = {(1 + i % 3) * plan->unit, (1 + i % 5) * plan->unit, 4096};
        tenant_take(&tenant, sizes, 3, arrays);
        card_must(&card,
                  card.driver.cuMemsetD8Async((CUdeviceptr)arrays[i % 3].pointer, 0xa5,
                                              arrays[i % 3].nbytes, NULL),
                  "cuMemsetD8Async");
        card_must(&card, card.driver.cuStreamSynchronize(NULL), "cuStreamSynchronize");
        if (i % 100 == 0) {
            struct cubiemem_instance_info info = {.size = sizeof(info)};
            must(cubiemem_instance_info(tenant.instance, &info), "instance_info");
            books_must_match(&tenant, &card, info.allocated, "while lent");
        }
        tenant_release(&tenant);
        if (i % 100 == 0) {
            books_must_match(&tenant, &card, 0, "after a release");
        }
    }
    tenant_close(&tenant);
    card_close(&card);
}

/* Nothing is lent or draining any more; returns what is cached. */
static uint64_t wait_until_quiet(struct tenant *viewer)
{
    uint64_t draining = 1;

    for (int waited_ms = 0; draining != 0 && waited_ms < PATIENCE_MS; waited_ms += 100) {
        struct timespec pause = {.tv_nsec = 100000000};
        nanosleep(&pause, NULL);
        draining = tenant_figure(viewer, "draining_bytes");
    }
    expect(draining == 0, "%" PRIu64 " bytes are still draining", draining);
    uint64_t lent = tenant_figure(viewer, "lent_bytes");
    expect(lent == 0, "%" PRIu64 " bytes are lent to nobody", lent);
    return tenant_figure(viewer, "cached_bytes");
}

int main(void)
{
    const char *device = harness_device("sim:256MiB");
    struct harness harness;
    struct plan plan = {.harness = &harness,
                        .unit = harness_device_is_simulated(device) ? 2 * MIB : 64 * MIB};
    struct tenant viewer = {0};
    struct role client;
    struct card card;

    harness_prepare(device, &harness);
    card_watch(&harness, &card);
    uint64_t idle = card_used(&card);
    harness_launch(&harness, NULL);
    role_start(&client, "client", client_run, &plan);
    role_finish(&client);

    viewer.client = harness_connect(&harness, NULL);
    uint64_t cached = wait_until_quiet(&viewer);
    uint64_t used = card_wait_used(&card, idle + cached + DRIFT, PATIENCE_MS);
    expect(used <= idle + cached + DRIFT,
           "%" PRIu64 " bytes more are used than before, of which only %" PRIu64 " are cached",
           used - idle, cached);
    cubiemem_close(viewer.client);
    harness_end_daemon(&harness);
    used = card_wait_used(&card, idle + DRIFT, PATIENCE_MS);
    expect(used <= idle + DRIFT, "%" PRIu64 " bytes stayed behind the daemon", used - idle);
    printf("%d leases: the books agree, %" PRIu64 " MiB were cached, nothing stayed behind\n",
           N_CYCLES, cached / MIB);
    card_close(&card);
    harness_stop(&harness);
    return 0;
}
