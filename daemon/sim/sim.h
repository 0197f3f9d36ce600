/*
 * sim - what the simulated driver offers beside the driver's own functions
 *
 * libcubiemem-sim.so exports the functions of proto/driver.h under their own
 * names and these. Nobody links it; take them with dlsym() from
 * driver->cuda_library.
 */
#ifndef DAEMON_SIM_SIM_H
#define DAEMON_SIM_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_decl.h"

#define SIM_API __attribute__((visibility("default")))

/*
 * The directory of the simulated GPUs' files. NULL: $CUBIEMEM_RUNDIR, else
 * /run/cubiemem where it exists, else $XDG_RUNTIME_DIR/cubiemem. It may change
 * while this process has no memory and no context on a simulated GPU; cuInit()
 * is due again then. Also the place where a bad CUBIEMEM_SIM_FAULTS is said.
 *
 * Return: 0, or -1 with one line in why.
 */
SIM_API int cubiemem_sim_set_run_dir(const char *run_dir, char *why, size_t why_size);

/*
 * Make or adopt the simulated GPU `name`. One of another size is replaced only
 * when nobody holds anything of it.
 */
SIM_API int cubiemem_sim_add(const char *name, uint64_t size, int *ordinal_p, char *why,
                             size_t why_size);

/* Replace this process's faults (the language is in tests/README.md); NULL or
 * "": none. Counts and times begin anew. */
SIM_API int cubiemem_sim_set_faults(const char *faults, char *why, size_t why_size);

/* How often this process called a function ("cuMemCreate"); NULL or "": any. */
SIM_API uint64_t cubiemem_sim_calls(const char *symbol);

/* Keep a stream busy. */
SIM_API CUresult cubiememSimDelay(CUstream stream, uint64_t ns);

/* The process that works for the current context, 0: no context. */
SIM_API int cubiemem_sim_engine_pid(void);

#endif
