/* progress - a bar on stderr that shows how far a process has come */
#ifndef PKFIT_PROGRESS_H
#define PKFIT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *name;
    uint64_t total; /* runs */
    uint64_t done;
    int64_t shown_ns;     /* when the bar was drawn last */
    unsigned int quarter; /* last one said on a plain line */
    bool terminal;
    bool quiet;
};

void progress_init(struct progress *progress, const char *name, uint64_t total, bool quiet);
void progress_add(struct progress *progress, uint64_t runs, int subject);
/* Leaves the terminal on a fresh line. */
void progress_finish(struct progress *progress);

#endif
