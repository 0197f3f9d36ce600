/*
 * array - the check of an ArrayRequest and its byte count
 *
 * Rules 4 and 5 of the policy's specification (tests/data/vectors/README.md)
 * that concern one request alone; used by the library before it sends and by
 * the policy before it believes. Sizes that pass 2^63-1 are TOO_LARGE, found
 * with exact arithmetic; malformed arrays are reported before too large ones.
 */
#ifndef PROTO_ARRAY_H
#define PROTO_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cubiemem.h"

/* A checked request. The label and the shape belong to it. */
struct array {
    char *label;
    int64_t *shape;
    uint32_t rank;
    int dtype;   /* enum cubiemem_dtype */
    int memory;  /* enum cubiemem_memory */
    int32_t axis; /* >= 0, or CUBIEMEM_AXIS_NONE */
    bool unchunkable;
    bool zeroed; /* never in memory that anything lay in before */
    int64_t total_runs;
};

/* Is there an axis along which it may be cut? (not unchunkable, the axis
 * exists and is longer than 1) */
bool array_is_chunkable(const struct array *array);

/*
 * Bytes of the array whose chunk axis, if it is chunkable, holds n runs in
 * place of shape[axis] (n = UINT64_MAX: as it is). False if above 2^63-1.
 */
bool array_bytes(const struct array *array, uint64_t n, uint64_t *bytes_p);

/*
 * Check n arrays as one request of an instance: labels (1 to 255 bytes,
 * distinct), ranks, dimensions, dtypes, memories, axes, total_runs.
 *
 * Return: CUBIEMEM_OK, INVALID_REQUEST, LIMIT (more than a batch may have) or
 * TOO_LARGE; otherwise *culprit_p is the index of the array at fault and
 * *why_p a static text.
 */
int arrays_check(const struct array *arrays, size_t n, size_t *culprit_p,
                 const char **why_p);

/* A deep copy in one piece, to be given to free(); NULL when host memory is short. */
struct array *arrays_copy(const struct array *arrays, size_t n);
/* Arrays that were put together one by one: their labels, shapes and themselves. */
void arrays_free(struct array *arrays, size_t n);

#endif
