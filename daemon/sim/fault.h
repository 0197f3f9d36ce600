/* fault - failures on order: which call fails, how, after which delay */
#ifndef DAEMON_SIM_FAULT_H
#define DAEMON_SIM_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

/* Every function of the table has a number. */
enum sim_call {
#define SIM_CALL(member, symbol, parameters) CALL_##member,
    DRIVER_CUDA_MAP(SIM_CALL) DRIVER_NVML_MAP(SIM_CALL)
#undef SIM_CALL
    CALL_simDelay,
    N_CALLS
};

/* What to do instead of, or before, a call. */
struct fault_outcome {
    uint64_t delay_ns;
    int result;    /* 0: go on */
    bool lost;     /* the device is gone */
};

int fault_set(const char *text, char *why, size_t why_size);
struct fault_outcome fault_next(enum sim_call call);
/* How long an engine works on after its program's death. */
uint64_t fault_linger_ns(void);
/* The number of a function by name, or N_CALLS. */
enum sim_call fault_call_by_name(const char *name, size_t length);

#endif
