/*
 * array - the check of an ArrayRequest and its byte count
 *
 * Rules 4 and 5 of the policy's specification for one request alone. Sizes are
 * exact: a product that leaves 64 bits on the way is still right if a zero
 * dimension follows, and an array of 2^63 bytes is TOO_LARGE, never small. What
 * needs more than one request (the run counts of a batch) is left to the policy.
 */
#include "array.h"

#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "protocol_limits.h"
#include "status.h"

bool array_is_chunkable(const struct array *array)
{
    return !array->unchunkable && array->axis >= 0 && (uint32_t)array->axis < array->rank &&
           array->shape[array->axis] > 1;
}

bool array_bytes(const struct array *array, uint64_t n, uint64_t *bytes_p)
{
    bool chunked = n != UINT64_MAX && array_is_chunkable(array);
    uint64_t bytes = dtype_size(array->dtype);
    bool fits = true;

    for (uint32_t i = 0; i < array->rank; i++) {
        uint64_t length = chunked && i == (uint32_t)array->axis ? n : (uint64_t)array->shape[i];

        if (length == 0) {
            *bytes_p = 0;
            return true;
        }
        /* Only a zero may still follow what does not fit. */
        fits = fits && checked_mul(bytes, length, &bytes) && bytes <= INT64_MAX;
    }
    if (!fits) {
        return false;
    }
    *bytes_p = bytes;
    return true;
}

/* What is wrong with this array alone, or NULL. */
static const char *array_fault(const struct array *array)
{
    size_t label_size = array->label != NULL ? strnlen(array->label, LIMIT_LABEL + 1u) : 0;

    if (label_size == 0) {
        return "the label is empty";
    }
    if (label_size > LIMIT_LABEL) {
        return "the label is longer than 255 bytes";
    }
    if (array->rank > LIMIT_RANK) {
        return "an array has at most 32 dimensions";
    }
    for (uint32_t i = 0; i < array->rank; i++) {
        if (array->shape[i] < 0) {
            return "a dimension is negative";
        }
    }
    if (dtype_size(array->dtype) == 0) {
        return "the dtype is not known";
    }
    if (array->memory != CUBIEMEM_DEVICE && array->memory != CUBIEMEM_PINNED) {
        return "the memory is neither device nor pinned";
    }
    if (array->axis < 0 && array->axis != CUBIEMEM_AXIS_NONE) {
        return "the chunk axis is negative";
    }
    if (array->total_runs < 1) {
        return "total_runs is less than 1";
    }
    return NULL;
}

static int compare_labels(const void *a, const void *b, void *arg)
{
    const struct array *arrays = arg;
    uint16_t left = *(const uint16_t *)a, right = *(const uint16_t *)b;
    int order = strcmp(arrays[left].label, arrays[right].label);

    return order != 0 ? order : (int)left - (int)right;
}

#define FEW 16 /* as cheap to compare each with each */

/* The first array whose label stands before it already; n if there is none. By
 * sorting: labels are a peer's, and n of them must not cost n * n. */
static size_t find_duplicate(const struct array *arrays, size_t n)
{
    uint16_t order[LIMIT_ARRAYS_PER_BATCH];
    size_t found = n;

    if (n <= FEW) {
        for (size_t i = 1; i < n; i++) {
            for (size_t j = 0; j < i; j++) {
                if (strcmp(arrays[i].label, arrays[j].label) == 0) {
                    return i;
                }
            }
        }
        return n;
    }
    for (size_t i = 0; i < n; i++) {
        order[i] = (uint16_t)i;
    }
    qsort_r(order, n, sizeof(order[0]), compare_labels, (void *)(uintptr_t)arrays);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(arrays[order[i - 1]].label, arrays[order[i]].label) == 0 && order[i] < found) {
            found = order[i];
        }
    }
    return found;
}

static int refuse(int status, size_t culprit, const char *why, size_t *culprit_p,
                  const char **why_p)
{
    *culprit_p = culprit;
    *why_p = why;
    return status;
}

int arrays_check(const struct array *arrays, size_t n, size_t *culprit_p, const char **why_p)
{
    size_t duplicate;
    uint64_t bytes;

    _Static_assert(LIMIT_ARRAYS_PER_BATCH <= UINT16_MAX, "find_duplicate's indices");
    if (n > LIMIT_ARRAYS_PER_BATCH) {
        return refuse(CUBIEMEM_LIMIT, LIMIT_ARRAYS_PER_BATCH,
                      "a request has at most 4096 arrays", culprit_p, why_p);
    }
    for (size_t i = 0; i < n; i++) {
        const char *fault = array_fault(&arrays[i]);

        if (fault != NULL) {
            return refuse(CUBIEMEM_INVALID_REQUEST, i, fault, culprit_p, why_p);
        }
    }
    duplicate = find_duplicate(arrays, n);
    if (duplicate < n) {
        return refuse(CUBIEMEM_INVALID_REQUEST, duplicate, "the label stands twice in the request",
                      culprit_p, why_p);
    }
    for (size_t i = 0; i < n; i++) {
        if (!array_bytes(&arrays[i], UINT64_MAX, &bytes)) {
            return refuse(CUBIEMEM_TOO_LARGE, i, "the array is larger than 2^63-1 bytes", culprit_p,
                          why_p);
        }
    }
    return CUBIEMEM_OK;
}

struct array *arrays_copy(const struct array *arrays, size_t n)
{
    size_t size = n * sizeof(*arrays);
    for (size_t i = 0; i < n; i++) {
        size += arrays[i].rank * sizeof(arrays[i].shape[0]) + strlen(arrays[i].label) + 1;
    }
    struct array *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        return NULL;
    }
    /* The structs, then the shapes, which want their alignment, then the labels. */
    int64_t *shapes = (int64_t *)(void *)(copy + n);
    for (size_t i = 0; i < n; i++) {
        copy[i] = arrays[i];
        copy[i].shape = shapes;
        if (arrays[i].rank > 0) {
            memcpy(shapes, arrays[i].shape, arrays[i].rank * sizeof(shapes[0]));
        }
        shapes += arrays[i].rank;
    }
    char *labels = (char *)shapes;
    for (size_t i = 0; i < n; i++) {
        copy[i].label = labels;
        labels = stpcpy(labels, arrays[i].label) + 1;
    }
    return copy;
}

void arrays_free(struct array *arrays, size_t n)
{
    if (arrays == NULL) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        free(arrays[i].label);
        free(arrays[i].shape);
    }
    free(arrays);
}
