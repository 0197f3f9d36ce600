/*
 * progress - a bar on stderr that shows how far a process has come
 *
 * On a terminal one line is drawn over and over, at most ten times a second;
 * elsewhere a plain line marks every quarter, so that logs stay readable and
 * several processes can share one. Each line goes out in one write.
 */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REDRAW_NS 100000000
#define BAR_CELLS 30

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void progress_init(struct progress *progress, const char *name, uint64_t total, bool quiet)
{
    *progress = (struct progress){
        .name = name,
        .total = total,
        .terminal = isatty(STDERR_FILENO) == 1,
        .quiet = quiet,
    };
}

static void bar_draw(const struct progress *progress, int subject)
{
    char bar[BAR_CELLS + 1];
    size_t full = (size_t)(progress->done * BAR_CELLS / progress->total);

    memset(bar, '.', BAR_CELLS);
    memset(bar, '#', full);
    bar[BAR_CELLS] = '\0';
    fprintf(stderr, "\r%.24s [%s] %3u %%  subject %-4d", progress->name, bar,
            (unsigned int)(progress->done * 100 / progress->total), subject);
}

void progress_add(struct progress *progress, uint64_t runs, int subject)
{
    progress->done += runs;
    if (progress->quiet) {
        return;
    }
    if (progress->terminal) {
        int64_t now = now_ns();
        if (now - progress->shown_ns >= REDRAW_NS || progress->done == progress->total) {
            progress->shown_ns = now;
            bar_draw(progress, subject);
        }
        return;
    }
    unsigned int quarter = (unsigned int)(progress->done * 4 / progress->total);
    if (quarter > progress->quarter) {
        progress->quarter = quarter;
        fprintf(stderr, "%s: %u %% done, at subject %d\n", progress->name, quarter * 25, subject);
    }
}

void progress_finish(struct progress *progress)
{
    if (progress->terminal && !progress->quiet && progress->done > 0) {
        fputc('\n', stderr);
    }
}
