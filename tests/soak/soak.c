/*
 * soak - many clients with random behaviour for a long time, and books that balance
 *
 *   SOAK_SECONDS (600), SOAK_CLIENTS (50), SOAK_SEED (1)
 *
 * Each client is a process that takes arrays of changing shapes, cut or whole, alone
 * or in a group that others share, works in them, idles so that it can be evicted,
 * releases, leaves in order or without a word. Some are killed, some stopped for a
 * while. Who works in an array finds there what he wrote, always. Meanwhile the books
 * are checked through status; at the end nothing is lent, promised or draining, and
 * the daemon has the descriptors that it began with.
 *
 * The same seed gives each client the same decisions; how they meet is the machine's.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "measure.h"
#include "outcome.h"
#include "role.h"
#include "watch.h"

#define MIB ((uint64_t)1 << 20)
#define DEVICE "sim:256MiB"
#define MAX_CLIENTS 200
#define MAX_RUNS 64
#define N_WORDS 16 /* of an array that are written and looked at */
#define SECOND_NS ((uint64_t)1000000000)
#define STUCK_NS (60 * SECOND_NS)
#define LOOK_US 30000

/* What all processes count, in memory that they share. */
struct counts {
    atomic_bool over;
    _Atomic uint64_t granted, chunked, refused, evicted, replaced, shared, worked;
    _Atomic uint64_t killed, stopped, left;
    _Atomic uint64_t steps[MAX_CLIENTS];
};

static struct harness harness;
static struct counts *counts;

static unsigned int setting(const char *name, unsigned int otherwise)
{
    const char *text = getenv(name);

    return text != NULL && atoi(text) > 0 ? (unsigned int)atoi(text) : otherwise;
}

static void pause_us(unsigned int us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* ---------------------------------------------------------------- a client */

struct life {
    unsigned int number, seed;
    struct cubiemem_client *client;
    struct cubiemem_instance *instance;
    cubiemem_stream stream;
    struct cubiemem_array array;
    atomic_bool has_array; /* the hook takes it away */
};

static unsigned int below(struct life *life, unsigned int n)
{
    return (unsigned int)rand_r(&life->seed) % n;
}

static void hook(struct cubiemem_instance *instance, void *argument)
{
    struct life *life = argument;

    (void)instance;
    atomic_store(&life->has_array, false);
    counts->evicted++;
}

static void open_life(struct life *life)
{
    char name[32];
    const struct cubiemem_options options = {.size = sizeof(options), .name = name};
    struct cubiemem_instance_options instance = {.size = sizeof(instance),
                                                 .invalidate_arg = life};

    snprintf(name, sizeof(name), "soak-%u", life->number);
    /* Every third shares a group with others; every fifth is never evicted. */
    instance.group = life->number % 3 == 0 ? "together" : NULL;
    instance.shared = life->number % 3 == 0;
    instance.invalidate = life->number % 5 != 0 ? hook : NULL;
    life->client = harness_connect(&harness, &options);
    must(cubiemem_register(life->client, name, &instance, &life->instance), "register");
    must(cubiemem_group_stream(life->instance, &life->stream), "stream");
}

static uint64_t *word_at(const struct life *life, size_t i)
{
    return (uint64_t *)life->array.pointer + i * (life->array.nbytes / 8 / N_WORDS);
}

/* Begin, write, look, end. */
static void work(struct life *life)
{
    const uint64_t word = (uint64_t)getpid() << 32 | (uint64_t)rand_r(&life->seed);
    int status = cubiemem_begin_work(life->instance);

    if (status == CUBIEMEM_EVICTED) {
        return;
    }
    must(status, "begin_work");
    bool has_array = atomic_load(&life->has_array) && life->array.pointer != NULL;
    for (size_t i = 0; has_array && i < N_WORDS; i++) {
        *word_at(life, i) = word;
    }
    pause_us(below(life, 3000));
    for (size_t i = 0; has_array && i < N_WORDS; i++) {
        expect(*word_at(life, i) == word, "soak-%u finds a foreign word", life->number);
    }
    must(cubiemem_end_work(life->instance, life->stream), "end_work");
    counts->worked++;
}

static void note_grant(struct life *life, struct cubiemem_response *response)
{
    struct cubiemem_partition partition = {.size = sizeof(partition)};
    struct cubiemem_array array = {.size = sizeof(array)};

    must(cubiemem_response_partition(response, &partition), "partition");
    if (cubiemem_response_array(response, "a", &array) == CUBIEMEM_OK) {
        counts->replaced += atomic_load(&life->has_array);
        life->array = array;
        atomic_store(&life->has_array, true);
        counts->granted++;
        counts->chunked += partition.chunks > 1;
    }
    cubiemem_response_free(response);
}

static void queue(struct life *life)
{
    /* The members of a group are cut alike, so their run axes have to agree. */
    const bool is_alone = life->number % 3 != 0 && below(life, 3) != 0;
    /* Nor may their requests be more than the device together: what is refused stays queued. */
    const unsigned int most_kib = life->number % 3 == 0 ? 3 * 1024 : 40 * 1024;
    const int64_t runs = is_alone ? 1 + below(life, MAX_RUNS) : 1;
    const int64_t shape[2] = {runs, (int64_t)((1 + below(life, most_kib)) * 1024 / runs + 128)};
    const struct cubiemem_array_request requests[2] = {
        {.size = sizeof(requests[0]), .label = "a", .shape = shape, .rank = 2,
         .dtype = CUBIEMEM_UINT8, .chunk_axis_index = 0, .unchunkable = runs == 1,
         .total_runs = runs},
        {.size = sizeof(requests[0]), .label = "b", .shape = &shape[0], .rank = 1,
         .dtype = CUBIEMEM_FLOAT64, .chunk_axis_index = CUBIEMEM_AXIS_NONE, .unchunkable = 1,
         .total_runs = runs},
    };

    must(cubiemem_queue(life->instance, requests, 1 + below(life, 2)), "queue");
}

static void take(struct life *life)
{
    struct cubiemem_response *response;

    queue(life);
    if (life->number % 3 == 0 && below(life, 2) == 0) {
        return; /* another member of the group commits it */
    }
    int status = cubiemem_allocate(life->instance, NULL, &response);
    switch (status) {
    case CUBIEMEM_OK:
        note_grant(life, response);
        work(life);
        break;
    case CUBIEMEM_NO_MEMORY:
    case CUBIEMEM_UNCHUNKABLE_TOO_LARGE:
    case CUBIEMEM_RUN_TOO_LARGE:
    case CUBIEMEM_INVALID_REQUEST: /* run axes of a shared group that disagree */
    case CUBIEMEM_BUSY:
        counts->refused++;
        break;
    default:
        must(status, "allocate");
    }
}

static void take_response(struct life *life)
{
    struct cubiemem_response *response;

    if (cubiemem_take_response(life->instance, &response) == CUBIEMEM_OK) {
        counts->shared++;
        note_grant(life, response);
        work(life);
    }
}

static void release(struct life *life)
{
    must(cubiemem_sync(life->instance), "sync");
    atomic_store(&life->has_array, false);
    must(cubiemem_release(life->instance, NULL, 0), "release");
}

static void live(int fd, const void *argument)
{
    struct life life = *(const struct life *)argument;

    (void)fd;
    open_life(&life);
    while (!atomic_load(&counts->over)) {
        switch (below(&life, 12)) {
        case 0:
        case 1:
        case 2:
            take(&life);
            break;
        case 3:
            release(&life);
            break;
        case 4:
            if (below(&life, 20) == 0) {
                counts->left++;
                _exit(EXIT_SUCCESS); /* without a word */
            }
            break;
        case 5:
        case 6:
            take_response(&life);
            break;
        default:
            work(&life);
        }
        counts->steps[life.number]++;
        pause_us(1000 + below(&life, 40000));
    }
    cubiemem_close(life.client);
}

/* ---------------------------------------------------------------- the whole */

struct seat {
    struct role role;
    uint64_t steps, moved_ns;
    uint64_t stopped_until_ns; /* 0: it is not stopped */
    unsigned int lives;
};

static void sit_down(struct seat *seat, unsigned int number, unsigned int seed)
{
    const struct life life = {.number = number,
                              .seed = seed * 7919 + number * 104729 + seat->lives++};

    role_start(&seat->role, "client", live, &life);
    seat->stopped_until_ns = 0;
    seat->moved_ns = measure_now_ns();
}

/* Ended by itself? Then it must have ended well. */
static bool has_ended(struct seat *seat)
{
    int status;

    if (waitpid(seat->role.pid, &status, WNOHANG) != seat->role.pid) {
        return false;
    }
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a client ended with status %#x",
           (unsigned int)status);
    close(seat->role.fd);
    return true;
}

static void look_after(struct seat *seat, unsigned int number, unsigned int seed)
{
    uint64_t now_ns = measure_now_ns(), steps = counts->steps[number];

    if (seat->stopped_until_ns != 0 && now_ns > seat->stopped_until_ns) {
        kill(seat->role.pid, SIGCONT);
        seat->stopped_until_ns = 0;
    }
    if (steps != seat->steps || seat->stopped_until_ns != 0) {
        seat->steps = steps;
        seat->moved_ns = now_ns;
    }
    expect(now_ns - seat->moved_ns < STUCK_NS, "soak-%u is stuck", number);
    if (has_ended(seat)) {
        sit_down(seat, number, seed);
    }
}

/* Now and then somebody is killed, or stopped for up to three seconds. */
static void disturb(struct seat *seats, unsigned int n, unsigned int *state, unsigned int seed)
{
    unsigned int number = (unsigned int)rand_r(state) % n;
    struct seat *seat = &seats[number];

    if (seat->stopped_until_ns != 0 || has_ended(seat)) {
        if (seat->stopped_until_ns == 0) {
            sit_down(seat, number, seed);
        }
        return;
    }
    if (rand_r(state) % 4 == 0) {
        counts->stopped++;
        kill(seat->role.pid, SIGSTOP);
        seat->stopped_until_ns = measure_now_ns() + (uint64_t)(rand_r(state) % 3000) * 1000000;
    } else {
        counts->killed++;
        role_kill(&seat->role);
        sit_down(seat, number, seed);
    }
}

static void end_all(struct seat *seats, unsigned int n, struct watch *watch)
{
    atomic_store(&counts->over, true);
    for (unsigned int i = 0; i < n; i++) {
        kill(seats[i].role.pid, SIGCONT);
    }
    for (unsigned int i = 0; i < n; i++) {
        role_finish(&seats[i].role);
    }
    watch_until_n_clients(watch, 0, 10000);
    watch_until(watch, "draining_bytes", 0, 10000);
    watch_until(watch, "lent_bytes", 0, 10000);
    watch_until(watch, "promised_bytes", 0, 10000);
    watch_balance_at_rest(watch);
}

/* But for the pool's: two for a segment, the daemon's and the simulated driver's. */
static int own_fds(struct watch *watch)
{
    return watch_daemon_fds(watch) - 2 * (int)watch_figure(watch, "cached_segments");
}

static void report(double seconds)
{
    printf("%.0f s: %" PRIu64 " grants, %" PRIu64 " of them cut, %" PRIu64 " in the place of others, "
           "%" PRIu64 " by another's allocate; %" PRIu64 " refusals\n%" PRIu64 " pairs of work, "
           "%" PRIu64 " evictions, %" PRIu64 " killed, %" PRIu64 " stopped, %" PRIu64 " left\n",
           seconds, counts->granted, counts->chunked, counts->replaced, counts->shared,
           counts->refused, counts->worked, counts->evicted, counts->killed, counts->stopped,
           counts->left);
}

int main(void)
{
    static struct seat seats[MAX_CLIENTS];
    const struct harness_options options = {
        .arguments =
            (const char *const[]){"--mode", "passive", "--evict-timeout", "0.5", NULL}};
    const unsigned int seconds = setting("SOAK_SECONDS", 600), seed = setting("SOAK_SEED", 1);
    const unsigned int wanted = setting("SOAK_CLIENTS", 50);
    const unsigned int n = wanted < MAX_CLIENTS ? wanted : MAX_CLIENTS;
    unsigned int state = seed;
    struct watch watch;

    counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect(counts != MAP_FAILED, "no memory to count in");
    harness_start(DEVICE, &options, &harness);
    watch_open(&harness, &watch);
    const int fds = own_fds(&watch);
    const uint64_t start_ns = measure_now_ns();
    for (unsigned int i = 0; i < n; i++) {
        sit_down(&seats[i], i, seed);
    }
    while (measure_now_ns() - start_ns < seconds * SECOND_NS) {
        pause_us(LOOK_US);
        watch_balance(&watch);
        for (unsigned int i = 0; i < n; i++) {
            look_after(&seats[i], i, seed);
        }
        if (rand_r(&state) % 4 == 0) {
            disturb(seats, n, &state, seed);
        }
    }
    end_all(seats, n, &watch);
    expect(own_fds(&watch) <= fds, "the daemon had %d descriptors and has %d", fds,
           own_fds(&watch));
    expect(n < 6 || seconds < 10 || counts->shared > 0, "no member's allocate served another");
    report((double)(measure_now_ns() - start_ns) * 1e-9);
    watch_close(&watch);
    harness_stop(&harness);
    return 0;
}
