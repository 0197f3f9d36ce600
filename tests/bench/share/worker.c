/*
 * worker - one process of bench-share: opens the device, does its batches, reports
 *
 * Two loads. The synthetic one fills an array and copies it to another as often as told,
 * then looks whether what it wrote is there: every process, batch and chunk has a word
 * of its own. pkfit evaluates the grid of one subject a batch, by pkfit's own code: in
 * lent memory by its own evaluator, in private memory by the one below. A batch that
 * fails is counted, and the next one is tried.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_kernel.h"
#include "data.h"
#include "holder.h"
#include "lent.h"
#include "measure.h"
#include "outcome.h"
#include "role.h"

/* -------------------------------------------------------------- the synthetic load */

static int chunk_work(struct holder *holder, const struct share_load *load,
                      const struct grant *grant, uint64_t n, uint32_t word)
{
    const struct driver *driver = &holder->card.driver;
    uint64_t size = n * load->run_size[0];
    CUresult result =
        driver->cuMemsetD32Async(grant->at[0], word, size / sizeof(word), holder->stream);

    for (uint32_t i = 0; i < load->passes && result == CUDA_SUCCESS; i++) {
        result = driver->cuMemcpyAsync(grant->at[1], grant->at[0], size, holder->stream);
    }
    return holder_check(holder, result, "the chunk's work");
}

/* The first and the last word of both arrays. */
static int chunk_look(struct holder *holder, const struct share_load *load,
                      const struct grant *grant, uint64_t n, uint32_t word, uint32_t *wrong_p)
{
    uint64_t last = n * load->run_size[0] - sizeof(word);

    for (int i = 0; i < 2 * SHARE_ARRAYS; i++) {
        uint32_t found;
        CUdeviceptr at = grant->at[i / 2] + (i % 2 == 0 ? 0 : last);
        if (holder_check(holder, holder->card.driver.cuMemcpyDtoH(&found, at, sizeof(found)),
                         "cuMemcpyDtoH") < 0) {
            return -1;
        }
        *wrong_p |= found != word;
    }
    return 0;
}

static int synthetic_chunks(struct holder *holder, const struct share_load *load,
                            const struct grant *grant, uint32_t word, struct share_batch *batch)
{
    for (uint64_t first = 0; first < load->runs; first += grant->chunk_length) {
        uint64_t n = load->runs - first;
        n = n < grant->chunk_length ? n : grant->chunk_length;
        word++;
        if (holder->ops->begin(holder) < 0) {
            return -1;
        }
        int worked = chunk_work(holder, load, grant, n, word);
        if (holder->ops->end(holder) < 0 || worked < 0 ||
            chunk_look(holder, load, grant, n, word, &batch->wrong) < 0) {
            return -1;
        }
        batch->chunks++;
        batch->answer += n;
    }
    return 0;
}

static int synthetic_batch(struct holder *holder, const struct share_load *load, uint32_t word,
                           struct share_batch *batch_p)
{
    struct share_batch batch = {0};
    struct grant grant;

    if (holder->ops->take(holder, load, &grant) < 0 || holder->ops->begin(holder) < 0) {
        return -1;
    }
    int result = synthetic_chunks(holder, load, &grant, word, &batch);
    if (holder->ops->end(holder) < 0 || result < 0) {
        return -1;
    }
    batch.done = 1;
    batch.bytes = grant.chunk_length * (load->run_size[0] + load->run_size[1]);
    *batch_p = batch;
    return 0;
}

static void synthetic_run(const struct share_task *task, struct share_report *report)
{
    struct holder holder;
    int opened =
        task->way == SHARE_LENT ? lent_holder_open(&holder, task) : private_open(&holder, task);

    if (opened < 0) {
        snprintf(report->why, sizeof(report->why), "%s", holder.why);
        return;
    }
    for (uint32_t i = 0; i < SHARE_BATCHES; i++) {
        uint32_t word = (task->number + 1) << 24 | i << 20;
        if (synthetic_batch(&holder, &task->load, word, &report->batches[i]) < 0 &&
            report->why[0] == '\0') {
            snprintf(report->why, sizeof(report->why), "%s", holder.why);
        }
    }
    holder.ops->close(&holder);
}

/* ------------------------------------------------------------------ the load pkfit */

struct private_evaluator {
    struct evaluator base; /* first */
    struct holder holder;
    struct share_load load;
    struct lent_work work;
    double *host_ss;
};

static void cpu_kernel(void *argument)
{
    const struct lent_work *work = argument;

    grid_evaluate(work->subject, work->grid, work->first, work->n, work->stride, work->curve,
                  work->ss);
}

static int private_launch(struct private_evaluator *own)
{
    struct holder *holder = &own->holder;

    if (holder->card.simulated) {
        return holder_check(
            holder, holder->card.driver.cuLaunchHostFunc(holder->stream, cpu_kernel, &own->work),
            "cuLaunchHostFunc");
    }
    const char *why = cuda_kernel_launch(&own->work, own->host_ss, (cubiemem_stream)holder->stream);
    if (why != NULL) {
        snprintf(holder->why, sizeof(holder->why), "the CUDA kernel: %s", why);
        return -1;
    }
    return 0;
}

static int private_chunks(struct private_evaluator *own, const struct grant *grant,
                          struct best *best)
{
    struct lent_work *work = &own->work;

    for (work->first = 0; work->first < own->load.runs; work->first += grant->chunk_length) {
        work->n = own->load.runs - work->first;
        work->n = work->n < grant->chunk_length ? work->n : grant->chunk_length;
        int launched = private_launch(own);
        if (own->holder.ops->end(&own->holder) < 0 || launched < 0) {
            return -1;
        }
        best_update(best, own->holder.card.simulated ? work->ss : own->host_ss, work->first,
                    work->n);
    }
    return 0;
}

static int private_evaluate(struct evaluator *evaluator, const struct pk_subject *subject,
                            const struct pk_grid *grid, struct best *best_p,
                            struct batch_cost *cost_p)
{
    struct private_evaluator *own = (struct private_evaluator *)evaluator;
    struct best best = BEST_INIT;
    struct grant grant;

    if (own->holder.ops->take(&own->holder, &own->load, &grant) < 0) {
        return -1;
    }
    if (!own->holder.card.simulated) {
        double *host_ss = realloc(own->host_ss, grant.chunk_length * sizeof(double));
        expect(host_ss != NULL, "no host memory for %ju runs", (uintmax_t)grant.chunk_length);
        own->host_ss = host_ss;
    }
    own->work = (struct lent_work){.subject = subject,
                                   .grid = grid,
                                   .stride = grant.chunk_length,
                                   .curve = (double *)(uintptr_t)grant.at[0],
                                   .ss = (double *)(uintptr_t)grant.at[1]};
    if (private_chunks(own, &grant, &best) < 0) {
        return -1;
    }
    *best_p = best;
    *cost_p =
        (struct batch_cost){share_chunks(own->load.runs, grant.chunk_length),
                            grant.chunk_length * (own->load.run_size[0] + own->load.run_size[1])};
    return 0;
}

static void pkfit_batches(struct evaluator *evaluator, const struct share_task *task,
                          const struct data *data, struct share_report *report)
{
    struct pk_grid grid = grid_coarse(task->load.points);

    for (int i = 0; i < SHARE_BATCHES; i++) {
        struct share_batch *batch = &report->batches[i];
        struct batch_cost cost;
        struct best best;
        if (evaluator->run(evaluator, data_subject(data, i + 1), &grid, &best, &cost) < 0) {
            continue;
        }
        *batch = (struct share_batch){.done = 1, .chunks = cost.chunks, .bytes = cost.bytes};
        batch->answer = best.run;
    }
}

static void pkfit_private(const struct share_task *task, const struct data *data,
                          struct share_report *report)
{
    struct private_evaluator own = {.base = {private_evaluate}, .load = task->load};

    if (private_open(&own.holder, task) == 0) {
        const char *why =
            own.holder.card.simulated ? NULL : cuda_kernel_select(own.holder.card.uuid);
        expect(why == NULL, "cannot compute on %s: %s", own.holder.card.uuid, why);
        pkfit_batches(&own.base, task, data, report);
        own.holder.ops->close(&own.holder);
        free(own.host_ss);
    }
    snprintf(report->why, sizeof(report->why), "%s", own.holder.why);
}

static void pkfit_lent(const struct share_task *task, const struct data *data,
                       struct share_report *report)
{
    struct lent_evaluator lent;
    struct progress progress;
    char name[32];

    snprintf(name, sizeof(name), "pkfit-%u", task->number + 1);
    progress_init(&progress, name, SHARE_BATCHES * task->load.runs, true);
    if (lent_open(&lent, task->harness->socket, name, -1, task->wait_ns, &progress) < 0) {
        snprintf(report->why, sizeof(report->why), "%s", cubiemem_last_error()->text);
        return;
    }
    pkfit_batches(&lent.base, task, data, report);
    lent_close(&lent);
}

static void pkfit_read(struct data *data_p)
{
    const char *folder = getenv("CUBIEMEM_TEST_DATA");
    char path[4096], why[512];

    snprintf(path, sizeof(path), "%s/theoph.csv", folder != NULL ? folder : "tests/data");
    expect(data_read(path, data_p, why, sizeof(why)) == 0, "%s", why);
}

/* ------------------------------------------------------------------------ the process */

void worker_run(int fd, const void *argument)
{
    const struct share_task *task = argument;
    struct share_report report = {0};
    struct data data = {0};
    char byte = 0;

    if (task->load.points > 0) {
        pkfit_read(&data);
    }
    role_tell(fd, &byte, 1);
    role_hear(fd, &byte, 1);
    report.begin_ns = measure_now_ns();
    if (task->load.points == 0) {
        synthetic_run(task, &report);
    } else if (task->way == SHARE_LENT) {
        pkfit_lent(task, &data, &report);
    } else {
        pkfit_private(task, &data, &report);
    }
    report.end_ns = measure_now_ns();
    role_tell(fd, &report, sizeof(report));
    data_finish(&data);
}
