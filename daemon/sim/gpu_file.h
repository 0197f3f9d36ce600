/* gpu_file - what the file of a simulated GPU holds, for gpu.c and gpu_file.c */
#ifndef DAEMON_SIM_GPU_FILE_H
#define DAEMON_SIM_GPU_FILE_H

#include <pthread.h>

#include "gpu.h"

#define N_SLOTS 1024
#define N_SEGMENTS 16384
#define SLOT_BYTES ((int64_t)1 << 40) /* beyond the contents */

struct entry {
    uint64_t id; /* 0: free */
    struct gpu_place place;
    uint32_t exported;
    uint64_t holders[N_SLOTS / 64];
};

struct gpu_file {
    char magic[8];
    char boot_id[40];
    uint64_t size;
    CUuuid uuid;
    pthread_mutex_t mutex;
    uint64_t last_id;
    uint64_t n_entries; /* those behind were never used */
    struct entry entries[N_SEGMENTS];
};

/* Does anybody hold the device or memory of it? */
bool gpu_is_used(struct gpu *gpu);

#endif
