/*
 * lent - the evaluator that works in memory lent by cubiememd
 *
 * The example's heart, and the pattern of every batch program: queue the arrays,
 * allocate, learn from the response into how many chunks the runs were cut, and
 * for each chunk mark the work's begin, put it on the group's stream, mark its
 * end and wait. The same labels are asked for again with every batch, so arrays
 * of the same shape stay where they are. The kernel is the program's own: on the
 * simulated device a host function in stream order, on a GPU a CUDA kernel; both
 * use the pointers as they come.
 */
#include "lent.h"

#include <err.h>
#include <stdlib.h>

#include "cuda_kernel.h"

enum { CURVE, SS, N_ARRAYS };

static const char *const labels[N_ARRAYS] = {[CURVE] = "curve", [SS] = "ss"};

/* Says why the last call failed; -1, to be returned. */
static int complain(const char *what, int status)
{
    const struct cubiemem_error *error = cubiemem_last_error();

    warnx("%s: %s", what, error->text && *error->text ? error->text : cubiemem_strerror(status));
    return -1;
}

static void cpu_kernel(void *arg)
{
    const struct lent_work *work = arg;

    grid_evaluate(work->subject, work->grid, work->first, work->n, work->stride, work->curve,
                  work->ss);
}

/* Put the chunk in lent->work on the stream. */
static int work_launch(struct lent_evaluator *lent)
{
    if (lent->simulated) {
        int status = cubiemem_stream_host_fn(lent->stream, cpu_kernel, &lent->work);
        return status == CUBIEMEM_OK ? 0 : complain("cannot start the kernel", status);
    }
    const char *why = cuda_kernel_launch(&lent->work, lent->host_ss, lent->stream);
    if (why) {
        warnx("the CUDA kernel cannot be started: %s", why);
        return -1;
    }
    return 0;
}

static int chunk_run(struct lent_evaluator *lent)
{
    int status = cubiemem_begin_work(lent->instance);
    if (status != CUBIEMEM_OK) {
        return complain("cannot begin work", status);
    }
    int launched = work_launch(lent);
    status = cubiemem_end_work(lent->instance, lent->stream);
    if (status != CUBIEMEM_OK) {
        return complain("cannot end work", status);
    }
    status = cubiemem_sync(lent->instance);
    if (status != CUBIEMEM_OK) {
        return complain("cannot wait for the kernel", status);
    }
    return launched;
}

static int chunks_run(struct lent_evaluator *lent, const struct cubiemem_response *response,
                      uint64_t n_chunks, struct best *best)
{
    struct lent_work *work = &lent->work;

    for (uint64_t i = 0; i < n_chunks; i++) {
        int status = cubiemem_response_chunk(response, i, &work->first, &work->n);
        if (status != CUBIEMEM_OK) {
            return complain("cannot tell the chunk", status);
        }
        if (chunk_run(lent) < 0) {
            return -1;
        }
        best_update(best, lent->simulated ? work->ss : lent->host_ss, work->first, work->n);
        progress_add(lent->progress, work->n, work->subject->number);
    }
    return 0;
}

/* Where the response has put the arrays, and what they cost. */
static int arrays_find(struct lent_evaluator *lent, const struct cubiemem_response *response,
                       struct batch_cost *cost_p)
{
    struct cubiemem_partition partition = {.size = sizeof(partition)};
    struct cubiemem_array arrays[N_ARRAYS];

    int status = cubiemem_response_partition(response, &partition);
    for (int i = 0; i < N_ARRAYS && status == CUBIEMEM_OK; i++) {
        arrays[i] = (struct cubiemem_array){.size = sizeof(arrays[i])};
        status = cubiemem_response_array(response, labels[i], &arrays[i]);
    }
    if (status != CUBIEMEM_OK) {
        return complain("cannot read the response", status);
    }
    if (!lent->simulated) {
        double *host_ss = realloc(lent->host_ss, arrays[SS].nbytes);
        if (!host_ss) {
            warnx("out of memory");
            return -1;
        }
        lent->host_ss = host_ss;
    }
    lent->work.curve = arrays[CURVE].pointer;
    lent->work.ss = arrays[SS].pointer;
    lent->work.stride = partition.chunk_length;
    *cost_p = (struct batch_cost){partition.chunks, arrays[CURVE].nbytes + arrays[SS].nbytes};
    return 0;
}

static int batch_allocate(struct lent_evaluator *lent, const struct pk_subject *subject,
                          const struct pk_grid *grid, struct cubiemem_response **response_p)
{
    int64_t runs = (int64_t)pk_grid_runs(grid);
    const int64_t curve_shape[] = {subject->n_observations, 1, runs};
    const int64_t ss_shape[] = {runs};
    struct cubiemem_array_request requests[N_ARRAYS] = {
        CUBIEMEM_ARRAY_REQUEST_INIT,
        CUBIEMEM_ARRAY_REQUEST_INIT,
    };

    requests[CURVE].label = labels[CURVE];
    requests[CURVE].shape = curve_shape;
    requests[CURVE].rank = 3;
    requests[CURVE].chunk_axis_index = 2;
    requests[CURVE].total_runs = runs;
    requests[SS].label = labels[SS];
    requests[SS].shape = ss_shape;
    requests[SS].rank = 1;
    requests[SS].chunk_axis_index = 0;
    requests[SS].total_runs = runs;
    const struct cubiemem_wait wait = {.size = sizeof(wait), .timeout_ns = lent->wait_ns};
    int status = cubiemem_queue(lent->instance, requests, N_ARRAYS);
    if (status == CUBIEMEM_OK) {
        status = cubiemem_allocate(lent->instance, &wait, response_p);
    }
    return status == CUBIEMEM_OK ? 0 : complain("the batch was not granted", status);
}

static int lent_run(struct evaluator *evaluator, const struct pk_subject *subject,
                    const struct pk_grid *grid, struct best *best_p, struct batch_cost *cost_p)
{
    struct lent_evaluator *lent = (struct lent_evaluator *)evaluator;
    struct cubiemem_response *response;
    struct batch_cost cost;
    struct best best = BEST_INIT;

    lent->work = (struct lent_work){.subject = subject, .grid = grid};
    if (batch_allocate(lent, subject, grid, &response) < 0) {
        return -1;
    }
    int result = arrays_find(lent, response, &cost);
    if (result == 0) {
        result = chunks_run(lent, response, cost.chunks, &best);
    }
    cubiemem_response_free(response);
    if (result == 0) {
        *best_p = best;
        *cost_p = cost;
    }
    return result;
}

static int kernel_choose(struct lent_evaluator *lent)
{
    struct cubiemem_device_info info = {.size = sizeof(info)};
    int status = cubiemem_device_info(lent->client, &info);

    if (status != CUBIEMEM_OK) {
        return complain("cannot ask about the device", status);
    }
    lent->simulated = info.simulated != 0;
    if (lent->simulated) {
        return 0;
    }
    const char *why = cuda_kernel_select(info.uuid);
    if (why) {
        warnx("cannot compute on %s: %s", info.name, why);
        return -1;
    }
    return 0;
}

static int instance_register(struct lent_evaluator *lent, const char *name, double proportion)
{
    const struct cubiemem_instance_options options = {
        .size = sizeof(options),
        .manual = proportion >= 0,
        .proportion = proportion >= 0 ? proportion : 0,
    };
    int status = cubiemem_register(lent->client, name, &options, &lent->instance);

    if (status != CUBIEMEM_OK) {
        return complain("cannot register", status);
    }
    status = cubiemem_group_stream(lent->instance, &lent->stream);
    return status == CUBIEMEM_OK ? 0 : complain("no stream", status);
}

int lent_open(struct lent_evaluator *lent, const char *socket, const char *name, double proportion,
              int64_t wait_ns, struct progress *progress)
{
    const struct cubiemem_options options = {
        .size = sizeof(options),
        .socket = socket,
        .name = name,
    };

    *lent = (struct lent_evaluator){
        .base = {lent_run}, .wait_ns = wait_ns, .progress = progress};
    int status = cubiemem_connect(&options, &lent->client);
    if (status != CUBIEMEM_OK) {
        return complain("cannot connect", status);
    }
    if (kernel_choose(lent) < 0 || instance_register(lent, name, proportion) < 0) {
        lent_close(lent);
        return -1;
    }
    return 0;
}

void lent_close(struct lent_evaluator *lent)
{
    if (lent->instance) {
        cubiemem_unregister(lent->instance);
    }
    if (lent->client) {
        cubiemem_close(lent->client);
    }
    free(lent->host_ss);
    *lent = (struct lent_evaluator){0};
}
