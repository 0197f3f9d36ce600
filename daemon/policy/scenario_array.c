/*
 * scenario_array - the arrays of a scenario's "queue" step
 *
 * Values that the policy refuses (an unknown dtype, a negative axis) become
 * values that it refuses; only what is no array at all is an error of the file.
 * Integers never pass through a double.
 */
#include "scenario_array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scenario.h"
#include "status.h"

static bool fail(char *error, const char *label, const char *what)
{
    snprintf(error, SCENARIO_ERROR_MAX, "array \"%.80s\": %s", label, what);
    return false;
}

static bool read_shape(const json_t *json, struct array *array, char *error)
{
    const json_t *dimension;
    size_t i;

    if (!json_is_array(json) || json_array_size(json) > UINT32_MAX) {
        return fail(error, array->label, "\"shape\" must be a list of integers");
    }
    array->rank = (uint32_t)json_array_size(json);
    array->shape = calloc(array->rank > 0 ? array->rank : 1, sizeof(array->shape[0]));
    if (array->shape == NULL) {
        return fail(error, array->label, "not enough host memory");
    }
    json_array_foreach(json, i, dimension)
    {
        if (!json_is_integer(dimension)) {
            return fail(error, array->label, "\"shape\" must be a list of integers");
        }
        array->shape[i] = json_integer_value(dimension);
    }
    return true;
}

static bool read_axis(const json_t *json, struct array *array, char *error)
{
    json_int_t axis;

    array->axis = 2;
    if (json == NULL) {
        return true;
    }
    if (json_is_null(json)) {
        array->axis = CUBIEMEM_AXIS_NONE;
        return true;
    }
    if (!json_is_integer(json)) {
        return fail(error, array->label, "\"chunk_axis_index\" must be an integer or null");
    }
    /* No array has so many dimensions: past either end is as good as there. */
    axis = json_integer_value(json);
    array->axis = axis < 0 ? -1 : axis > INT32_MAX ? INT32_MAX : (int32_t)axis;
    return true;
}

static bool read_kind(const json_t *json, struct array *array, char *error)
{
    const json_t *memory = json_object_get(json, "memory");
    const json_t *unchunkable = json_object_get(json, "unchunkable");
    const json_t *total_runs = json_object_get(json, "total_runs");
    const char *dtype = json_string_value(json_object_get(json, "dtype"));

    if (dtype == NULL || (memory != NULL && !json_is_string(memory))) {
        return fail(error, array->label, "\"dtype\" and \"memory\" must be strings");
    }
    if (unchunkable != NULL && !json_is_boolean(unchunkable)) {
        return fail(error, array->label, "\"unchunkable\" must be true or false");
    }
    if (total_runs != NULL && !json_is_integer(total_runs)) {
        return fail(error, array->label, "\"total_runs\" must be an integer");
    }
    dtype_from_name(dtype, &array->dtype); /* 0, unknown, otherwise */
    if (memory == NULL || strcmp(json_string_value(memory), "device") == 0) {
        array->memory = CUBIEMEM_DEVICE;
    } else if (strcmp(json_string_value(memory), "pinned") == 0) {
        array->memory = CUBIEMEM_PINNED;
    }
    array->unchunkable = json_is_true(unchunkable);
    array->total_runs = total_runs != NULL ? json_integer_value(total_runs) : 1;
    return true;
}

static bool read_array(const char *label, const json_t *json, struct array *array, char *error)
{
    array->label = strdup(label);
    if (array->label == NULL) {
        return fail(error, label, "not enough host memory");
    }
    if (!json_is_object(json)) {
        return fail(error, label, "must be an object");
    }
    return read_shape(json_object_get(json, "shape"), array, error) &&
           read_axis(json_object_get(json, "chunk_axis_index"), array, error) &&
           read_kind(json, array, error);
}

bool scenario_arrays_read(const json_t *json, struct array **arrays_p, size_t *n_p, char *error)
{
    struct array *arrays;
    const char *label;
    json_t *value;
    size_t n = 0;

    if (!json_is_object(json)) {
        snprintf(error, SCENARIO_ERROR_MAX, "\"arrays\" must be an object of arrays");
        return false;
    }
    arrays = calloc(json_object_size(json) + 1, sizeof(*arrays));
    if (arrays == NULL) {
        snprintf(error, SCENARIO_ERROR_MAX, "not enough host memory");
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)json, label, value)
    {
        if (!read_array(label, value, &arrays[n++], error)) {
            arrays_free(arrays, n);
            return false;
        }
    }
    *arrays_p = arrays;
    *n_p = n;
    return true;
}
