/*
 * private - the memory of a process that believes it is alone on the device
 *
 * What CuBIE, CuPy and their like do when they share nothing: look at the free memory,
 * cut the batch so that it fits in that, allocate from the driver, and keep what was
 * allocated for the batch after. Two things are done better than most do them: the
 * kept memory counts as free, and what is too small for the new batch goes back before
 * more is asked for. Between the look and the allocation others allocate, too: that is
 * the race which the benchmark counts.
 */
#include <stdio.h>

#include "holder.h"

int holder_check(struct holder *holder, CUresult result, const char *what)
{
    char text[128];

    if (result == CUDA_SUCCESS) {
        return 0;
    }
    snprintf(holder->why, sizeof(holder->why), "%s: %s", what,
             driver_error(&holder->card.driver, result, text));
    return -1;
}

static void pool_free(struct holder *holder)
{
    for (int i = 0; i < SHARE_ARRAYS; i++) {
        if (holder->pool[i].size > 0) {
            holder->card.driver.cuMemFree(holder->pool[i].at);
        }
        holder->pool[i].size = 0;
    }
}

static uint64_t pool_size(const struct holder *holder)
{
    uint64_t size = 0;

    for (int i = 0; i < SHARE_ARRAYS; i++) {
        size += holder->pool[i].size;
    }
    return size;
}

static int pool_allocate(struct holder *holder, const struct share_load *load, uint64_t n)
{
    pool_free(holder);
    for (int i = 0; i < SHARE_ARRAYS; i++) {
        uint64_t size = n * load->run_size[i];
        size = (size + SHARE_GRANULARITY - 1) / SHARE_GRANULARITY * SHARE_GRANULARITY;
        if (holder_check(holder, holder->card.driver.cuMemAlloc(&holder->pool[i].at, size),
                         "cuMemAlloc") < 0) {
            pool_free(holder);
            return -1;
        }
        holder->pool[i].size = size;
    }
    return 0;
}

static int private_take(struct holder *holder, const struct share_load *load, struct grant *grant_p)
{
    struct grant grant;
    size_t free_size, total;

    if (holder_check(holder, holder->card.driver.cuMemGetInfo(&free_size, &total), "cuMemGetInfo") <
        0) {
        return -1;
    }
    uint64_t room = free_size + pool_size(holder);
    grant.chunk_length = share_most_runs(load->run_size, load->runs, room);
    if (grant.chunk_length == 0) {
        snprintf(holder->why, sizeof(holder->why), "not one run fits into the %zu bytes free",
                 free_size);
        return -1;
    }
    for (int i = 0; i < SHARE_ARRAYS; i++) {
        if (holder->pool[i].size < grant.chunk_length * load->run_size[i] &&
            pool_allocate(holder, load, grant.chunk_length) < 0) {
            return -1;
        }
    }
    for (int i = 0; i < SHARE_ARRAYS; i++) {
        grant.at[i] = holder->pool[i].at;
    }
    *grant_p = grant;
    return 0;
}

static int private_begin(struct holder *holder)
{
    (void)holder;
    return 0;
}

static int private_end(struct holder *holder)
{
    return holder_check(holder, holder->card.driver.cuStreamSynchronize(holder->stream),
                        "cuStreamSynchronize");
}

static void private_close(struct holder *holder)
{
    pool_free(holder);
    holder->card.driver.cuStreamDestroy(holder->stream);
    card_close(&holder->card);
}

int private_open(struct holder *holder_p, const struct share_task *task)
{
    static const struct holder_ops ops = {private_take, private_begin, private_end, private_close};

    *holder_p = (struct holder){.ops = &ops};
    card_open(task->harness, &holder_p->card);
    struct card *card = &holder_p->card;
    const struct driver *driver = &card->driver;
    /* Even the context may find no memory left: who came before took it all. */
    if (holder_check(holder_p, driver->cuDevicePrimaryCtxRetain(&card->context, card->device),
                     "cuDevicePrimaryCtxRetain") < 0 ||
        holder_check(holder_p, driver->cuCtxSetCurrent(card->context), "cuCtxSetCurrent") < 0 ||
        holder_check(holder_p, driver->cuStreamCreate(&holder_p->stream, 1), /* non-blocking */
                     "cuStreamCreate") < 0) {
        card_close(&holder_p->card);
        return -1;
    }
    return 0;
}
