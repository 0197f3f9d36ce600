/*
 * tally - what the rounds of bench-share come to, and whether it is as wanted
 *
 * A process's slow-down is its time for each batch that it finished, over that of such a
 * process when it has the device for itself (the run one after the other, of the same
 * round; the mean, for on a busy machine one alone says little).
 * Who finished nothing has none. Makespans are compared within a round, and the median
 * of the rounds counts; of everything else the worst counts.
 */
#include "tally.h"

#include <stdio.h>
#include <string.h>

#include "measure.h"

#define WANTED_UNEVEN         1.5
#define WANTED_AGAINST_SERIAL 1.05

static uint32_t n_done(const struct share_report *report)
{
    uint32_t n = 0;

    for (int i = 0; i < SHARE_BATCHES; i++) {
        n += report->batches[i].done;
    }
    return n;
}

/* Nanoseconds for each batch done; 0: none was. */
static double pace(const struct share_report *report)
{
    uint32_t n = n_done(report);

    return n > 0 ? (double)(report->end_ns - report->begin_ns) / n : 0;
}

static void add_batches(struct tally_scene *scene, const struct share_report *report)
{
    for (int i = 0; i < SHARE_BATCHES; i++) {
        const struct share_batch *batch = &report->batches[i];
        scene->n_failed += !batch->done;
        scene->n_wrong += batch->wrong;
        scene->chunks = batch->chunks > scene->chunks ? batch->chunks : scene->chunks;
    }
    if (report->why[0] != '\0') {
        memcpy(scene->why, report->why, sizeof(scene->why));
    }
}

/* What a batch of process i's load takes alone: the mean of those that have the same. */
static double pace_alone(const struct share_setup *setup, const struct share_outcome *alone,
                         size_t i)
{
    double sum = 0;
    size_t n = 0;

    for (size_t k = 0; k < setup->n_processes; k++) {
        bool same = memcmp(&setup->loads[k], &setup->loads[i], sizeof(setup->loads[i])) == 0;
        double own = pace(&alone->reports[k]);
        if (same && own > 0) {
            sum += own;
            n++;
        }
    }
    return n > 0 ? sum / (double)n : 0;
}

static void add_slowness(struct tally_scene *scene, const struct share_setup *setup,
                         const struct share_outcome *outcome, const struct share_outcome *alone)
{
    double sum = 0, worst = 0;
    size_t n_counted = 0;

    for (size_t i = 0; i < setup->n_processes; i++) {
        double own = pace(&outcome->reports[i]), best = pace_alone(setup, alone, i);
        if (own > 0 && best > 0) {
            sum += own / best;
            worst = own / best > worst ? own / best : worst;
            n_counted++;
        }
    }
    scene->slow_worst = worst > scene->slow_worst ? worst : scene->slow_worst;
    if (n_counted > 0 && worst / (sum / (double)n_counted) > scene->uneven) {
        scene->uneven = worst / (sum / (double)n_counted);
    }
}

void tally_add(struct tally *tally, const struct share_setup *setup,
               const struct share_outcome outcomes[N_SCENES])
{
    const struct share_outcome *serial = &outcomes[SCENE_SERIAL];
    size_t round = tally->n_rounds++;

    for (int s = 0; s < N_SCENES; s++) {
        struct tally_scene *scene = &tally->scenes[s];
        for (uint32_t i = 0; i < setup->n_processes; i++) {
            const struct share_report *report = &outcomes[s].reports[i];
            add_batches(scene, report);
            for (int k = 0; k < SHARE_BATCHES; k++) {
                tally->n_other += report->batches[k].done && serial->reports[i].batches[k].done &&
                                  report->batches[k].answer != serial->reports[i].batches[k].answer;
            }
        }
        add_slowness(scene, setup, &outcomes[s], serial);
        scene->makespan_s[round] = (double)outcomes[s].makespan_ns * 1e-9;
        scene->peak = outcomes[s].peak > scene->peak ? outcomes[s].peak : scene->peak;
    }
    tally->against_serial[round] =
        (double)outcomes[SCENE_SHARED].makespan_ns / (double)serial->makespan_ns;
}

static bool wanted(const char *name, double value, double most)
{
    bool met = value <= most;

    printf("  %-52s %12.4g  at most %-6.4g %s\n", name, value, most, met ? "met" : "NOT met");
    return met;
}

/* Chunks of the largest batch, cut so that its arrays fit into an equal share. */
static uint64_t equal_share_chunks(const struct share_setup *setup)
{
    uint64_t most = 1;

    for (uint32_t i = 0; i < setup->n_processes; i++) {
        const struct share_load *load = &setup->loads[i];
        uint64_t share = setup->budget / setup->n_processes;
        uint64_t n = share_most_runs(load->run_size, load->runs, share);
        uint64_t chunks = n > 0 ? share_chunks(load->runs, n) : UINT64_MAX;
        most = chunks > most ? chunks : most;
    }
    return most;
}

static void print_scenes(struct tally *tally, uint32_t n_batches)
{
    static const char *const names[N_SCENES] = {"(a) all at once, each for itself",
                                                "(b) one after the other",
                                                "(c) all at once, through cubiemem"};

    printf("  %-36s %10s %12s %10s %10s %8s %9s\n", "", "failed", "worst slowed", "worst/mean",
           "makespan", "chunks", "peak");
    for (int s = 0; s < N_SCENES; s++) {
        struct tally_scene *scene = &tally->scenes[s];
        char failed[24];
        snprintf(failed, sizeof(failed), "%u of %u", scene->n_failed, n_batches);
        printf("  %-36s %10s %11.2fx %10.2f %8.2f s %8ju %5ju MiB\n", names[s], failed,
               scene->slow_worst, scene->uneven, measure_median(scene->makespan_s, tally->n_rounds),
               (uintmax_t)scene->chunks, (uintmax_t)(scene->peak >> 20));
    }
    for (int s = 0; s < N_SCENES; s++) {
        if (tally->scenes[s].why[0] != '\0') {
            printf("  %.3s %s\n", names[s], tally->scenes[s].why);
        }
    }
}

bool tally_print(struct tally *tally, const struct share_setup *setup)
{
    const struct tally_scene *shared = &tally->scenes[SCENE_SHARED];
    uint32_t n_batches = setup->n_processes * SHARE_BATCHES * (uint32_t)tally->n_rounds;
    uint32_t n_wrong = tally->n_other;

    print_scenes(tally, n_batches);
    for (int s = 0; s < N_SCENES; s++) {
        n_wrong += tally->scenes[s].n_wrong;
    }
    bool met = wanted("(c) failed batches", shared->n_failed, 0);
    met &= wanted("(c) worst process over the mean", shared->uneven, WANTED_UNEVEN);
    met &= wanted("(c) makespan over that of (b), median",
                  measure_median(tally->against_serial, tally->n_rounds), WANTED_AGAINST_SERIAL);
    met &= wanted("(c) chunks of a batch, against an equal share's", (double)shared->chunks,
                  (double)equal_share_chunks(setup));
    met &= wanted("batches with other results", n_wrong, 0);
    return met;
}
