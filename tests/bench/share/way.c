/*
 * way - the processes of bench-share, run once in one of three ways
 *
 * The process that leads touches no driver, only NVML, with which it looks at the
 * device every few milliseconds while the others work. Before a run begins, what the
 * last one held is back.
 */
#include "way.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "outcome.h"
#include "role.h"

#define SAMPLE_MS         3
#define LEAST_PATIENCE_MS 600000
#define FREE_AGAIN_MS     20000
#define SLACK             ((uint64_t)64 << 20) /* bytes that may differ on a real card at rest */

/* ------------------------------------------------------------------------ layout */

static uint64_t charge_one(uint64_t size)
{
    return (size + SHARE_GRANULARITY - 1) / SHARE_GRANULARITY * SHARE_GRANULARITY;
}

uint64_t share_charge(const uint64_t run_size[SHARE_ARRAYS], uint64_t n)
{
    uint64_t charge = 0;

    for (int i = 0; i < SHARE_ARRAYS; i++) {
        charge += charge_one(n * run_size[i]);
    }
    return charge;
}

uint64_t share_most_runs(const uint64_t run_size[SHARE_ARRAYS], uint64_t runs, uint64_t room)
{
    uint64_t fits = 0, above = runs + 1;

    while (above - fits > 1) {
        uint64_t middle = fits + (above - fits) / 2;
        if (share_charge(run_size, middle) <= room) {
            fits = middle;
        } else {
            above = middle;
        }
    }
    return fits;
}

/* --------------------------------------------------------------------- processes */

static void peak_look(const struct share_setup *setup, uint64_t *peak)
{
    uint64_t used = card_used(&setup->card);

    if (used > setup->idle_used && used - setup->idle_used > *peak) {
        *peak = used - setup->idle_used;
    }
}

static void start(struct role *role_p, const struct share_task *task)
{
    char ready;

    role_start(role_p, "process", worker_run, task);
    role_hear(role_p->fd, &ready, 1);
}

/* Until all have reported, look at the device. */
static void gather(const struct share_setup *setup, struct role *roles, size_t n,
                   struct share_report *reports_p, uint64_t *peak)
{
    struct pollfd fds[SHARE_MAX_PROCESSES];
    size_t n_left = n;
    int silent_ms = 0;

    for (size_t i = 0; i < n; i++) {
        fds[i] = (struct pollfd){.fd = roles[i].fd, .events = POLLIN};
        role_tell(roles[i].fd, "", 1);
    }
    while (n_left > 0) {
        int n_ready = poll(fds, n, SAMPLE_MS);
        peak_look(setup, peak);
        silent_ms = n_ready > 0 ? 0 : silent_ms + SAMPLE_MS;
        expect(silent_ms < LEAST_PATIENCE_MS, "%zu processes do not come to an end", n_left);
        for (size_t i = 0; i < n && n_ready > 0; i++) {
            if (fds[i].fd >= 0 && fds[i].revents != 0) {
                role_hear(fds[i].fd, &reports_p[i], sizeof(reports_p[i]));
                fds[i].fd = -1;
                n_left--;
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        role_finish(&roles[i]);
    }
}

static void run_all(const struct share_setup *setup, const struct share_task *tasks,
                    struct share_outcome *outcome)
{
    struct role roles[SHARE_MAX_PROCESSES];

    for (uint32_t i = 0; i < setup->n_processes; i++) {
        start(&roles[i], &tasks[i]);
    }
    gather(setup, roles, setup->n_processes, outcome->reports, &outcome->peak);
}

static void run_each(const struct share_setup *setup, const struct share_task *tasks,
                     struct share_outcome *outcome)
{
    struct role role;

    for (uint32_t i = 0; i < setup->n_processes; i++) {
        start(&role, &tasks[i]);
        gather(setup, &role, 1, &outcome->reports[i], &outcome->peak);
    }
}

static void run_shared(struct share_setup *setup, const struct share_task *tasks,
                       struct share_outcome *outcome)
{
    char budget[32];
    const char *const arguments[] = {"--mode", "active", "--budget", budget, NULL};
    const struct harness_options options = {.arguments = arguments};

    snprintf(budget, sizeof(budget), "%juMiB", (uintmax_t)(setup->budget >> 20));
    harness_launch(&setup->harness, &options);
    run_all(setup, tasks, outcome);
    harness_end_daemon(&setup->harness);
}

static uint64_t makespan(const struct share_outcome *outcome, size_t n)
{
    uint64_t begin_ns = UINT64_MAX, end_ns = 0;

    for (size_t i = 0; i < n; i++) {
        const struct share_report *report = &outcome->reports[i];
        begin_ns = report->begin_ns < begin_ns ? report->begin_ns : begin_ns;
        end_ns = report->end_ns > end_ns ? report->end_ns : end_ns;
    }
    return end_ns - begin_ns;
}

void way_run(struct share_setup *setup, enum share_scene scene, struct share_outcome *outcome_p)
{
    struct share_task tasks[SHARE_MAX_PROCESSES];
    struct share_outcome outcome = {0};

    for (uint32_t i = 0; i < setup->n_processes; i++) {
        tasks[i] = (struct share_task){.harness = &setup->harness,
                                       .load = setup->loads[i],
                                       .way = scene == SCENE_SHARED ? SHARE_LENT : SHARE_PRIVATE,
                                       .number = i,
                                       .wait_ns = setup->wait_ns};
    }
    uint64_t rest = setup->idle_used + (setup->card.simulated ? 0 : SLACK);
    uint64_t used = card_wait_used(&setup->card, rest, FREE_AGAIN_MS);
    expect(used <= rest, "%ju bytes are still in use from the run before",
           (uintmax_t)(used - setup->idle_used));
    if (scene == SCENE_SHARED) {
        run_shared(setup, tasks, &outcome);
    } else if (scene == SCENE_SERIAL) {
        run_each(setup, tasks, &outcome);
    } else {
        run_all(setup, tasks, &outcome);
    }
    outcome.makespan_ns = makespan(&outcome, setup->n_processes);
    *outcome_p = outcome;
}
