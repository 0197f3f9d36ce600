/* api - the functions that the simulated driver exports, and how each begins */
#ifndef DAEMON_SIM_API_H
#define DAEMON_SIM_API_H

#include "call.h"

#define API_FUNCTION(member, symbol, parameters) SIM_API CUresult symbol parameters;
DRIVER_CUDA_MAP(API_FUNCTION)
#undef API_FUNCTION
#define API_FUNCTION(member, symbol, parameters) SIM_API int symbol parameters;
DRIVER_NVML_MAP(API_FUNCTION)
#undef API_FUNCTION

/* Begin a call whose arguments are valid or not: on CUDA_SUCCESS the lock is held
 * until api_leave(). */
CUresult api_enter(enum sim_call call, bool valid);
/* The same for a call that a stream capture forbids. */
CUresult api_enter_unsafe(enum sim_call call, bool valid);
CUresult api_leave(CUresult result);

/* What was said last of the run directory holds again. */
int cubiemem_sim_set_run_dir_again(char *why, size_t why_size);

#endif
