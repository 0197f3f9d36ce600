/*
 * test_handshake - all orders of an eviction's steps against those of the victim
 *
 * Two tracks. The chain: the daemon asks; the library reads Invalidate, sets the bit,
 * runs the hook, unmaps, answers; the daemon takes and grants. The program: it begins
 * work, uses its array, ends; or it allocates while the chain runs. Both are stopped
 * at the points of proto/seam.h, in the daemon and in this process, and an order of
 * the two is a word of C and P: each letter lets one track come to its next point.
 * All words are walked through, depth first: a run goes on with C as long as there
 * is one; the next run does P at the last place where that was possible, too.
 *
 * A second walk has an eviction timeout so short that every answer comes late.
 *
 * Whatever the order: the hook does not run between a begin that was granted and its
 * end; nobody finds in his array what another wrote; the books balance.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "harness.h"
#include "measure.h"
#include "outcome.h"
#include "watch.h"

#define MIB ((uint64_t)1 << 20)
#define DEVICE "sim:8MiB"
#define ARRAY_SIZE (6 * MIB) /* no two of them fit */
#define MAX_STEPS 64
#define LATE_NS 70000000 /* the daemon looks for late answers every 50 ms */
#define STEP_NS 8000000 /* a track that does not come so far is blocked */
#define CHECKED_WORDS 512 /* of an array, all over it */
#define PATIENCE_NS ((int64_t)5000000000)

#define CUBIEMEM_TEST_SEAMS
#include "seam.h"

/* ------------------------------------------------------------------- tracks */

struct track {
    unsigned int n_stopped, n_permits;
    uint64_t n_arrivals;
    bool done; /* there is no next point */
};

enum { CHAIN, PROGRAM, N_TRACKS };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static struct track tracks[N_TRACKS];
static bool armed;
static _Thread_local int my_track = CHAIN; /* the library's thread; others say */
static _Thread_local bool not_stopped;
static char history[4096]; /* points in the order in which they were passed */

static void stop_at(struct track *track, const char *point)
{
    pthread_mutex_lock(&lock);
    if (armed) {
        track->n_stopped++;
        track->n_arrivals++;
        pthread_cond_broadcast(&moved);
        while (armed && track->n_permits == 0) {
            pthread_cond_wait(&moved, &lock);
        }
        track->n_stopped--;
        if (track->n_permits > 0) {
            track->n_permits--;
        }
        strncat(history, track == &tracks[CHAIN] ? " C:" : " P:",
                sizeof(history) - strlen(history) - 1);
        strncat(history, point, sizeof(history) - strlen(history) - 1);
    }
    pthread_mutex_unlock(&lock);
}

void seam_stop(const char *point)
{
    if (!not_stopped) {
        stop_at(&tracks[my_track], point);
    }
}

/* Let the track pass its point, and come to its next. False: it cannot just now. */
static bool step(struct track *track)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += STEP_NS;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    uint64_t arrivals = track->n_arrivals;
    if (track->n_stopped > track->n_permits) {
        track->n_permits++;
        pthread_cond_broadcast(&moved);
    }
    while (track->n_arrivals == arrivals && !track->done &&
           pthread_cond_timedwait(&moved, &lock, &end) != ETIMEDOUT) {
    }
    bool moved_on = track->n_arrivals != arrivals || track->done;
    pthread_mutex_unlock(&lock);
    return moved_on;
}

static bool is_done(struct track *track)
{
    pthread_mutex_lock(&lock);
    bool done = track->done;
    pthread_mutex_unlock(&lock);
    return done;
}

static void arm(bool on)
{
    pthread_mutex_lock(&lock);
    armed = on;
    if (on) {
        memset(tracks, 0, sizeof(tracks));
        history[0] = '\0';
    }
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

static void finish(struct track *track)
{
    pthread_mutex_lock(&lock);
    track->done = true;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

/* The daemon stands at its points while this thread does not answer. */
static void *daemon_points(void *argument)
{
    const int fd = *(const int *)argument;
    char point[64];
    ssize_t n;

    while ((n = recv(fd, point, sizeof(point) - 1, 0)) > 0) {
        point[n] = '\0';
        stop_at(&tracks[CHAIN], point);
        if (send(fd, "", 1, MSG_NOSIGNAL) < 0) {
            break;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------ players */

struct party {
    struct cubiemem_client *client;
    struct cubiemem_instance *instance;
    struct cubiemem_array array;
    uint64_t word; /* what it writes */
    int status;
    pthread_t thread;
};

static struct harness harness;
static struct watch watch;
static struct party victim, asker;
static atomic_bool working; /* the victim, by a begin that was granted */
static atomic_int n_hooks, n_wrong;
static void (*program)(void);
static bool late; /* every answer to Invalidate comes after the timeout */
static atomic_bool asker_is_done;

static void hook(struct cubiemem_instance *instance, void *argument)
{
    (void)instance;
    (void)argument;
    n_hooks++;
    n_wrong += atomic_load(&working);
}

static uint64_t *word_at(const struct party *party, size_t i)
{
    return (uint64_t *)party->array.pointer +
           i * (party->array.nbytes / sizeof(uint64_t) / CHECKED_WORDS);
}

static void write_words(const struct party *party)
{
    for (size_t i = 0; i < CHECKED_WORDS; i++) {
        *word_at(party, i) = party->word;
    }
}

static void check_words(const struct party *party, const char *whose)
{
    for (size_t i = 0; i < CHECKED_WORDS; i++) {
        expect(*word_at(party, i) == party->word, "the %s finds a foreign word after%s", whose,
               history);
    }
}

static int allocate(struct party *party, uint64_t size)
{
    const int64_t shape = (int64_t)size;
    const struct cubiemem_array_request request = {.size = sizeof(request), .label = "a",
                                                   .shape = &shape, .rank = 1,
                                                   .dtype = CUBIEMEM_UINT8, .unchunkable = 1,
                                                   .chunk_axis_index = CUBIEMEM_AXIS_NONE};
    struct cubiemem_response *response;

    must(cubiemem_queue(party->instance, &request, 1), "queue");
    int status = cubiemem_allocate(party->instance, NULL, &response);
    if (status == CUBIEMEM_OK) {
        party->array.size = sizeof(party->array);
        must(cubiemem_response_array(response, "a", &party->array), "array");
        cubiemem_response_free(response);
    }
    return status;
}

/* Begin, use, end: 5 points. */
static void work(void)
{
    cubiemem_stream stream;

    must(cubiemem_group_stream(victim.instance, &stream), "stream");
    if (cubiemem_begin_work(victim.instance) != CUBIEMEM_OK) {
        return;
    }
    atomic_store(&working, true);
    write_words(&victim);
    SEAM("use");
    check_words(&victim, "victim");
    /* From inside end_work on it may be over, before it returns. */
    atomic_store(&working, false);
    must(cubiemem_end_work(victim.instance, stream), "end_work");
}

/* What it held is replaced, and the new is used at once: a grant is a begin. */
static void take_anew(uint64_t size)
{
    SEAM("allocate");
    victim.status = allocate(&victim, size);
    if (victim.status == CUBIEMEM_OK) {
        atomic_store(&working, true);
        write_words(&victim);
        SEAM("use");
        check_words(&victim, "victim");
        atomic_store(&working, false);
    }
}

static void take_the_same(void)
{
    take_anew(ARRAY_SIZE);
}

static void take_another(void)
{
    take_anew(ARRAY_SIZE - 2 * MIB);
}

static void *run_program(void *argument)
{
    (void)argument;
    my_track = PROGRAM;
    program();
    finish(&tracks[PROGRAM]);
    return NULL;
}

static void *run_asker(void *argument)
{
    (void)argument;
    not_stopped = true;
    asker.status = allocate(&asker, ARRAY_SIZE);
    if (asker.status == CUBIEMEM_OK) {
        write_words(&asker);
    }
    atomic_store(&asker_is_done, true);
    if (!late) {
        finish(&tracks[CHAIN]);
    }
    return NULL;
}

/* ------------------------------------------------------------------- orders */

/* The victim holds its array and is idle. */
static void set_scene(void)
{
    cubiemem_stream stream;

    must(cubiemem_release(asker.instance, NULL, 0), "release");
    must(cubiemem_ping(asker.client, PATIENCE_NS), "ping");
    must(allocate(&victim, ARRAY_SIZE), "allocate for the victim");
    must(cubiemem_group_stream(victim.instance, &stream), "stream");
    must(cubiemem_begin_work(victim.instance), "begin_work");
    must(cubiemem_end_work(victim.instance, stream), "end_work");
    must(cubiemem_sync(victim.instance), "sync");
    atomic_store(&n_hooks, 0);
    atomic_store(&asker_is_done, false);
    asker.status = victim.status = CUBIEMEM_CANCELLED;
}

/* What holds after every order. */
static void check(const char *order)
{
    if (getenv("V") != NULL) {
        printf("%s:%s\n", order, history);
    }
    expect(n_wrong == 0, "the hook ran inside of begun work:%s", history);
    expect(n_hooks <= 1, "the hook ran twice:%s", history);
    if (asker.status == CUBIEMEM_OK) {
        check_words(&asker, "asker");
    }
    expect(asker.status == CUBIEMEM_OK || asker.status == CUBIEMEM_UNCHUNKABLE_TOO_LARGE ||
               asker.status == CUBIEMEM_NO_MEMORY,
           "the asker gets %s:%s", cubiemem_status_name(asker.status), history);
    expect(victim.status == CUBIEMEM_OK || victim.status == CUBIEMEM_CANCELLED ||
               victim.status == CUBIEMEM_UNCHUNKABLE_TOO_LARGE ||
               victim.status == CUBIEMEM_NO_MEMORY,
           "the victim gets %s:%s", cubiemem_status_name(victim.status), history);
    expect(late || asker.status == CUBIEMEM_OK || victim.status == CUBIEMEM_OK || n_hooks == 0,
           "evicted for nobody:%s", history);
    must(cubiemem_ping(victim.client, PATIENCE_NS), "ping");
    watch_balance_at_rest(&watch);
}

/* An order, and where P would have been possible instead of C. */
struct walk {
    char order[MAX_STEPS + 1];
    bool possible[MAX_STEPS];
    size_t n_given; /* letters of the order that are given */
    size_t n;       /* letters that there were in the end */
    bool blocked;   /* the last letter given was a P that could not be */
};

static void take_steps(struct walk *walk)
{
    walk->n = 0;
    walk->blocked = false;
    while (walk->n < MAX_STEPS && !(is_done(&tracks[CHAIN]) && is_done(&tracks[PROGRAM]))) {
        const size_t i = walk->n++;
        if (i >= walk->n_given) {
            walk->order[i] = is_done(&tracks[CHAIN]) ? 'P' : 'C';
        }
        const bool chain = walk->order[i] == 'C';
        walk->possible[i] = chain && !is_done(&tracks[PROGRAM]);
        const bool moved_on = step(&tracks[chain ? CHAIN : PROGRAM]);
        if (chain && !moved_on && atomic_load(&asker_is_done)) {
            finish(&tracks[CHAIN]); /* the late answer was the last of it */
        }
        if (late && i == 1) {
            nanosleep(&(struct timespec){.tv_nsec = LATE_NS}, NULL);
        }
        walk->blocked |= !chain && !moved_on && i + 1 == walk->n_given;
    }
    walk->order[walk->n] = '\0';
}

static void walk_one(struct walk *walk)
{
    set_scene();
    arm(true);
    pthread_create(&victim.thread, NULL, run_program, NULL);
    pthread_create(&asker.thread, NULL, run_asker, NULL);
    take_steps(walk);
    arm(false);
    pthread_join(victim.thread, NULL);
    pthread_join(asker.thread, NULL);
    check(walk->order);
}

static unsigned int walk_all(void)
{
    struct walk walk = {0};
    unsigned int n = 0;

    for (;;) {
        walk_one(&walk);
        n++;
        /* A blocked P was the same order as without it, and so is what follows. */
        size_t i = walk.blocked ? walk.n_given : walk.n;
        while (i > 0 && !walk.possible[i - 1]) {
            i--;
        }
        if (i == 0) {
            return n;
        }
        walk.order[i - 1] = 'P';
        walk.n_given = i;
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} programs[] = {
    {"begin, use, end", work},
    {"allocate the same", take_the_same},
    {"allocate another", take_another},
};

/* ------------------------------------------------------------------ the end */

static void open_party(struct party *party, const char *name, uint64_t word)
{
    const struct cubiemem_options options = {.size = sizeof(options), .name = name};
    const struct cubiemem_instance_options instance = {.size = sizeof(instance),
                                                       .invalidate = hook};

    *party = (struct party){.word = word};
    party->client = harness_connect(&harness, &options);
    must(cubiemem_register(party->client, name, &instance, &party->instance), "register");
}

static void walk_with(const char *timeout_s)
{
    int ends[2];
    char variable[64];
    pthread_t daemon_thread;

    expect(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "no socket pair");
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    snprintf(variable, sizeof(variable), "CUBIEMEM_TEST_SEAM_FD=%d", ends[1]);
    const struct harness_options options = {
        .program = "cubiememd-seams",
        .arguments =
            (const char *const[]){"--mode", "passive", "--evict-timeout", timeout_s, NULL},
        .variables = (const char *const[]){variable, NULL},
    };
    harness_start(DEVICE, &options, &harness);
    close(ends[1]);
    pthread_create(&daemon_thread, NULL, daemon_points, &ends[0]);
    watch_open(&harness, &watch);
    open_party(&victim, "victim", 0x76696374);
    open_party(&asker, "asker", 0x61736b72);
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        program = programs[i].run;
        uint64_t start_ns = measure_now_ns();
        unsigned int n = walk_all();
        printf("%s%s: %u orders in %.1f s\n", programs[i].name, late ? ", late" : "", n,
               (double)(measure_now_ns() - start_ns) * 1e-9);
        fflush(stdout);
    }
    cubiemem_close(victim.client);
    cubiemem_close(asker.client);
    watch_close(&watch);
    harness_stop(&harness);
    pthread_join(daemon_thread, NULL);
    close(ends[0]);
}

/* Two processes: the daemon of the second walk is started before there is a context. */
int main(int argc, char **argv)
{
    not_stopped = true;
    if (argc > 1) {
        late = true;
        walk_with("0.001");
        return 0;
    }
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", argv[0], "late", (char *)NULL);
        _exit(127);
    }
    walk_with("5");
    int status;
    expect(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
           "the walk with late answers ended with status %#x", (unsigned int)status);
    return 0;
}
