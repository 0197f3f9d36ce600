/*
 * status - statuses, warnings and element types <-> names and texts
 *
 * The lists themselves are the X-macros of cubiemem.h; this module only walks
 * them. All strings are static.
 */
#ifndef PROTO_STATUS_H
#define PROTO_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "cubiemem.h"

/* "NO_MEMORY"; "UNKNOWN" for a code that is not in the list. */
const char *status_name(int status);
/* "not enough device memory" */
const char *status_text(int status);
bool status_from_name(const char *name, int *status_p);

/* Name of a single CUBIEMEM_WARN_* bit. */
const char *warning_name(uint32_t bit);

const char *dtype_name(int dtype);          /* NULL if unknown */
bool dtype_from_name(const char *name, int *dtype_p);
uint32_t dtype_size(int dtype);             /* bytes; 0 if unknown */

#endif
