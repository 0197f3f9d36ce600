/* call - what every function of the driver begins with, and the one lock */
#ifndef DAEMON_SIM_CALL_H
#define DAEMON_SIM_CALL_H

#include "fault.h"
#include "sim.h"

/* Count the call and answer for faults, forked children and a driver that was
 * not initialised. Not CUDA_SUCCESS: that is the call's result. */
CUresult call_enter(enum sim_call call);
/* The same for NVML; 0 or its error. */
int call_enter_nvml(enum sim_call call);

/* The process's one lock. Held for the objects' sake, never while waiting for
 * streams, and across fork(). */
void sim_lock(void);
void sim_unlock(void);

/* Set by cuInit(). */
void call_set_initialised(bool initialised);
bool call_is_initialised(void);

/* The driver's result for a negative errno. */
CUresult call_errno(int error);

#endif
