/* segment - physical memory of a simulated GPU, as this process holds it */
#ifndef DAEMON_SIM_SEGMENT_H
#define DAEMON_SIM_SEGMENT_H

#include <stdbool.h>

#include "device.h"

struct segment {
    struct segment *next;
    struct gpu *gpu;
    struct gpu_ref ref;
    uint64_t size;
    int fd;
    unsigned int n_refs; /* handles and mappings */
    bool created;        /* by this process */
};

/* All under the process's lock. A segment that is made, imported or opened has
 * one reference. */
CUresult segment_create(struct gpu *gpu, uint64_t size, struct segment **segment_p);
/* From an exported fd, which stays the caller's. */
CUresult segment_import(int fd, struct segment **segment_p);
/* From the books, through the process that made it. */
CUresult segment_open(struct gpu *gpu, struct gpu_ref ref, struct segment **segment_p);
CUresult segment_export(struct segment *segment, int *fd_p);
void segment_get(struct segment *segment);
void segment_put(struct segment *segment);

bool segments_exist(void);
/* In a forked child: close what would keep the parent's memory. */
void segments_forked(void);

#endif
