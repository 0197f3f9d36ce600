/*
 * scrub - does the driver clear memory that passes from one process to another?
 *
 * Isolation between users rests on it (DESIGN 3.10). NVIDIA's driver scrubs on
 * free unless the registry key RMDisableScrubOnFree says otherwise; its
 * parameters are in /proc/driver/nvidia/params.
 */
#ifndef DAEMON_SCRUB_H
#define DAEMON_SCRUB_H

#include <stdbool.h>
#include <stddef.h>

/* $CUBIEMEM_DRIVER_PARAMS (tests), else the driver's file. */
const char *scrub_params_path(void);

/* False, with one line in why, where it is switched off or cannot be known. */
bool scrub_is_on(const char *params_path, char *why, size_t why_size);

#endif
