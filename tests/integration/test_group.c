/*
 * test_group - what another member's allocate gives, crossing what one does oneself
 *
 * The real daemon and the real library on a simulated device of 64 MiB. Each story is
 * played in a process of its own by clients of that process: where the order matters,
 * a client that dispatches itself hears the daemon only when the story wants it to.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cubiemem.h"
#include "measure.h"
#include "outcome.h"
#include "role.h"
#include "watch.h"

#define MIB ((uint64_t)1 << 20)
#define SECOND_NS ((int64_t)1000000000)

static struct harness harness;
static struct watch watch;

/* A client and its instances; what they hold is under the label "x". */
struct member {
    struct cubiemem_client *client;
    struct cubiemem_instance *instance;
};

static struct cubiemem_instance *add(struct cubiemem_client *client, const char *name,
                                     const char *group, const char *owner)
{
    const struct cubiemem_instance_options options = {
        .size = sizeof(options), .group = group, .shared = group != NULL, .owner = owner};
    struct cubiemem_instance *instance;

    must(cubiemem_register(client, name, &options, &instance), "register");
    return instance;
}

static struct member join(const char *name, bool manual)
{
    const struct cubiemem_options options = {
        .size = sizeof(options), .name = name, .manual_dispatch = manual,
        .timeout_ns = 3 * SECOND_NS};
    struct member member = {.client = harness_connect(&harness, &options)};

    member.instance = add(member.client, name, "g", NULL);
    return member;
}

static void queue_label(struct cubiemem_instance *instance, const char *label, uint64_t size,
                        int memory)
{
    const int64_t shape = (int64_t)size;
    const struct cubiemem_array_request request = {
        .size = sizeof(request), .label = label, .shape = &shape, .rank = 1,
        .dtype = CUBIEMEM_UINT8, .memory = memory, .chunk_axis_index = CUBIEMEM_AXIS_NONE,
        .unchunkable = 1, .total_runs = 1};

    must(cubiemem_queue(instance, &request, 1), "queue");
}

static void queue_in(struct cubiemem_instance *instance, uint64_t size, int memory)
{
    queue_label(instance, "x", size, memory);
}

static uint64_t *pointer_of(struct cubiemem_response *response)
{
    struct cubiemem_array array = {.size = sizeof(array)};

    must(cubiemem_response_array(response, "x", &array), "response_array");
    cubiemem_response_free(response);
    return array.pointer;
}

static uint64_t *allocate(struct cubiemem_instance *instance)
{
    struct cubiemem_response *response;

    must(cubiemem_allocate(instance, NULL, &response), "allocate");
    return pointer_of(response);
}

static uint64_t *take(struct cubiemem_instance *instance, uint64_t size)
{
    queue_in(instance, size, CUBIEMEM_DEVICE);
    return allocate(instance);
}

/* Begin, write, end. */
static void use(struct cubiemem_instance *instance, uint64_t *words)
{
    must(cubiemem_begin_work(instance), "begin_work");
    *words = 1;
    must(cubiemem_end_work(instance, NULL), "end_work");
    must(cubiemem_sync(instance), "sync");
}

static int take_response(struct cubiemem_instance *instance, uint64_t **words_p)
{
    struct cubiemem_response *response;
    int status = cubiemem_take_response(instance, &response);

    if (status == CUBIEMEM_OK) {
        *words_p = pointer_of(response);
    }
    return status;
}

static void dispatch(struct member *member)
{
    must(cubiemem_dispatch(member->client, SECOND_NS / 20), "dispatch");
}

/* What the library's thread does in the background has been done. */
static uint64_t *await_response(struct cubiemem_instance *instance)
{
    const uint64_t end_ns = measure_now_ns() + 10 * (uint64_t)SECOND_NS;
    uint64_t *words = NULL;

    while (take_response(instance, &words) == CUBIEMEM_NOT_FOUND) {
        expect(measure_now_ns() < end_ns, "no response comes");
        usleep(1000);
    }
    return words;
}

static void leave(struct member *a, struct member *b)
{
    cubiemem_close(a->client);
    cubiemem_close(b->client);
}

/* An allocate of the first member, in a thread of its own. */
struct asking {
    pthread_t thread;
    struct cubiemem_instance *instance;
    atomic_int status; /* 1: no answer yet */
};

static void *ask(void *argument)
{
    struct asking *asking = argument;
    struct cubiemem_response *response;
    int status = cubiemem_allocate(asking->instance, NULL, &response);

    if (status == CUBIEMEM_OK) {
        cubiemem_response_free(response);
    }
    asking->status = status;
    return NULL;
}

static void ask_for(struct asking *asking_p, struct cubiemem_instance *instance, uint64_t size)
{
    queue_in(instance, size, CUBIEMEM_DEVICE);
    asking_p->instance = instance;
    asking_p->status = 1;
    expect(pthread_create(&asking_p->thread, NULL, ask, asking_p) == 0, "no thread");
}

static void answered(struct asking *asking)
{
    pthread_join(asking->thread, NULL);
    must(asking->status, "the other one's allocate");
}

/* ------------------------------------------------------------------ stories */

/* A release says nothing of a grant that was on its way when it was made. */
static void a_release_crosses_a_grant(void)
{
    struct member a = join("a", false), b = join("b", true);
    uint64_t *words = NULL;

    use(b.instance, take(b.instance, 10 * MIB));
    queue_in(b.instance, 8 * MIB, CUBIEMEM_DEVICE);
    take(a.instance, 2 * MIB);                                     /* b is granted 8 MiB */
    must(cubiemem_release(b.instance, NULL, 0), "release");        /* it means the 10 */
    dispatch(&b);
    watch_until_client(&watch, "b", "held_bytes", 8 * MIB, 1000);
    must(take_response(b.instance, &words), "take_response");
    *words = 0x6f6e6365;
    *take(a.instance, 40 * MIB) = 2; /* and everybody else gets other memory */
    expect(*words == 0x6f6e6365, "b finds a foreign word");
    leave(&a, &b);
}

/* Nor is it in the way of what the grant, or a Yield before it, wants back. */
static void a_release_crosses_a_yield(void)
{
    struct member a = join("a", false), b = join("b", true);
    struct asking asking;

    use(b.instance, take(b.instance, 40 * MIB));
    queue_in(b.instance, 38 * MIB, CUBIEMEM_DEVICE);
    ask_for(&asking, a.instance, 2 * MIB);
    usleep(100000); /* b is asked for its 40 MiB, and has not heard of it */
    must(cubiemem_release(b.instance, NULL, 0), "release");
    const uint64_t end_ns = measure_now_ns() + 2 * (uint64_t)SECOND_NS;
    while (asking.status == 1 && measure_now_ns() < end_ns) {
        dispatch(&b);
    }
    expect(asking.status != 1, "the other one's allocate hangs");
    answered(&asking);
    leave(&a, &b);
}

/* What was granted, not taken, and had to go again is not handed out. */
static void a_yield_takes_what_nobody_took(void)
{
    struct member a = join("a", false), b = join("b", true);
    struct asking asking;
    uint64_t *words = NULL;

    queue_in(b.instance, 40 * MIB, CUBIEMEM_DEVICE);
    take(a.instance, 2 * MIB);
    dispatch(&b); /* granted 40 MiB */
    queue_in(b.instance, 38 * MIB, CUBIEMEM_DEVICE);
    ask_for(&asking, a.instance, 4 * MIB);
    usleep(100000);
    dispatch(&b); /* asked for them */
    expect(take_response(b.instance, &words) == CUBIEMEM_NOT_FOUND,
           "b gets arrays that are there no more");
    answered(&asking);
    dispatch(&b);
    must(take_response(b.instance, &words), "take_response");
    use(b.instance, words);
    leave(&a, &b);
}

/* Where an array lies is told with the next response, if nobody took the first; not of one
 * that was released since. */
static void what_nobody_took_is_told_again(void)
{
    struct member a = join("a", false), b = join("b", true);
    const char *const released = "z";
    struct cubiemem_response *response;
    struct cubiemem_array array = {.size = sizeof(array)};
    const char *const labels[] = {"x", "z", "y"};

    use(b.instance, take(b.instance, 4 * MIB));
    for (size_t i = 0; i < 3; i++) {
        queue_label(b.instance, labels[i], 2 * MIB, CUBIEMEM_DEVICE);
        take(a.instance, 2 * MIB);
        dispatch(&b);
    }
    must(cubiemem_release(b.instance, &released, 1), "release");
    expect(cubiemem_begin_work(b.instance) == CUBIEMEM_EVICTED, "it begins in what was replaced");
    must(cubiemem_take_response(b.instance, &response), "take_response");
    expect(cubiemem_response_array(response, "z", &array) == CUBIEMEM_NOT_FOUND,
           "what was released is told");
    must(cubiemem_response_array(response, "y", &array), "y");
    use(b.instance, array.pointer);
    use(b.instance, pointer_of(response)); /* x */

    /* One's own allocate takes nothing of that away. */
    queue_in(b.instance, 4 * MIB, CUBIEMEM_DEVICE);
    take(a.instance, 2 * MIB);
    dispatch(&b);
    queue_label(b.instance, "y", 4 * MIB, CUBIEMEM_DEVICE);
    must(cubiemem_allocate(b.instance, NULL, &response), "allocate");
    cubiemem_response_free(response);
    expect(cubiemem_begin_work(b.instance) == CUBIEMEM_EVICTED, "it begins in what was replaced");
    must(cubiemem_take_response(b.instance, &response), "take_response");
    use(b.instance, pointer_of(response));
    leave(&a, &b);
}

struct giving {
    struct cubiemem_instance *own, *other;
    atomic_bool over;
};

static void *give_often(void *argument)
{
    struct giving *giving = argument;

    for (uint64_t i = 0; !giving->over; i++) {
        struct cubiemem_response *response;
        queue_in(giving->other, (2 + i % 2 * 2) * MIB, CUBIEMEM_DEVICE);
        queue_in(giving->own, 2 * MIB, CUBIEMEM_DEVICE);
        if (cubiemem_allocate(giving->own, NULL, &response) == CUBIEMEM_OK) {
            cubiemem_response_free(response); /* else all is still to be given back */
        }
    }
    return NULL;
}

/* However close the next grant is behind: what was taken is there. */
static void what_is_taken_is_there(void)
{
    struct member a = join("a", false), b = join("b", false);
    struct giving giving = {a.instance, b.instance, false};
    const uint64_t end_ns = measure_now_ns() + 2 * (uint64_t)SECOND_NS;
    pthread_t thread;

    pthread_create(&thread, NULL, give_often, &giving);
    while (measure_now_ns() < end_ns) {
        uint64_t *words = NULL;
        if (take_response(b.instance, &words) == CUBIEMEM_OK &&
            cubiemem_begin_work(b.instance) == CUBIEMEM_OK) {
            *words = 1;
            must(cubiemem_end_work(b.instance, NULL), "end_work");
        }
    }
    giving.over = true;
    pthread_join(thread, NULL);
    leave(&a, &b);
}

/* Pinned arrays are replaced as others are: not before the end of what is begun. */
static void pinned_arrays_that_are_worked_in_stay(void)
{
    struct member a = join("a", false), b = join("b", false);

    queue_in(b.instance, MIB, CUBIEMEM_PINNED);
    uint64_t *words = allocate(b.instance);
    must(cubiemem_begin_work(b.instance), "begin_work");
    queue_in(b.instance, 2 * MIB, CUBIEMEM_PINNED);
    take(a.instance, 2 * MIB);
    usleep(50000);
    *words = 1;
    must(cubiemem_end_work(b.instance, NULL), "end_work");
    words = await_response(b.instance);
    words[2 * MIB / sizeof(*words) - 1] = 1;
    use(b.instance, words);
    leave(&a, &b);
}

/* A grant to another instance of the owner opens that one alone. */
static void each_instance_takes_its_own(void)
{
    struct member a = join("a", false), b = join("b", true);
    struct cubiemem_instance *one = add(b.client, "one", "g", "both"),
                             *two = add(b.client, "two", NULL, "both");
    uint64_t *words = NULL;

    use(one, take(one, 4 * MIB));
    queue_in(one, 2 * MIB, CUBIEMEM_DEVICE);
    take(a.instance, 2 * MIB);
    dispatch(&b);
    use(two, take(two, 2 * MIB));
    expect(cubiemem_begin_work(one) == CUBIEMEM_EVICTED, "it begins in what was replaced");
    must(take_response(one, &words), "take_response");
    use(one, words);
    leave(&a, &b);
}

/* Who has begun work and hears the daemon in between does not wait for himself. */
static void who_works_does_not_wait_for_himself(void)
{
    struct member a = join("a", false), b = join("b", true);
    struct cubiemem_instance *other = add(b.client, "other", "h", NULL);
    struct cubiemem_response *response;
    uint64_t *words = take(b.instance, 10 * MIB);

    must(cubiemem_begin_work(b.instance), "begin_work");
    queue_in(b.instance, 8 * MIB, CUBIEMEM_DEVICE);
    take(a.instance, 2 * MIB);
    dispatch(&b);
    *words = 1;
    queue_in(other, 2 * MIB, CUBIEMEM_DEVICE);
    expect(cubiemem_allocate(other, NULL, &response) == CUBIEMEM_TIMEOUT,
           "what comes behind the grant is not in order");
    must(cubiemem_end_work(b.instance, NULL), "end_work");
    dispatch(&b);
    must(take_response(b.instance, &words), "take_response");
    use(b.instance, words);
    take(other, 2 * MIB);
    leave(&a, &b);
}

/* A close waits for no work that nobody ends any more. */
static void a_close_ends_the_wait_for_work(void)
{
    struct member a = join("a", false), b = join("b", false);

    take(b.instance, 10 * MIB);
    must(cubiemem_begin_work(b.instance), "begin_work");
    queue_in(b.instance, 8 * MIB, CUBIEMEM_DEVICE);
    take(a.instance, 2 * MIB);
    usleep(50000);
    leave(&b, &a);
}

/* Who works longer than one may take to give back is not thrown out. */
static void long_work_is_waited_for(void)
{
    struct member a = join("a", false), b = join("b", false);

    uint64_t *words = take(b.instance, 10 * MIB);
    must(cubiemem_begin_work(b.instance), "begin_work");
    queue_in(b.instance, 8 * MIB, CUBIEMEM_DEVICE);
    take(a.instance, 2 * MIB);
    sleep(6);
    *words = 1;
    must(cubiemem_end_work(b.instance, NULL), "end_work");
    use(b.instance, await_response(b.instance));
    watch_until_client(&watch, "b", "held_bytes", 8 * MIB, 1000);
    leave(&a, &b);
}

/* But nobody stands still for it: what would be needed before it ends is refused. */
static void what_is_worked_in_is_not_asked_for(void)
{
    struct member a = join("a", false), b = join("b", false);

    take(b.instance, 40 * MIB);
    must(cubiemem_begin_work(b.instance), "begin_work");
    queue_in(b.instance, 38 * MIB, CUBIEMEM_DEVICE);
    queue_in(a.instance, 2 * MIB, CUBIEMEM_DEVICE);
    struct cubiemem_response *response;
    int status = cubiemem_allocate(a.instance, NULL, &response);
    expect(status == CUBIEMEM_NO_MEMORY && cubiemem_last_error()->asked == 40 * MIB, "what is worked in was to be given back: %s",
           cubiemem_status_name(status));
    must(cubiemem_end_work(b.instance, NULL), "end_work");
    must(cubiemem_sync(b.instance), "sync");
    allocate(a.instance);
    use(b.instance, await_response(b.instance));
    leave(&a, &b);
}

static const struct {
    const char *name;
    void (*tell)(void);
} stories[] = {
    {"a release crosses a grant", a_release_crosses_a_grant},
    {"a release crosses a yield", a_release_crosses_a_yield},
    {"a yield takes what nobody took", a_yield_takes_what_nobody_took},
    {"what nobody took is told again", what_nobody_took_is_told_again},
    {"what is taken is there", what_is_taken_is_there},
    {"pinned arrays that are worked in stay", pinned_arrays_that_are_worked_in_stay},
    {"each instance takes its own", each_instance_takes_its_own},
    {"who works does not wait for himself", who_works_does_not_wait_for_himself},
    {"a close ends the wait for work", a_close_ends_the_wait_for_work},
    {"long work is waited for", long_work_is_waited_for},
    {"what is worked in is not asked for", what_is_worked_in_is_not_asked_for},
};

static void play(int fd, const void *argument)
{
    void (*tell)(void);

    (void)fd;
    memcpy(&tell, argument, sizeof(tell));
    watch_open(&harness, &watch);
    tell();
    watch_close(&watch);
}

int main(void)
{
    const char *only = getenv("STORY");
    const struct harness_options options = {
        .arguments = (const char *const[]){"--mode", "passive", NULL}};

    for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++) {
        struct role role;
        if (only != NULL && strstr(stories[i].name, only) == NULL) {
            continue;
        }
        printf("%s\n", stories[i].name);
        fflush(stdout);
        harness_start("sim:64MiB", &options, &harness);
        role_start(&role, stories[i].name, play, &stories[i].tell);
        role_finish(&role);
        watch_open(&harness, &watch);
        watch_until_n_clients(&watch, 0, 5000);
        watch_until(&watch, "draining_bytes", 0, 5000);
        watch_until(&watch, "lent_bytes", 0, 5000);
        watch_balance_at_rest(&watch);
        watch_close(&watch);
        harness_stop(&harness);
    }
    return 0;
}
