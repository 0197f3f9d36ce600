/*
 * bench-share - the whole story: processes that together want twice the device
 *
 *     share [--processes N] [--rounds R] [--room SIZE] [--compute MS] [--wait S] [LOAD...]
 *
 * N processes do three batches each; what they hold together is 2.2 times what there is
 * room for, as much as one of them fits alone. LOADs are pkfit, synthetic and mixed. In
 * each round they run (a) as people do today, (b) one after the other, (c) through
 * cubiemem. Exits with 1 if (c) is not as wanted. DEVICE says on what.
 *
 * On the simulated device everything is pinned to one processor: a device is one device,
 * however many processors stand in for it, and work that is done at once gains nothing.
 * On a GPU a process of its own holds all memory but --room and that of the contexts.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checked.h"
#include "measure.h"
#include "outcome.h"
#include "role.h"
#include "tally.h"

#define MIB                ((uint64_t)1 << 20)
#define GIB                ((uint64_t)1 << 30)
#define WANTED_TIMES       2.2         /* the budget, all processes together */
#define CONTEXT_SIZE       (640 * MIB) /* what the daemon allows for one on a GPU */
#define SYNTHETIC_RUN      1024        /* bytes of one run in each of its arrays */
#define PKFIT_OBSERVATIONS 11          /* of every subject of theoph.csv */

struct options {
    uint32_t n_processes;
    uint32_t n_rounds;
    uint64_t room;       /* bytes; 0: by the device */
    uint32_t compute_ms; /* of a synthetic batch that has the device for itself */
    uint32_t wait_s;
};

/* ---------------------------------------------------------------- the rest of a card */

struct ballast {
    const struct harness *harness;
    uint64_t room;
};

/* Holds what the benchmark is not to have, until its leader ends. */
static void ballast_run(int fd, const void *argument)
{
    const struct ballast *ballast = argument;
    struct card card;
    CUdeviceptr at;
    size_t free_size, total;
    char byte = 0;

    card_open(ballast->harness, &card);
    card_use(&card);
    card_must(&card, card.driver.cuMemGetInfo(&free_size, &total), "cuMemGetInfo");
    expect(free_size >= ballast->room, "%zu bytes are free, fewer than the room asked for",
           free_size);
    for (uint64_t rest = free_size - ballast->room; rest >= GIB / 4;) {
        uint64_t size = rest < GIB ? GIB / 4 : GIB;
        card_must(&card, card.driver.cuMemAlloc(&at, size), "cuMemAlloc of the ballast");
        rest -= size;
    }
    role_tell(fd, &byte, 1);
    while (read(fd, &byte, 1) > 0) {
    }
    exit(EXIT_SUCCESS);
}

/* -------------------------------------------------------------------------- the loads */

struct meter {
    const struct harness *harness;
    uint64_t size;
};

/* Bytes a second of a copy within the device, nobody else there. */
static void meter_run(int fd, const void *argument)
{
    const struct meter *meter = argument;
    struct card card;
    CUdeviceptr from, to;
    double rate;

    card_open(meter->harness, &card);
    card_use(&card);
    card_must(&card, card.driver.cuMemAlloc(&from, meter->size), "cuMemAlloc");
    card_must(&card, card.driver.cuMemAlloc(&to, meter->size), "cuMemAlloc");
    card_fill(&card, from, meter->size, 1);
    card_fill(&card, to, meter->size, 2);
    uint64_t begin_ns = measure_now_ns();
    for (int i = 0; i < 4; i++) {
        card_must(&card, card.driver.cuMemcpyAsync(to, from, meter->size, NULL), "cuMemcpyAsync");
    }
    card_must(&card, card.driver.cuStreamSynchronize(NULL), "cuStreamSynchronize");
    rate = 4 * (double)meter->size / ((double)(measure_now_ns() - begin_ns) * 1e-9);
    card.driver.cuMemFree(from);
    card.driver.cuMemFree(to);
    card_close(&card);
    role_tell(fd, &rate, sizeof(rate));
}

static double copy_rate(const struct share_setup *setup, uint64_t size)
{
    const struct meter meter = {&setup->harness, size};
    struct role role;
    double rate;

    role_start(&role, "meter", meter_run, &meter);
    role_hear(role.fd, &rate, sizeof(rate));
    role_finish(&role);
    return rate;
}

static struct share_load load_synthetic(uint64_t size, double rate, uint32_t compute_ms)
{
    struct share_load load = {.run_size = {SYNTHETIC_RUN, SYNTHETIC_RUN}};

    load.runs = size / (2 * SYNTHETIC_RUN);
    load.passes = (uint32_t)(compute_ms * 1e-3 * rate / ((double)size / 2));
    load.passes = load.passes > 0 ? load.passes : 1;
    return load;
}

static struct share_load load_pkfit(uint64_t size)
{
    struct share_load load = {.run_size = {PKFIT_OBSERVATIONS * sizeof(double), sizeof(double)}};

    load.points = (uint32_t)cbrt((double)(size / (load.run_size[0] + load.run_size[1])));
    load.runs = (uint64_t)load.points * load.points * load.points;
    return load;
}

static void loads_make(struct share_setup *setup, const char *name, const struct options *options)
{
    uint64_t size = (uint64_t)(WANTED_TIMES * (double)setup->budget / setup->n_processes);
    bool mixed = strcmp(name, "mixed") == 0;

    expect(mixed || strcmp(name, "pkfit") == 0 || strcmp(name, "synthetic") == 0,
           "there is no load %s: pkfit, synthetic, mixed", name);
    double rate = copy_rate(setup, size / 4 / MIB * MIB);
    for (uint32_t i = 0; i < setup->n_processes; i++) {
        bool pkfit = mixed ? i % 2 == 0 : strcmp(name, "pkfit") == 0;
        setup->loads[i] =
            pkfit ? load_pkfit(size) : load_synthetic(size, rate, options->compute_ms);
        expect(share_charge(setup->loads[i].run_size, setup->loads[i].runs) <= setup->budget,
               "one process alone does not fit: more --processes are needed");
    }
}

/* ------------------------------------------------------------------------- the rounds */

static bool story(struct share_setup *setup, const char *name, const struct options *options)
{
    struct tally tally = {0};
    const struct share_load *load = &setup->loads[0];

    loads_make(setup, name, options);
    setup->idle_used = card_used(&setup->card);
    printf("%s: %u processes, %d batches of %ju MiB each; room for %ju MiB; %u rounds\n", name,
           setup->n_processes, SHARE_BATCHES,
           (uintmax_t)(share_charge(load->run_size, load->runs) / MIB),
           (uintmax_t)(setup->budget / MIB), options->n_rounds);
    for (uint32_t round = 0; round < options->n_rounds; round++) {
        struct share_outcome outcomes[N_SCENES];
        for (int s = 0; s < N_SCENES; s++) {
            way_run(setup, (enum share_scene)s, &outcomes[s]);
        }
        tally_add(&tally, setup, outcomes);
    }
    bool met = tally_print(&tally, setup);
    printf("\n");
    fflush(stdout);
    return met;
}

static void options_parse(int argc, char **argv, struct options *options_p)
{
    static const struct option table[] = {
        {"processes", required_argument, NULL, 'p'}, {"rounds", required_argument, NULL, 'r'},
        {"room", required_argument, NULL, 's'},      {"compute", required_argument, NULL, 'c'},
        {"wait", required_argument, NULL, 'w'},      {0},
    };
    struct options options = {.n_processes = 4, .n_rounds = 3, .compute_ms = 300, .wait_s = 60};
    int option;

    while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
        unsigned long number = option != '?' ? strtoul(optarg, NULL, 10) : 0;
        switch (option) {
        case 'p':
            options.n_processes = (uint32_t)number;
            break;
        case 'r':
            options.n_rounds = (uint32_t)number;
            break;
        case 'c':
            options.compute_ms = (uint32_t)number;
            break;
        case 'w':
            options.wait_s = (uint32_t)number;
            break;
        case 's':
            expect(size_parse(optarg, &options.room), "--room %s is no size", optarg);
            break;
        default:
            exit(2); /* getopt has said why */
        }
    }
    expect(options.n_processes >= 3 && options.n_processes <= SHARE_MAX_PROCESSES,
           "--processes: 3 to %d", SHARE_MAX_PROCESSES);
    expect(options.n_rounds >= 1 && options.n_rounds <= TALLY_MAX_ROUNDS, "--rounds: 1 to %d",
           TALLY_MAX_ROUNDS);
    *options_p = options;
}

/* What there is room for, and who has the rest. */
static void setup_room(struct share_setup *setup, const struct options *options,
                       struct role *ballast_p)
{
    const char *size = strchr(setup->harness.device, ':');

    if (setup->card.simulated) {
        measure_pin(0, 0);
        expect(size != NULL && size_parse(size + 1, &setup->budget),
               "DEVICE=%s: a simulated device with its size is needed, such as sim:512MiB",
               setup->harness.device);
        return;
    }
    uint64_t room = options->room > 0 ? options->room : 16 * GIB;
    const struct ballast ballast = {&setup->harness, room};
    char ready;
    role_start(ballast_p, "ballast", ballast_run, &ballast);
    role_hear(ballast_p->fd, &ready, 1);
    expect(room > setup->n_processes * CONTEXT_SIZE, "--room is too small for %u contexts",
           setup->n_processes);
    setup->budget = room - setup->n_processes * CONTEXT_SIZE;
}

int main(int argc, char **argv)
{
    static const char *const all[] = {"pkfit", "synthetic", "mixed"};
    static struct share_setup setup;
    struct options options;
    struct role ballast = {0};
    bool met = true;

    options_parse(argc, argv, &options);
    setup.n_processes = options.n_processes;
    setup.wait_ns = (int64_t)options.wait_s * 1000000000;
    harness_prepare(harness_device("sim:512MiB"), &setup.harness);
    card_watch(&setup.harness, &setup.card);
    setup.card.simulated = harness_device_is_simulated(setup.harness.device);
    setup_room(&setup, &options, &ballast);
    const char *const *names = optind < argc ? (const char *const *)&argv[optind] : all;
    size_t n_names = optind < argc ? (size_t)(argc - optind) : sizeof(all) / sizeof(all[0]);
    for (size_t i = 0; i < n_names; i++) {
        met &= story(&setup, names[i], &options);
    }
    if (ballast.pid != 0) {
        role_kill(&ballast);
    }
    card_close(&setup.card);
    harness_stop(&setup.harness);
    return met ? 0 : 1;
}
