/*
 * scenario_array - the arrays of a scenario's "queue" step
 */
#ifndef POLICY_SCENARIO_ARRAY_H
#define POLICY_SCENARIO_ARRAY_H

#include <jansson.h>

#include "array.h"

/* {label: array}, to be freed with arrays_free(); whether they are good arrays
 * is policy_queue()'s to say. False: SCENARIO_ERROR_MAX bytes of text. */
bool scenario_arrays_read(const json_t *json, struct array **arrays_p, size_t *n_p, char *error);

#endif
