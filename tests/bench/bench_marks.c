/*
 * bench_marks - what marking work costs, and what eviction and death cost others
 *
 * begin + end: as the program pays them, and without what the driver does for the
 * mark in the stream: its three calls (is the context current, is the stream captured,
 * write) are replaced by ones that do nothing.
 * Eviction: from the request to the grant when one idle holder of 8 GiB must go, less
 * what the driver takes for the same unmapping and mapping. Reclaiming: a small
 * request and status while the driver takes 5 s for each release. The last two on the
 * simulated device, whose memory is sparse.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client.h"
#include "harness.h"
#include "measure.h"
#include "outcome.h"
#include "player.h"
#include "tenant.h"
#include "watch.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define N_MARKS 200000
#define N_BATCH 100 /* marks between two waits */
#define N_EVICTIONS 9
#define HOLDING (8 * GIB)

/* ------------------------------------------------------------------- marks */

static CUresult CUDAAPI write_nothing(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned int flags)
{
    (void)stream;
    (void)address;
    (void)flags;
    (void)value;
    return CUDA_SUCCESS;
}

static CUcontext the_context;

static CUresult CUDAAPI current_context(CUcontext *context_p)
{
    *context_p = the_context;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI not_captured(CUstream stream, CUstreamCaptureStatus *status_p)
{
    (void)stream;
    *status_p = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

/* Nanoseconds for a pair, the work in the stream not counted. */
static double pair_ns(struct cubiemem_instance *instance, cubiemem_stream stream)
{
    double best = 1e9;

    for (int i = 0; i < N_MARKS / N_BATCH; i++) {
        uint64_t start_ns = measure_now_ns();
        for (int k = 0; k < N_BATCH; k++) {
            if (cubiemem_begin_work(instance) != CUBIEMEM_OK ||
                cubiemem_end_work(instance, stream) != CUBIEMEM_OK) {
                fail("a mark: %s", cubiemem_last_error()->text);
            }
        }
        double ns = (double)(measure_now_ns() - start_ns) / N_BATCH;
        best = ns < best ? ns : best;
    }
    return best;
}

static void marks(void)
{
    struct harness harness;
    struct tenant tenant;
    struct cubiemem_array array;
    cubiemem_stream stream;

    harness_start(harness_device("sim:64MiB"), NULL, &harness);
    tenant_open(&harness, "marks", 0, &tenant);
    must(tenant_try(&tenant, MIB, &array), "allocate");
    must(cubiemem_group_stream(tenant.instance, &stream), "stream");
    must(cubiemem_begin_work(tenant.instance), "begin");
    must(cubiemem_end_work(tenant.instance, stream), "end");
    must(cubiemem_sync(tenant.instance), "sync");
    double whole = pair_ns(tenant.instance, stream);
    must(cubiemem_sync(tenant.instance), "sync");

    struct mark *mark = &tenant.instance->owner->marks[0];
    struct control_stream *words = mark->slot.words;
    struct context *context = &tenant.client->context;
    the_context = context->context;
    context->driver.cuStreamWriteValue64 = write_nothing;
    context->driver.cuCtxGetCurrent = current_context;
    context->driver.cuStreamIsCapturing = not_captured;
    double own = pair_ns(tenant.instance, stream);
    atomic_store(&words->completed, atomic_load(&words->submitted));

    const bool simulated = harness_device_is_simulated(harness.device);
    measure_report("begin + end, without the stream's own work", own, "ns",
                   simulated ? 100 : MEASURE_NO_LIMIT);
    measure_report("begin + end", whole, "ns", simulated ? MEASURE_NO_LIMIT : 3000);
    tenant_close(&tenant);
    harness_stop(&harness);
}

/* ---------------------------------------------------------------- eviction */

static double take_ms(struct player *player, uint64_t size)
{
    uint64_t start_ns = measure_now_ns();
    int status = player_take(player, size);

    expect(status == CUBIEMEM_OK, "%s: %s", player->role.name, cubiemem_status_name(status));
    return (double)(measure_now_ns() - start_ns) * 1e-6;
}

/* One begin and end without a touch of the 8 GiB. */
static void use(struct player *player)
{
    expect(player_begin(player) == CUBIEMEM_OK, "begin");
    player_end(player);
    player_do(player, &(struct player_order){.what = PLAYER_SYNC});
}

static void evictions(void)
{
    struct harness harness;
    struct player sides[2];
    double evicting_ms[N_EVICTIONS], driver_ms[N_EVICTIONS];
    const struct harness_options options = {
        .arguments = (const char *const[]){"--mode", "passive", NULL}};

    harness_start("sim:10GiB", &options, &harness);
    for (int i = 0; i < 2; i++) {
        player_start(&sides[i], &harness, i == 0 ? "first" : "second");
        player_register(&sides[i], PLAYER_COUNTS);
    }
    /* The driver's own time: the same blocks given back and mapped again. */
    take_ms(&sides[0], HOLDING);
    for (int i = 0; i < N_EVICTIONS; i++) {
        uint64_t start_ns = measure_now_ns();
        player_do(&sides[0], &(struct player_order){.what = PLAYER_RELEASE});
        take_ms(&sides[0], HOLDING);
        driver_ms[i] = (double)(measure_now_ns() - start_ns) * 1e-6;
    }
    use(&sides[0]);
    for (int i = 0; i < N_EVICTIONS; i++) {
        struct player *asker = &sides[(i + 1) % 2];
        evicting_ms[i] = take_ms(asker, HOLDING);
        use(asker);
    }
    double evicting = measure_median(evicting_ms, N_EVICTIONS);
    double driver = measure_median(driver_ms, N_EVICTIONS);
    measure_report("request to grant, an idle holder of 8 GiB goes", evicting, "ms",
                   MEASURE_NO_LIMIT);
    measure_report("beyond release and grant without a victim",
                   evicting > driver ? evicting - driver : 0, "ms", 20);
    player_close(&sides[0]);
    player_close(&sides[1]);
    harness_stop(&harness);
}

/* -------------------------------------------------------------- reclaiming */

static void reclaiming(void)
{
    struct harness harness;
    struct watch watch;
    struct player holder, other;
    double request_ms = 1e9, status_ms = 1e9;
    const struct harness_options options = {
        .arguments = (const char *const[]){"--mode", "passive", NULL},
        .variables = (const char *const[]){"CUBIEMEM_SIM_FAULTS=cuMemRelease:*~5s", NULL}};

    harness_start("sim:512MiB", &options, &harness);
    watch_open(&harness, &watch);
    player_start(&other, &harness, "other");
    player_register(&other, PLAYER_NO_HOOK);
    player_start(&holder, &harness, "holder");
    player_register(&holder, PLAYER_NO_HOOK);
    for (int i = 0; i < 64; i++) {
        struct player_order order = {.what = PLAYER_TAKE, .size = 2 * MIB};
        snprintf(order.text, sizeof(order.text), "lease %d", i);
        expect(player_do(&holder, &order).status == CUBIEMEM_OK, "lease %d", i);
    }
    player_kill(&holder);
    watch_until_n_clients(&watch, 1, 2000);
    for (int i = 0; i < 3; i++) {
        struct player_order order = {.what = PLAYER_TAKE, .size = 4096};
        snprintf(order.text, sizeof(order.text), "small %d", i);
        uint64_t start_ns = measure_now_ns();
        expect(player_do(&other, &order).status == CUBIEMEM_OK, "a small request");
        double ms = (double)(measure_now_ns() - start_ns) * 1e-6;
        request_ms = ms < request_ms ? ms : request_ms;
        start_ns = measure_now_ns();
        watch_figure(&watch, "draining_bytes");
        ms = (double)(measure_now_ns() - start_ns) * 1e-6;
        status_ms = ms < status_ms ? ms : status_ms;
    }
    measure_report("small request while 64 releases take 5 s each", request_ms, "ms", 10);
    measure_report("status meanwhile", status_ms, "ms", 10);
    player_close(&other);
    watch_close(&watch);
    harness_stop(&harness);
}

int main(void)
{
    reclaiming();
    evictions();
    marks(); /* the last: from here on this process has a context, and does not fork */
    return 0;
}
