/* way - the processes of bench-share, run once in one of three ways */
#ifndef BENCH_SHARE_WAY_H
#define BENCH_SHARE_WAY_H

#include "share.h"

#define SHARE_MAX_PROCESSES 16

enum share_scene {
    SCENE_TODAY,  /* all at once, each for itself */
    SCENE_SERIAL, /* for itself, one after the other */
    SCENE_SHARED, /* all at once, through cubiemem */
    N_SCENES,
};

struct share_setup {
    struct harness harness;
    struct card card; /* NVML alone */
    uint32_t n_processes;
    struct share_load loads[SHARE_MAX_PROCESSES];
    uint64_t budget;    /* bytes that all may hold together */
    uint64_t idle_used; /* bytes of the device in use while nothing of ours runs */
    int64_t wait_ns;    /* for memory, through cubiemem */
};

struct share_outcome {
    struct share_report reports[SHARE_MAX_PROCESSES];
    uint64_t makespan_ns; /* from the first begin to the last end */
    uint64_t peak;        /* bytes of the device in use beyond idle */
};

void way_run(struct share_setup *setup, enum share_scene scene, struct share_outcome *outcome_p);

#endif
