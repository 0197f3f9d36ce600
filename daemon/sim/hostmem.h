/* hostmem - host memory that the device may use */
#ifndef DAEMON_SIM_HOSTMEM_H
#define DAEMON_SIM_HOSTMEM_H

#include <stdbool.h>

#include "device.h"

/* Under the process's lock. */
CUresult hostmem_register(const struct gpu *gpu, uint64_t address, uint64_t size);
CUresult hostmem_unregister(uint64_t address);
/* Is the whole range registered? */
bool hostmem_covers(uint64_t address, uint64_t size);
/* A context's registrations go with it. */
void hostmem_forget(const struct gpu *gpu);

#endif
