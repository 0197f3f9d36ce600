/*
 * test_client_wait - waiting for memory as a program sees it: threads that allocate,
 * release and cancel, and what the event function hears. One daemon with 64 MiB; the
 * last story ends it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../client/connection.h"
#include "cubiemem.h"
#include "harness.h"
#include "../unit/sim_env.h"

#define MIB (1ull << 20)
#define SECOND 1000000000ll
#define OK(call) assert_int_equal((call), CUBIEMEM_OK)

static struct harness harness;

/* What an event function has heard; the newest of each kind. */
struct ear {
    pthread_mutex_t lock;
    pthread_t thread;
    unsigned n[8]; /* by kind */
    struct cubiemem_instance *instance;
    uint64_t position, holder, revision, asked;
    size_t n_holders;
    char text[300];
    int ping;    /* what a call that waits answered in it */
    bool cancel; /* cancel what waits */
};

static void hear(struct cubiemem_client *client, const struct cubiemem_event *event, void *arg)
{
    struct ear *ear = arg;
    int ping = cubiemem_ping(client, SECOND);
    pthread_mutex_lock(&ear->lock);
    ear->thread = pthread_self();
    ear->n[event->kind]++;
    ear->instance = event->instance;
    ear->ping = ping;
    if (event->kind == CUBIEMEM_EVENT_WAITING) {
        ear->position = event->position;
        ear->asked = event->asked;
        ear->n_holders = event->n_holders;
        ear->holder = event->n_holders > 0 ? event->holders[0] : 0;
        snprintf(ear->text, sizeof ear->text, "%s", event->text);
    }
    if (event->kind == CUBIEMEM_EVENT_LIMITS) {
        ear->revision = event->revision;
    }
    bool cancel = ear->cancel && event->kind == CUBIEMEM_EVENT_WAITING;
    pthread_mutex_unlock(&ear->lock);
    if (cancel) {
        OK(cubiemem_cancel(event->instance));
    }
}

static unsigned heard(struct ear *ear, int kind)
{
    pthread_mutex_lock(&ear->lock);
    unsigned n = ear->n[kind];
    pthread_mutex_unlock(&ear->lock);
    return n;
}

static void await_event(struct ear *ear, int kind)
{
    for (int i = 0; i < 1000 && heard(ear, kind) == 0; i++) {
        usleep(10000);
    }
    assert_true(heard(ear, kind) > 0);
}

/* A client with one instance. */
struct party {
    struct cubiemem_client *client;
    struct cubiemem_instance *instance;
    struct ear ear;
};

static void hook(struct cubiemem_instance *instance, void *arg)
{
    (void)instance;
    (void)arg;
}

static void join(struct party *party, const char *name, bool evictable, bool manual)
{
    struct cubiemem_options options = {
        .size = sizeof options, .name = name, .manual_dispatch = manual};
    struct cubiemem_instance_options of_instance = {.size = sizeof of_instance,
                                                    .invalidate = evictable ? hook : NULL};
    *party = (struct party){.ear = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    party->client = harness_connect(&harness, &options);
    OK(cubiemem_set_event_fn(party->client, hear, &party->ear));
    OK(cubiemem_register(party->client, "i", &of_instance, &party->instance));
}

static void queue(struct party *party, const char *label, int64_t mib, bool cut)
{
    const int64_t shape[] = {mib, (int64_t)MIB};
    struct cubiemem_array_request request = CUBIEMEM_ARRAY_REQUEST_INIT;
    request.label = label;
    request.shape = shape;
    request.rank = 2;
    request.dtype = CUBIEMEM_UINT8;
    request.chunk_axis_index = 0;
    request.unchunkable = !cut;
    OK(cubiemem_queue(party->instance, &request, 1));
}

static int take(struct party *party, int64_t timeout_ns, uint64_t *chunks_p)
{
    const struct cubiemem_wait wait = {.size = sizeof wait, .timeout_ns = timeout_ns};
    struct cubiemem_response *response = NULL;
    struct cubiemem_partition partition = {.size = sizeof partition};
    int status = cubiemem_allocate(party->instance, timeout_ns > 0 ? &wait : NULL, &response);
    if (status == CUBIEMEM_OK) {
        OK(cubiemem_response_partition(response, &partition));
        cubiemem_response_free(response);
    }
    if (chunks_p != NULL) {
        *chunks_p = partition.chunks;
    }
    return status;
}

/* A party's allocate in a thread of its own. */
struct call {
    struct party *party;
    pthread_t thread;
    int status;
    char text[300];
    atomic_bool done;
};

static void *call_run(void *arg)
{
    struct call *call = arg;
    call->status = take(call->party, 60 * SECOND, NULL);
    snprintf(call->text, sizeof call->text, "%s", cubiemem_last_error()->text);
    call->done = true;
    return NULL;
}

static void call_start(struct call *call, struct party *party)
{
    memset(call, 0, sizeof *call);
    call->party = party;
    assert_int_equal(pthread_create(&call->thread, NULL, call_run, call), 0);
}

static int call_end(struct call *call)
{
    pthread_join(call->thread, NULL);
    return call->status;
}

static int start(void **state)
{
    static const char *const arguments[] = {"--mode", "passive", NULL};
    const struct harness_options options = {.arguments = arguments};
    (void)state;
    sim_env_set();
    harness_start("sim:64MiB", &options, &harness);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    harness_stop(&harness);
    return 0;
}

/* ---------------------------------------------------------------- stories */

static void another_threads_release_ends_a_wait(void **state)
{
    struct party party;
    struct call call;
    (void)state;
    join(&party, "party", false, false);
    queue(&party, "a", 40, false);
    OK(take(&party, 0, NULL));
    queue(&party, "b", 40, false);
    call_start(&call, &party);
    await_event(&party.ear, CUBIEMEM_EVENT_WAITING);
    assert_ptr_equal(party.ear.instance, party.instance);
    assert_int_equal(party.ear.position, 1);
    assert_int_equal(party.ear.asked, 40 * MIB);
    assert_int_equal(party.ear.n_holders, 1);
    assert_non_null(strstr(party.ear.text, "40 MiB"));
    assert_int_equal(party.ear.ping, CUBIEMEM_IN_CALLBACK);
    assert_false(pthread_equal(party.ear.thread, call.thread)); /* the library's own thread */
    const char *label = "a";
    OK(cubiemem_release(party.instance, &label, 1));
    OK(call_end(&call));
    cubiemem_close(party.client);
}

static void cancel_ends_a_wait(void **state)
{
    struct party holder, party;
    struct call call, turn;
    (void)state;
    join(&holder, "holder", false, false);
    join(&party, "party", false, false);
    OK(cubiemem_cancel(party.instance)); /* nothing waits */
    queue(&holder, "a", 40, false);
    OK(take(&holder, 0, NULL));
    queue(&party, "a", 40, false);
    call_start(&call, &party);
    await_event(&party.ear, CUBIEMEM_EVENT_WAITING);
    call_start(&turn, &party); /* of the same group: waits for its turn */
    usleep(50000);
    OK(cubiemem_cancel(party.instance));
    assert_int_equal(call_end(&call), CUBIEMEM_CANCELLED);
    assert_int_equal(call_end(&turn), CUBIEMEM_CANCELLED);
    assert_non_null(strstr(turn.text, "cancelled"));
    /* From the event function; and what was queued is queued still. */
    pthread_mutex_lock(&party.ear.lock);
    party.ear.cancel = true;
    pthread_mutex_unlock(&party.ear.lock);
    assert_int_equal(take(&party, 60 * SECOND, NULL), CUBIEMEM_CANCELLED);
    OK(cubiemem_release(holder.instance, NULL, 0));
    pthread_mutex_lock(&party.ear.lock);
    party.ear.cancel = false;
    pthread_mutex_unlock(&party.ear.lock);
    OK(take(&party, 60 * SECOND, NULL));
    assert_int_equal(take(&party, 0, NULL), CUBIEMEM_OK);
    cubiemem_close(party.client);
    cubiemem_close(holder.client);
}

static void the_time_out_takes_what_there_is(void **state)
{
    struct party holder, party;
    uint64_t chunks;
    (void)state;
    join(&holder, "holder", false, false);
    join(&party, "party", false, false);
    queue(&holder, "a", 48, false);
    OK(take(&holder, 0, NULL));
    queue(&party, "a", 64, true);
    OK(take(&party, SECOND / 5, &chunks));
    assert_int_equal(chunks, 4);
    queue(&party, "b", 20, false);
    assert_int_equal(take(&party, SECOND / 5, NULL), CUBIEMEM_NO_MEMORY);
    assert_string_equal(cubiemem_last_error()->limited_by, "device");
    cubiemem_close(party.client);
    cubiemem_close(holder.client);
}

static void bad_waits_are_refused(void **state)
{
    struct party party;
    struct cubiemem_response *response = NULL;
    struct cubiemem_wait wait = {.size = sizeof wait, .timeout_ns = -1};
    (void)state;
    join(&party, "party", false, false);
    queue(&party, "a", 1, false);
    assert_int_equal(cubiemem_allocate(party.instance, &wait, &response),
                     CUBIEMEM_INVALID_REQUEST);
    wait.timeout_ns = INT64_MIN;
    assert_int_equal(cubiemem_allocate(party.instance, &wait, &response),
                     CUBIEMEM_INVALID_REQUEST);
    wait = (struct cubiemem_wait){.size = 8};
    assert_int_equal(cubiemem_allocate(party.instance, &wait, &response),
                     CUBIEMEM_INVALID_REQUEST);
    assert_null(response);
    wait = (struct cubiemem_wait){.size = sizeof wait, .timeout_ns = INT64_MAX};
    OK(cubiemem_allocate(party.instance, &wait, &response));
    cubiemem_response_free(response);
    cubiemem_close(party.client);
}

/* Two that wait for each other's memory, both idle: one gives way and is served after. */
static void a_circle_of_idle_owners_undoes_itself(void **state)
{
    struct party parties[2];
    struct call calls[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        join(&parties[i], i == 0 ? "one" : "two", true, false);
        queue(&parties[i], "a", 30, false);
        OK(take(&parties[i], 0, NULL));
        OK(cubiemem_begin_work(parties[i].instance));
    }
    for (int i = 0; i < 2; i++) {
        queue(&parties[i], "b", 30, false);
        OK(cubiemem_end_work(parties[i].instance, NULL));
    }
    for (int i = 0; i < 2; i++) {
        call_start(&calls[i], &parties[i]);
    }
    for (int i = 0; i < 1000 && !calls[0].done && !calls[1].done; i++) {
        usleep(10000);
    }
    int first = calls[0].done ? 0 : 1; /* whoever came first */
    OK(call_end(&calls[first]));
    OK(cubiemem_release(parties[first].instance, NULL, 0));
    OK(call_end(&calls[1 - first]));
    assert_int_equal(heard(&parties[0].ear, CUBIEMEM_EVENT_EVICTED) +
                         heard(&parties[1].ear, CUBIEMEM_EVENT_EVICTED),
                     1);
    for (int i = 0; i < 2; i++) {
        cubiemem_close(parties[i].client);
    }
}

static void an_owner_that_becomes_idle_ends_a_wait(void **state)
{
    struct party holder, party;
    struct call call;
    (void)state;
    join(&holder, "holder", true, false);
    join(&party, "party", false, false);
    queue(&holder, "a", 40, false);
    OK(take(&holder, 0, NULL));
    OK(cubiemem_begin_work(holder.instance));
    queue(&party, "a", 40, false);
    call_start(&call, &party);
    await_event(&party.ear, CUBIEMEM_EVENT_WAITING);
    assert_int_equal(heard(&holder.ear, CUBIEMEM_EVENT_EVICTED), 0);
    OK(cubiemem_end_work(holder.instance, NULL)); /* no message: a word in memory */
    OK(call_end(&call));
    await_event(&holder.ear, CUBIEMEM_EVENT_EVICTED);
    assert_ptr_equal(holder.ear.instance, holder.instance);
    assert_int_equal(cubiemem_begin_work(holder.instance), CUBIEMEM_EVICTED);
    cubiemem_close(party.client);
    cubiemem_close(holder.client);
}

static void limits_and_the_end_are_told(void **state)
{
    struct party party;
    struct cubiemem_client *tool;
    Cubiemem__SetMode mode = CUBIEMEM__SET_MODE__INIT;
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    Cubiemem__DaemonMessage *reply;
    char active[] = "active";
    (void)state;
    join(&party, "party", false, false);
    OK(client_open_tool(harness.socket, NULL, 0, &tool));
    message.set_mode = &mode;
    mode.mode = active;
    OK(client_call(tool, &message, &reply));
    uint64_t revision = reply->limits->revision;
    client_reply_free(reply);
    cubiemem_close(tool);
    await_event(&party.ear, CUBIEMEM_EVENT_LIMITS);
    assert_int_equal(party.ear.revision, revision);
    harness_end_daemon(&harness);
    await_event(&party.ear, CUBIEMEM_EVENT_LOST);
    assert_int_equal(cubiemem_ping(party.client, SECOND), CUBIEMEM_DISCONNECTED);
    usleep(20000);
    assert_int_equal(heard(&party.ear, CUBIEMEM_EVENT_LOST), 1); /* once */
    cubiemem_close(party.client);
}

/* Without the library's thread dispatch tells, and only the newest of one wait. */
static void dispatch_tells(void **state)
{
    struct party holder, party;
    struct call call;
    (void)state;
    join(&holder, "holder", false, false);
    join(&party, "party", false, true);
    queue(&holder, "a", 40, false);
    OK(take(&holder, 0, NULL));
    queue(&party, "a", 40, false);
    call_start(&call, &party);
    struct pollfd fd = {.fd = cubiemem_get_fd(party.client), .events = POLLIN};
    /* The thread that allocates reads, too: there may be nothing left to do. */
    for (int i = 0; i < 5000 && heard(&party.ear, CUBIEMEM_EVENT_WAITING) == 0; i++) {
        assert_int_equal(poll(&fd, 1, 10000), 1);
        OK(cubiemem_dispatch(party.client, 0));
        usleep(1000);
    }
    assert_int_equal(party.ear.position, 1);
    assert_true(pthread_equal(party.ear.thread, pthread_self()));
    OK(cubiemem_set_event_fn(party.client, NULL, NULL));
    OK(cubiemem_release(holder.instance, NULL, 0));
    OK(call_end(&call));
    cubiemem_close(party.client);
    cubiemem_close(holder.client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_threads_release_ends_a_wait),
        cmocka_unit_test(cancel_ends_a_wait),
        cmocka_unit_test(the_time_out_takes_what_there_is),
        cmocka_unit_test(bad_waits_are_refused),
        cmocka_unit_test(a_circle_of_idle_owners_undoes_itself),
        cmocka_unit_test(an_owner_that_becomes_idle_ends_a_wait),
        cmocka_unit_test(dispatch_tells),
        cmocka_unit_test(limits_and_the_end_are_told),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
