/*
 * test_eviction - who has to go, who may stay, and what everybody is told
 *
 * The real daemon and the real library, each client in a process of its own, on a
 * simulated device of 64 MiB. Passive mode, so that the device alone is short, but
 * where a story says otherwise.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"
#include "outcome.h"
#include "player.h"
#include "watch.h"

#define MIB ((uint64_t)1 << 20)
#define DEVICE_SIZE (64 * MIB)

static struct harness harness;
static struct watch watch;

static void open_daemon_with(const char *const *arguments)
{
    const struct harness_options options = {.arguments = arguments};

    harness_start("sim:64MiB", &options, &harness);
    watch_open(&harness, &watch);
}

static void open_daemon(void)
{
    open_daemon_with((const char *const[]){"--mode", "passive", "--evict-timeout", "0.4", NULL});
}

/* Everybody is gone: nothing is lent, promised or left over. */
static void close_daemon(void)
{
    watch_until_n_clients(&watch, 0, 5000);
    watch_until(&watch, "draining_bytes", 0, 5000);
    watch_until(&watch, "lent_bytes", 0, 5000);
    watch_balance_at_rest(&watch);
    watch_close(&watch);
    harness_stop(&harness);
}

/* A holder of one array that has worked with it. */
static void holder(struct player *player_p, const char *name, uint64_t size)
{
    player_start(player_p, &harness, name);
    player_register(player_p, PLAYER_COUNTS);
    expect(player_take(player_p, size) == CUBIEMEM_OK, "%s gets nothing", name);
    player_use(player_p);
}

static void asker(struct player *player_p, const char *name)
{
    player_start(player_p, &harness, name);
    player_register(player_p, PLAYER_COUNTS);
}

static void expect_granted(struct player *player, uint64_t size)
{
    int status = player_take(player, size);

    expect(status == CUBIEMEM_OK, "%s: %s", player->role.name, cubiemem_status_name(status));
}

static void expect_refused(struct player *player, uint64_t size)
{
    int status = player_take(player, size);

    expect(status == CUBIEMEM_UNCHUNKABLE_TOO_LARGE || status == CUBIEMEM_NO_MEMORY,
           "%s: %s, and nothing should fit", player->role.name, cubiemem_status_name(status));
}

static void expect_held(const char *client, uint64_t size)
{
    uint64_t held = watch_client(&watch, client, "held_bytes");

    expect(held == size, "%s holds %llu bytes, not %llu", client, (unsigned long long)held,
           (unsigned long long)size);
}

static void expect_hooks(struct player *player, uint64_t n)
{
    uint64_t hooks = player_hooks(player);

    expect(hooks == n, "%s: its hook ran %llu times, not %llu", player->role.name,
           (unsigned long long)hooks, (unsigned long long)n);
}

/* ------------------------------------------------------------------ stories */

static void one_idle_holder_must_go(void)
{
    struct player a, b;

    open_daemon();
    holder(&a, "a", 48 * MIB);
    asker(&b, "b");
    expect_granted(&b, 48 * MIB);
    expect_hooks(&a, 1);
    expect_held("a", 0);
    expect(player_begin(&a) == CUBIEMEM_EVICTED, "a may still begin work");
    watch_balance_at_rest(&watch);

    /* Until its next grant, not longer. */
    player_close(&b);
    expect_granted(&a, 48 * MIB);
    expect(player_begin(&a) == CUBIEMEM_OK, "a was granted anew and may not begin");
    player_end(&a);
    player_close(&a);
    close_daemon();
}

static void the_oldest_goes_first(void)
{
    struct player a, b, c;

    open_daemon();
    holder(&a, "a", 24 * MIB);
    holder(&b, "b", 24 * MIB);
    player_use(&a); /* b is the older one now */
    asker(&c, "c");
    expect_granted(&c, 24 * MIB);
    expect_hooks(&a, 0);
    expect_hooks(&b, 1);
    expect_held("a", 24 * MIB);

    /* One is not enough: both go. */
    player_use(&c);
    expect_granted(&b, 60 * MIB);
    expect_hooks(&a, 1);
    expect_hooks(&c, 1);
    player_close(&a);
    player_close(&b);
    player_close(&c);
    close_daemon();
}

static void what_was_not_used_is_never_taken(void)
{
    struct player a, b;

    open_daemon();
    player_start(&a, &harness, "a");
    player_register(&a, PLAYER_COUNTS);
    expect_granted(&a, 48 * MIB);
    asker(&b, "b");
    expect_refused(&b, 48 * MIB);
    expect_hooks(&a, 0);
    expect_held("a", 48 * MIB);
    player_use(&a);
    expect_granted(&b, 48 * MIB);
    player_close(&a);
    player_close(&b);
    close_daemon();
}

/* What others cannot give makes more chunks. */
static void chunked(struct player *player, uint64_t size, uint64_t runs, uint64_t chunks)
{
    struct player_answer answer = player_do(
        player, &(struct player_order){.what = PLAYER_TAKE, .size = size, .runs = runs});

    expect(answer.status == CUBIEMEM_OK, "%s: %s", player->role.name,
           cubiemem_status_name(answer.status));
    expect(answer.chunks == chunks, "%llu chunks, not %llu", (unsigned long long)answer.chunks,
           (unsigned long long)chunks);
}

static void the_busy_are_left_alone(void)
{
    struct player a, b;

    open_daemon();
    holder(&a, "a", 48 * MIB);
    asker(&b, "b");
    expect(player_begin(&a) == CUBIEMEM_OK, "a may not begin");
    chunked(&b, 48 * MIB, 48, 3);
    expect_hooks(&a, 0);

    /* Ended, but the stream is not through yet. */
    player_do(&a, &(struct player_order){.what = PLAYER_DELAY, .size = 1500000000});
    player_end(&a);
    uint64_t start_ns = measure_now_ns();
    chunked(&b, 48 * MIB, 48, 3);
    expect(measure_now_ns() - start_ns < 1000000000u, "b waited for the work of a");
    expect_hooks(&a, 0);
    while (watch_state_is(&watch, "a", "working")) {
        usleep(10000);
    }
    chunked(&b, 48 * MIB, 48, 1);
    expect_hooks(&a, 1);
    player_close(&a);
    player_close(&b);
    close_daemon();
}

static struct player_answer on(struct player *player, unsigned int instance, enum player_do what,
                               const char *text, uint64_t size, enum player_hook wanted)
{
    struct player_order order = {
        .what = what, .instance = instance, .size = size, .hook = wanted};

    snprintf(order.text, sizeof(order.text), "%s", text);
    return player_do(player, &order);
}

static void all_of_an_owner_or_none(void)
{
    struct player a, b;

    open_daemon();
    player_start(&a, &harness, "a");
    on(&a, 0, PLAYER_REGISTER, "pair", 0, PLAYER_COUNTS);
    on(&a, 1, PLAYER_REGISTER, "pair", 0, PLAYER_COUNTS);
    on(&a, 0, PLAYER_TAKE, "", 16 * MIB, 0);
    on(&a, 1, PLAYER_TAKE, "", 16 * MIB, 0);
    on(&a, 0, PLAYER_USE, "", 0, 0);
    on(&a, 1, PLAYER_USE, "", 0, 0);
    asker(&b, "b");

    /* One of the two would do. Work of either keeps both. */
    expect(on(&a, 1, PLAYER_BEGIN, "", 0, 0).status == CUBIEMEM_OK, "begin");
    expect_refused(&b, 40 * MIB);
    on(&a, 0, PLAYER_END, "", 0, 0);
    on(&a, 0, PLAYER_SYNC, "", 0, 0);
    expect_granted(&b, 40 * MIB);
    expect(on(&a, 0, PLAYER_HOOKS, "", 0, 0).value == 1, "the first was not told");
    expect(on(&a, 1, PLAYER_HOOKS, "", 0, 0).value == 1, "the second was not told");
    expect_held("a", 0);
    expect(on(&a, 1, PLAYER_BEGIN, "", 0, 0).status == CUBIEMEM_EVICTED, "begin");
    player_close(&a);
    player_close(&b);
    close_daemon();
}

static void without_a_hook_never(void)
{
    struct player a, b;

    open_daemon();
    player_start(&a, &harness, "a");
    on(&a, 0, PLAYER_REGISTER, "pair", 0, PLAYER_COUNTS);
    on(&a, 1, PLAYER_REGISTER, "pair", 0, PLAYER_NO_HOOK);
    on(&a, 0, PLAYER_TAKE, "", 48 * MIB, 0);
    on(&a, 0, PLAYER_USE, "", 0, 0);
    asker(&b, "b");
    expect_refused(&b, 48 * MIB);
    expect_held("a", 48 * MIB);
    on(&a, 1, PLAYER_UNREGISTER, "", 0, 0);
    expect_granted(&b, 48 * MIB);
    player_close(&a);
    player_close(&b);
    close_daemon();
}

static void a_hook_may_not_wait(void)
{
    struct player a, b;

    open_daemon();
    player_start(&a, &harness, "a");
    player_register(&a, PLAYER_CALLS);
    expect_granted(&a, 48 * MIB);
    player_use(&a);
    asker(&b, "b");
    expect_granted(&b, 48 * MIB);
    expect_hooks(&a, 1); /* counts only if every call answered as documented */
    player_close(&a);
    player_close(&b);
    close_daemon();
}

/* c is stopped: b goes in its place, and others are served meanwhile. */
static void the_unresponsive_are_passed_over(void)
{
    struct player a, b, c, d;

    open_daemon();
    holder(&c, "c", 24 * MIB); /* the oldest */
    holder(&b, "b", 24 * MIB);
    asker(&a, "a");
    asker(&d, "d");
    player_stop(&c);
    player_tell(&a, &(struct player_order){.what = PLAYER_TAKE, .size = 32 * MIB});
    expect(!player_has_answered(&a, 100), "a has it before the time of c is over");
    uint64_t start_ns = measure_now_ns();
    expect_granted(&d, 4 * MIB);
    expect(measure_now_ns() - start_ns < 200000000u, "d waited for a");
    expect(player_hear(&a).status == CUBIEMEM_OK, "a is not served");
    expect_hooks(&b, 1);
    expect_held("c", 24 * MIB);
    watch_balance(&watch);

    /* Its late answer is taken, and counts as an eviction. */
    player_continue(&c);
    watch_until_client(&watch, "c", "held_bytes", 0, 2000);
    expect_hooks(&c, 1);
    watch_balance_at_rest(&watch);
    expect(player_begin(&c) == CUBIEMEM_EVICTED, "c may begin work");
    player_use(&a);
    expect_granted(&c, 32 * MIB);
    player_use(&c);
    player_close(&a);
    player_close(&b);
    player_close(&c);
    player_close(&d);
    close_daemon();
}

/* The late answer crosses an allocate of the same owner: what is granted stays. */
static void a_late_answer_takes_nothing_new(void)
{
    struct player a, b;

    open_daemon();
    for (int round = 0; round < 8; round++) {
        holder(&a, "a", 40 * MIB);
        asker(&b, "b");
        player_stop(&a);
        player_tell(&a, &(struct player_order){.what = PLAYER_TAKE, .size = 40 * MIB});
        chunked(&b, 40 * MIB, 40, 2);
        expect(player_do(&b, &(struct player_order){.what = PLAYER_RELEASE}).status ==
                   CUBIEMEM_OK, "release");
        player_continue(&a);
        struct player_answer answer = player_hear(&a);
        expect(answer.status == CUBIEMEM_OK, "a: %s", cubiemem_status_name(answer.status));
        expect(player_do(&a, &(struct player_order){.what = PLAYER_WRITE, .size = 7}).status ==
                   CUBIEMEM_OK, "write");
        watch_until_client(&watch, "a", "held_bytes", 40 * MIB, 2000);
        expect_granted(&b, 20 * MIB);
        player_do(&b, &(struct player_order){.what = PLAYER_WRITE, .size = 8});
        answer = player_do(&a, &(struct player_order){.what = PLAYER_CHECK, .size = 7});
        expect(answer.value == 0, "%llu words of a are b's", (unsigned long long)answer.value);
        watch_balance_at_rest(&watch);
        player_close(&a);
        player_close(&b);
    }
    close_daemon();
}

static void a_cap_never_evicts(void)
{
    struct player a, b;

    open_daemon_with((const char *const[]){"--mode", "active", NULL});
    holder(&a, "a", 24 * MIB);
    asker(&b, "b");
    expect_refused(&b, 40 * MIB); /* its half are 32 */
    chunked(&b, 40 * MIB, 40, 2);
    expect_hooks(&a, 0);
    expect_held("a", 24 * MIB);
    player_close(&a);
    player_close(&b);
    close_daemon();
}

/* One grant for both instances of the owner; the second has not taken its own. */
static void what_was_not_taken_counts_as_not_used(void)
{
    struct player a, b;

    open_daemon();
    player_start(&a, &harness, "a");
    on(&a, 0, PLAYER_REGISTER, "pair", 0, PLAYER_COUNTS);
    on(&a, 1, PLAYER_REGISTER, "pair", 0, PLAYER_COUNTS);
    on(&a, 1, PLAYER_QUEUE, "", 24 * MIB, 0);
    on(&a, 0, PLAYER_TAKE, "", 24 * MIB, 0);
    on(&a, 0, PLAYER_USE, "", 0, 0);
    asker(&b, "b");
    expect_refused(&b, 40 * MIB);
    expect_held("a", 48 * MIB);
    expect(on(&a, 1, PLAYER_RESPONSE, "", 0, 0).status == CUBIEMEM_OK, "take_response");
    on(&a, 1, PLAYER_USE, "", 0, 0);
    expect_granted(&b, 40 * MIB);
    expect_held("a", 0);
    player_close(&a);
    player_close(&b);
    close_daemon();
}

/* The asker dies while it waits for a victim that takes its time. */
static void a_dead_asker_leaves_no_trace(void)
{
    struct player a, b;

    open_daemon();
    holder(&a, "a", 48 * MIB);
    asker(&b, "b");
    player_stop(&a);
    player_tell(&b, &(struct player_order){.what = PLAYER_TAKE, .size = 48 * MIB});
    usleep(50000);
    player_kill(&b);
    player_continue(&a);
    watch_until_n_clients(&watch, 1, 2000);
    watch_until_client(&watch, "a", "held_bytes", 0, 2000);
    expect_hooks(&a, 1);
    watch_balance_at_rest(&watch);

    /* And the victim dies while it is asked. */
    asker(&b, "b2");
    expect_granted(&a, 48 * MIB);
    player_use(&a);
    player_stop(&a);
    player_tell(&b, &(struct player_order){.what = PLAYER_TAKE, .size = 48 * MIB, .runs = 48});
    usleep(50000);
    player_kill(&a);
    expect(player_hear(&b).status == CUBIEMEM_OK, "b2 gets nothing");
    watch_until(&watch, "draining_bytes", 0, 2000);
    expect_granted(&b, 48 * MIB);
    player_close(&b);
    close_daemon();
}

static struct player_answer in_group(struct player *player, enum player_do what, uint64_t size)
{
    return player_do(player, &(struct player_order){.what = what, .size = size, .group = "g",
                                                    .shared = true, .hook = PLAYER_COUNTS});
}

/* Another member's allocate replaces an array that is worked in: not before the end. */
static void what_is_begun_is_not_replaced(void)
{
    struct player a, b;

    open_daemon();
    player_start(&a, &harness, "a");
    player_start(&b, &harness, "b");
    in_group(&a, PLAYER_REGISTER, 0);
    in_group(&b, PLAYER_REGISTER, 0);
    expect(in_group(&a, PLAYER_TAKE, 8 * MIB).status == CUBIEMEM_OK, "a");
    expect(player_begin(&a) == CUBIEMEM_OK, "begin");
    in_group(&a, PLAYER_QUEUE, 16 * MIB);
    expect(in_group(&b, PLAYER_TAKE, 4 * MIB).status == CUBIEMEM_OK, "b");
    usleep(50000);
    in_group(&a, PLAYER_WRITE, 5);
    expect(in_group(&a, PLAYER_CHECK, 5).value == 0, "a finds foreign words");
    player_end(&a);
    while (player_begin(&a) == CUBIEMEM_OK) { /* until the grant is applied */
        player_end(&a);
    }
    struct player_answer answer;
    while ((answer = in_group(&a, PLAYER_RESPONSE, 0)).status == CUBIEMEM_NOT_FOUND) {
        usleep(1000);
    }
    expect(answer.value == 16 * MIB, "a was granted other than it queued");
    expect(player_begin(&a) == CUBIEMEM_OK, "a may not begin with its new array");
    in_group(&a, PLAYER_WRITE, 6);
    player_end(&a);
    player_close(&a);
    player_close(&b);
    close_daemon();
}

/* What another member's allocate gave is told by take_response, whatever comes between. */
static void what_was_not_told_keeps_the_owner_closed(void)
{
    struct player a, b;

    open_daemon();
    player_start(&a, &harness, "a");
    player_start(&b, &harness, "b");
    in_group(&a, PLAYER_REGISTER, 0);
    in_group(&b, PLAYER_REGISTER, 0);
    expect(in_group(&a, PLAYER_TAKE, 8 * MIB).status == CUBIEMEM_OK, "a");
    in_group(&a, PLAYER_QUEUE, 16 * MIB);
    expect(in_group(&b, PLAYER_TAKE, 4 * MIB).status == CUBIEMEM_OK, "b");
    while (player_begin(&a) == CUBIEMEM_OK) { /* until the grant is applied */
        player_end(&a);
    }
    expect(in_group(&a, PLAYER_ALLOCATE, 0).status == CUBIEMEM_OK, "nothing is queued");
    expect(player_begin(&a) == CUBIEMEM_EVICTED, "a works in what was replaced");
    expect(in_group(&a, PLAYER_RESPONSE, 0).status == CUBIEMEM_OK, "the response is lost");
    expect(player_begin(&a) == CUBIEMEM_OK, "a was told and may not begin");
    in_group(&a, PLAYER_WRITE, 7);
    expect(in_group(&a, PLAYER_CHECK, 7).value == 0, "a finds foreign words");
    player_end(&a);
    player_close(&a);
    player_close(&b);
    close_daemon();
}

static const struct {
    const char *name;
    void (*tell)(void);
} stories[] = {
    {"what is begun is not replaced", what_is_begun_is_not_replaced},
    {"what was not told keeps the owner closed", what_was_not_told_keeps_the_owner_closed},
    {"one idle holder must go", one_idle_holder_must_go},
    {"the oldest goes first", the_oldest_goes_first},
    {"what was granted and not used is never taken", what_was_not_used_is_never_taken},
    {"the busy are left alone, the batch is cut", the_busy_are_left_alone},
    {"all of an owner or none", all_of_an_owner_or_none},
    {"without a hook never", without_a_hook_never},
    {"a hook may not wait", a_hook_may_not_wait},
    {"the unresponsive are passed over", the_unresponsive_are_passed_over},
    {"a late answer takes nothing new", a_late_answer_takes_nothing_new},
    {"a cap never evicts", a_cap_never_evicts},
    {"what was not taken counts as not used", what_was_not_taken_counts_as_not_used},
    {"a dead asker or victim leaves no trace", a_dead_asker_leaves_no_trace},
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
