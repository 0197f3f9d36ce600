/*
 * test_death - clients that end in every way but the polite one
 *
 * Whatever one does, another is served within a second, the books balance, and the
 * daemon keeps no descriptor and no memory of it (DESIGN 3.3). The real daemon and
 * library on a simulated device of 64 MiB, passive mode.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "outcome.h"
#include "player.h"
#include "tenant.h"
#include "watch.h"

#define MIB ((uint64_t)1 << 20)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SERVED_WITHIN_S 10 /* what a sanitizer costs is not the daemon's */
#else
#define SERVED_WITHIN_S 1
#endif
#define SERVED_WITHIN_NS ((uint64_t)SERVED_WITHIN_S * 1000000000)
#define N_KILLS 200
#define KILL_WITHIN_US 60000 /* a script takes about 40 ms */
#define N_SHORT 1000

static struct harness harness;
static struct watch watch;

static void open_daemon(const char *device, const char *faults)
{
    char variable[128];
    const char *variables[] = {variable, NULL};
    const struct harness_options options = {
        .arguments = (const char *const[]){"--mode", "passive", NULL},
        .variables = faults != NULL ? variables : NULL,
    };

    snprintf(variable, sizeof(variable), "CUBIEMEM_SIM_FAULTS=%s", faults != NULL ? faults : "");
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

static void pause_us(unsigned int us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* Another client asks, again and again, and is served within a second. Nothing is
 * kept. */
static void expect_served(struct player *other, uint64_t size)
{
    uint64_t start_ns = measure_now_ns();
    int status;

    while ((status = player_take(other, size)) != CUBIEMEM_OK) {
        expect(status == CUBIEMEM_UNCHUNKABLE_TOO_LARGE || status == CUBIEMEM_NO_MEMORY, "%s: %s",
               other->role.name, cubiemem_status_name(status));
        expect(measure_now_ns() - start_ns < SERVED_WITHIN_NS, "%s is not served in time",
               other->role.name);
        pause_us(2000);
    }
    expect(measure_now_ns() - start_ns < SERVED_WITHIN_NS, "%s was served too late", other->role.name);
    expect(player_do(other, &(struct player_order){.what = PLAYER_RELEASE}).status == CUBIEMEM_OK,
           "release");
}

static void expect_held(const char *client, uint64_t size)
{
    watch_until_client(&watch, client, "held_bytes", size, 2000);
}

static void open_other(struct player *other_p)
{
    player_start(other_p, &harness, "other");
    player_register(other_p, PLAYER_NO_HOOK);
}

static void holder(struct player *player_p, uint64_t size)
{
    player_start(player_p, &harness, "holder");
    player_register(player_p, PLAYER_COUNTS);
    expect(player_take(player_p, size) == CUBIEMEM_OK, "the holder gets nothing");
}

/* The daemon's descriptors, but for those of the pool: ours and the simulated
 * driver's for each segment. Nothing is lent. */
static int own_fds(void)
{
    return watch_daemon_fds(&watch) - 2 * (int)watch_figure(&watch, "cached_segments");
}

/* The last ones are closed a moment after their sessions have ended. */
static void expect_own_fds(int fds)
{
    for (int waited_ms = 0; own_fds() != fds && waited_ms < 2000; waited_ms += 10) {
        pause_us(10000);
    }
    expect(own_fds() == fds, "the daemon had %d descriptors and has %d", fds, own_fds());
}

/* ------------------------------------------------------------ random points */

/* One life: all that a client does, once. */
static void script(int fd, const void *argument)
{
    struct tenant tenant;
    struct cubiemem_array arrays[3];
    const uint64_t sizes[] = {3 * MIB, 1000, 9 * MIB};

    (void)fd;
    (void)argument;
    tenant_open(&harness, "victim", 0, &tenant);
    for (int round = 0; round < 4; round++) {
        tenant_take(&tenant, sizes, 3, arrays);
        must(cubiemem_begin_work(tenant.instance), "begin_work");
        memset(arrays[2].pointer, round, arrays[2].nbytes);
        must(cubiemem_end_work(tenant.instance, NULL), "end_work");
        tenant_take(&tenant, &sizes[round % 3], 1, arrays); /* another shape of "a" */
        tenant_release(&tenant);
    }
    tenant_take(&tenant, sizes, 3, arrays);
    tenant_close(&tenant);
}

static void killed_at_random_points(void)
{
    struct player other;
    struct role victim;
    int fds = 0;
    uint64_t rss_kib = 0;

    open_daemon("sim:64MiB", NULL);
    open_other(&other);
    srand(20261130);
    for (int i = 0; i < N_KILLS; i++) {
        role_start(&victim, "victim", script, NULL);
        pause_us((unsigned int)(rand() % KILL_WITHIN_US));
        role_kill(&victim);
        expect_served(&other, 60 * MIB);
        watch_balance(&watch);
        if (i == N_KILLS / 10) { /* warm */
            watch_until_n_clients(&watch, 1, 2000);
            watch_until(&watch, "draining_bytes", 0, 2000);
            fds = own_fds();
            rss_kib = watch_daemon_rss_kib(&watch);
        }
    }
    watch_until_n_clients(&watch, 1, 2000);
    watch_until(&watch, "draining_bytes", 0, 2000);
    watch_balance_at_rest(&watch);
    expect_own_fds(fds);
    expect(watch_daemon_rss_kib(&watch) <= rss_kib + RSS_SLACK_KIB,
           "the daemon had %" PRIu64 " KiB and has %" PRIu64, rss_kib,
           watch_daemon_rss_kib(&watch));
    player_close(&other);
    close_daemon();
}

/* A cached segment was taken for it, and another is being made. */
static void killed_while_its_memory_is_made(void)
{
    struct player player, other;

    open_daemon("sim:64MiB", "cuMemCreate:2+~150ms");
    open_other(&other);
    expect_served(&other, 8 * MIB);
    player_start(&player, &harness, "holder");
    player_register(&player, PLAYER_COUNTS);
    player_tell(&player, &(struct player_order){.what = PLAYER_TAKE, .size = 16 * MIB});
    expect(!player_has_answered(&player, 50), "the memory is made too fast");
    player_kill(&player);
    watch_until_n_clients(&watch, 1, 2000);
    watch_until(&watch, "promised_bytes", 0, 2000);
    watch_balance_at_rest(&watch);
    expect_served(&other, 60 * MIB);
    player_close(&other);
    close_daemon();
}

/* -------------------------------------------------------------- other ends */

static void ends_without_release(enum player_do how)
{
    struct player player, other;

    open_daemon("sim:64MiB", NULL);
    open_other(&other);
    holder(&player, 40 * MIB);
    player_do(&player, &(struct player_order){.what = how});
    expect_served(&other, 60 * MIB);
    watch_until_n_clients(&watch, 1, 2000);
    player_kill(&player);
    player_close(&other);
    close_daemon();
}

static void exit_without_release(void)
{
    ends_without_release(PLAYER_EXIT);
}

static void exec_of_something_else(void)
{
    ends_without_release(PLAYER_EXEC);
}

/* Bytes that somebody still maps are promised to nobody. */
static void expect_kept_from_others(struct player *other, uint64_t draining)
{
    watch_until(&watch, "draining_bytes", draining, 2000);
    int status = player_take(other, 60 * MIB);
    expect(status == CUBIEMEM_UNCHUNKABLE_TOO_LARGE, "what drains is promised: %s",
           cubiemem_status_name(status));
    expect_served(other, 8 * MIB);
    watch_balance(&watch);
}

static void a_hang_up_without_an_exit(void)
{
    struct player player, other;

    open_daemon("sim:64MiB", NULL);
    open_other(&other);
    holder(&player, 40 * MIB);
    player_do(&player, &(struct player_order){.what = PLAYER_HANG_UP});
    watch_until_n_clients(&watch, 1, 2000);
    expect_kept_from_others(&other, 40 * MIB);
    player_kill(&player);
    expect_served(&other, 60 * MIB);
    player_close(&other);
    close_daemon();
}

static void a_child_that_outlives_its_parent(void)
{
    struct player player, other;

    open_daemon("sim:64MiB", NULL);
    open_other(&other);
    holder(&player, 40 * MIB);
    pid_t child =
        (pid_t)player_do(&player, &(struct player_order){.what = PLAYER_FORK}).value;
    player_kill(&player);
    watch_until_n_clients(&watch, 1, 2000);
    expect_kept_from_others(&other, 40 * MIB);
    kill(child, SIGKILL);
    expect_served(&other, 60 * MIB);
    player_close(&other);
    close_daemon();
}

static void one_that_is_stopped(void)
{
    struct player player, other;

    open_daemon("sim:64MiB", NULL);
    open_other(&other);
    holder(&player, 40 * MIB);
    player_stop(&player);
    expect_served(&other, 20 * MIB);
    expect_held("holder", 40 * MIB);
    player_continue(&player);
    player_use(&player);
    player_stop(&player); /* and dies so */
    player_kill(&player);
    expect_served(&other, 60 * MIB);
    player_close(&other);
    close_daemon();
}

static void short_lives(int fd, const void *argument)
{
    (void)fd;
    (void)argument;
    for (int i = 0; i < N_SHORT; i++) {
        struct cubiemem_client *client = harness_connect(&harness, NULL);
        must(cubiemem_ping(client, 5000000000), "ping");
        cubiemem_close(client);
    }
}

static void thousands_of_short_clients(void)
{
    struct role role;

    open_daemon("sim:64MiB", NULL);
    role_start(&role, "short clients", short_lives, NULL);
    role_finish(&role);
    watch_until_n_clients(&watch, 0, 2000);
    int fds = own_fds();
    uint64_t rss_kib = watch_daemon_rss_kib(&watch);
    role_start(&role, "short clients", short_lives, NULL);
    role_finish(&role);
    watch_until_n_clients(&watch, 0, 2000);
    expect_own_fds(fds);
    expect(watch_daemon_rss_kib(&watch) <= rss_kib + RSS_SLACK_KIB,
           "the daemon grew from %" PRIu64 " to %" PRIu64 " KiB", rss_kib,
           watch_daemon_rss_kib(&watch));
    close_daemon();
}

/* --------------------------------------------------------------- reclaiming */

static double ms_since(uint64_t start_ns)
{
    return (double)(measure_now_ns() - start_ns) * 1e-6;
}

/* Each release takes the driver 5 s, and the pool is empty. */
static void case_17_reclaiming_delays_nobody(void)
{
    struct player player, other;
    double request_ms = 1e9, status_ms = 1e9;

    open_daemon("sim:512MiB", "cuMemRelease:*~5s");
    open_other(&other);
    player_start(&player, &harness, "holder");
    player_register(&player, PLAYER_NO_HOOK);
    for (int i = 0; i < 64; i++) {
        struct player_order order = {.what = PLAYER_TAKE, .size = 2 * MIB};
        snprintf(order.text, sizeof(order.text), "lease %d", i);
        expect(player_do(&player, &order).status == CUBIEMEM_OK, "lease %d", i);
    }
    player_kill(&player);
    watch_until_n_clients(&watch, 1, 2000);
    for (int i = 0; i < 3; i++) {
        struct player_order order = {.what = PLAYER_TAKE, .size = 4096};
        snprintf(order.text, sizeof(order.text), "small %d", i);
        uint64_t start_ns = measure_now_ns();
        expect(player_do(&other, &order).status == CUBIEMEM_OK, "a small request");
        double ms = ms_since(start_ns);
        request_ms = ms < request_ms ? ms : request_ms;
        start_ns = measure_now_ns();
        expect(watch_figure(&watch, "draining_bytes") >= 120 * MIB, "it drained too fast");
        ms = ms_since(start_ns);
        status_ms = ms < status_ms ? ms : status_ms;
    }
    printf("  request %.2f ms, status %.2f ms\n", request_ms, status_ms);
    expect(request_ms < 100, "a small request took %.1f ms", request_ms);
    expect(status_ms < 100, "status took %.1f ms", status_ms);
    watch_balance(&watch);
    player_close(&other);
    watch_close(&watch);
    harness_stop(&harness); /* ends in the middle of it */
}

static const struct {
    const char *name;
    void (*tell)(void);
} stories[] = {
    {"killed at random points", killed_at_random_points},
    {"killed while its memory is made", killed_while_its_memory_is_made},
    {"exit without release", exit_without_release},
    {"exec of something else", exec_of_something_else},
    {"a hang-up without an exit", a_hang_up_without_an_exit},
    {"a child that outlives its parent", a_child_that_outlives_its_parent},
    {"one that is stopped", one_that_is_stopped},
    {"thousands of short clients", thousands_of_short_clients},
    {"case_17: reclaiming delays nobody", case_17_reclaiming_delays_nobody},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++) {
        if (argc > 1 && strstr(stories[i].name, argv[1]) == NULL) {
            continue;
        }
        uint64_t start_ns = measure_now_ns();
        printf("%s\n", stories[i].name);
        fflush(stdout);
        stories[i].tell();
        printf("  %.1f s\n", ms_since(start_ns) * 1e-3);
    }
    return 0;
}
