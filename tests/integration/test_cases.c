/*
 * test_cases - rows of the list of what goes wrong in programs of this kind
 *
 * Each story is named after its row. Those that are about protocol, sizes, tools and
 * death are in the tests of these.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "measure.h"
#include "outcome.h"
#include "player.h"
#include "tenant.h"
#include "watch.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define GRANULE (2 * MIB)
#define N_CYCLES 5000
#define N_ROUNDS 1000

static struct harness harness;
static struct watch watch;

static void open_daemon(const char *device)
{
    const struct harness_options options = {
        .arguments = (const char *const[]){"--mode", "passive", NULL}};

    harness_start(device, &options, &harness);
    watch_open(&harness, &watch);
}

static void close_daemon(void)
{
    watch_until_n_clients(&watch, 0, 5000);
    watch_until(&watch, "draining_bytes", 0, 5000);
    watch_until(&watch, "lent_bytes", 0, 5000);
    watch_balance_at_rest(&watch);
    watch_close(&watch);
    harness_stop(&harness);
}

static void open_player(struct player *player_p, const char *name)
{
    player_start(player_p, &harness, name);
    player_register(player_p, PLAYER_COUNTS);
}

static struct player_answer release_all(struct player *player)
{
    return player_do(player, &(struct player_order){.what = PLAYER_RELEASE});
}

static void case_12_cycles_leave_nothing(void)
{
    struct player a;
    uint64_t rss_kib = 0;
    int fds = 0;

    open_daemon("sim:64MiB");
    open_player(&a, "a");
    for (int i = 0; i < N_CYCLES; i++) {
        expect(player_take(&a, (uint64_t)(1 + i % 7) * MIB) == CUBIEMEM_OK, "cycle %d", i);
        release_all(&a);
        if (i == N_CYCLES / 10) {
            rss_kib = watch_daemon_rss_kib(&watch);
            fds = watch_daemon_fds(&watch);
        }
    }
    watch_until(&watch, "lent_bytes", 0, 2000);
    expect(watch_daemon_fds(&watch) <= fds + 16, "%d descriptors, then %d", fds,
           watch_daemon_fds(&watch));
    expect(watch_daemon_rss_kib(&watch) <= rss_kib + RSS_SLACK_KIB, "the daemon grew");
    player_close(&a);
    close_daemon();
}

/* Two ask at once for more than half: exactly one is granted. */
static void case_13_two_do_not_pass_one_limit(void)
{
    struct player sides[2];
    const struct player_order take = {.what = PLAYER_TAKE, .size = 600 * MIB};

    open_daemon("sim:1GiB");
    open_player(&sides[0], "first");
    open_player(&sides[1], "second");
    for (int i = 0; i < N_ROUNDS; i++) {
        player_tell(&sides[i % 2], &take);
        player_tell(&sides[(i + 1) % 2], &take);
        int n = 0;
        for (int k = 0; k < 2; k++) {
            n += player_hear(&sides[k]).status == CUBIEMEM_OK;
        }
        expect(n == 1, "%d were granted in round %d", n, i);
        release_all(&sides[0]);
        release_all(&sides[1]);
        watch_until(&watch, "lent_bytes", 0, 2000);
    }
    player_close(&sides[0]);
    player_close(&sides[1]);
    close_daemon();
}

static void case_22_all_or_nothing(void)
{
    struct tenant tenant;
    struct cubiemem_array_request requests[3] = {0};
    struct cubiemem_response *response;
    const int64_t shapes[3] = {20 * MIB, 20 * MIB, 40 * MIB};
    const char *labels[3] = {"a", "b", "c"};

    tenant_open(&harness, "three", 0, &tenant);
    for (int i = 0; i < 3; i++) {
        requests[i] = (struct cubiemem_array_request){
            .size = sizeof(requests[i]), .label = labels[i], .shape = &shapes[i], .rank = 1,
            .dtype = CUBIEMEM_UINT8, .chunk_axis_index = CUBIEMEM_AXIS_NONE, .unchunkable = 1};
    }
    must(cubiemem_queue(tenant.instance, requests, 3), "queue");
    expect(cubiemem_allocate(tenant.instance, NULL, &response) == CUBIEMEM_UNCHUNKABLE_TOO_LARGE,
           "three arrays fit");
    expect(tenant_figure(&tenant, "lent_bytes") == 0, "some of them were granted");
    must(cubiemem_queue(tenant.instance, requests, 2), "queue");
    must(cubiemem_allocate(tenant.instance, NULL, &response), "two arrays");
    cubiemem_response_free(response);
    tenant_close(&tenant);
}

static void take_exactly(struct tenant *tenant, uint64_t size, uint64_t charged)
{
    struct cubiemem_array array;

    must(tenant_try(tenant, size, &array), "allocate");
    expect(array.nbytes == size, "%" PRIu64 " bytes of %" PRIu64, array.nbytes, size);
    uint64_t lent = tenant_figure(tenant, "lent_bytes");
    expect(lent == charged, "%" PRIu64 " bytes are charged %" PRIu64, size, lent);
    tenant_release(tenant);
}

static void case_23_the_last_byte_can_be_had(void)
{
    struct tenant tenant;
    struct cubiemem_array array;

    tenant_open(&harness, "edge", 0, &tenant);
    take_exactly(&tenant, GRANULE - 1, GRANULE);
    take_exactly(&tenant, GRANULE, GRANULE);
    take_exactly(&tenant, GRANULE + 1, 2 * GRANULE);
    take_exactly(&tenant, 64 * MIB, 64 * MIB);
    take_exactly(&tenant, 64 * MIB - 1, 64 * MIB);
    expect(tenant_try(&tenant, 64 * MIB + 1, &array) != CUBIEMEM_OK, "more than there is");
    tenant_close(&tenant);
}

static void tell_22_and_23(int fd, const void *argument)
{
    (void)fd;
    (void)argument;
    case_22_all_or_nothing();
    case_23_the_last_byte_can_be_had();
}

static void case_22_23_edges(void)
{
    struct role role;

    open_daemon("sim:64MiB");
    role_start(&role, "edges", tell_22_and_23, NULL);
    role_finish(&role);
    close_daemon();
}

static void case_28_no_rounding_to_powers_of_two(void)
{
    struct player a;

    open_daemon("sim:12GiB");
    open_player(&a, "a");
    expect(player_take(&a, 10 * GIB + 1000) == CUBIEMEM_OK, "10 GiB");
    uint64_t charged = watch_client(&watch, "a", "held_bytes");
    expect(charged == 10 * GIB + GRANULE, "10 GiB are charged %" PRIu64, charged);
    player_close(&a);
    close_daemon();
}

/* A replaces while its stream works in the old array: nobody has that before. */
static void case_29_not_before_the_stream_is_through(void)
{
    struct player a, b;

    open_daemon("sim:64MiB");
    open_player(&a, "a");
    open_player(&b, "b");
    expect(player_take(&a, 60 * MIB) == CUBIEMEM_OK, "a");
    expect(player_begin(&a) == CUBIEMEM_OK, "begin");
    player_do(&a, &(struct player_order){.what = PLAYER_DELAY, .size = 400000000});
    player_end(&a);
    uint64_t start_ns = measure_now_ns();
    player_tell(&a, &(struct player_order){.what = PLAYER_TAKE, .size = 2 * MIB});
    while (player_take(&b, 60 * MIB) != CUBIEMEM_OK) {
        expect(measure_now_ns() - start_ns < 5000000000u, "b gets nothing");
    }
    expect(measure_now_ns() - start_ns > 300000000u, "b has what a still works in");
    expect(player_hear(&a).status == CUBIEMEM_OK, "a");
    player_close(&a);
    player_close(&b);
    close_daemon();
}

static const struct {
    const char *name;
    void (*tell)(void);
} stories[] = {
    {"case_12: cycles leave nothing", case_12_cycles_leave_nothing},
    {"case_13: two do not pass one limit", case_13_two_do_not_pass_one_limit},
    {"case_22, case_23: all or nothing; the last byte", case_22_23_edges},
    {"case_28: no rounding to powers of two", case_28_no_rounding_to_powers_of_two},
    {"case_29: not before the stream is through", case_29_not_before_the_stream_is_through},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++) {
        if (argc > 1 && strstr(stories[i].name, argv[1]) == NULL) {
            continue;
        }
        printf("%s\n", stories[i].name);
        fflush(stdout);
        stories[i].tell();
    }
    return 0;
}
