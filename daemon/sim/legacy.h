/* legacy - cuMemAlloc and the 64-byte handles */
#ifndef DAEMON_SIM_LEGACY_H
#define DAEMON_SIM_LEGACY_H

#include "cuda_decl.h"

/* All under the process's lock and in the current context. */
CUresult legacy_alloc(uint64_t size, uint64_t *address_p);
CUresult legacy_free(uint64_t address);
CUresult legacy_export(uint64_t address, CUipcMemHandle *handle_p);
CUresult legacy_open(const CUipcMemHandle *handle, uint64_t *address_p);
CUresult legacy_close(uint64_t address);

#endif
