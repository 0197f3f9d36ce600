/*
 * output - fill a caller's struct of whatever version it is
 *
 * The caller's .size says how much of it there is; what both versions have is
 * copied, .size itself stays.
 */
#ifndef CLIENT_OUTPUT_H
#define CLIENT_OUTPUT_H

#include <stddef.h>
#include <string.h>

#include "failure.h"

static inline int copy_out(void *to, const void *from, size_t from_size)
{
    size_t size = 0;
    if (to != NULL) {
        memcpy(&size, to, sizeof size);
    }
    if (size <= sizeof size) {
        return failure_set(CUBIEMEM_INVALID_REQUEST,
                           to != NULL ? "the output struct's .size is not set"
                                      : "nowhere to put the answer");
    }
    size = size < from_size ? size : from_size;
    memcpy((char *)to + sizeof size, (const char *)from + sizeof size, size - sizeof size);
    return CUBIEMEM_OK;
}

#endif
