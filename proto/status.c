/*
 * status - statuses, warnings and element types <-> names and texts
 *
 * The lists are the X-macros of cubiemem.h; each function here is one walk over
 * one of them, so a name cannot be missing from one table and stand in another.
 * What a status means for a connection or an exit code is left to the callers.
 */
#include "status.h"

#include <string.h>

const char *status_name(int status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                                             \
    case value:                                                                                    \
        return #name;
        CUBIEMEM_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    default:
        return "UNKNOWN";
    }
}

const char *status_text(int status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case value:                                                                                    \
        return text;
        CUBIEMEM_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "unknown status";
    }
}

bool status_from_name(const char *name, int *status_p)
{
#define STATUS_MATCH(known, value, text)                                                           \
    if (strcmp(name, #known) == 0) {                                                               \
        *status_p = value;                                                                         \
        return true;                                                                               \
    }
    CUBIEMEM_STATUS_MAP(STATUS_MATCH)
#undef STATUS_MATCH
    return false;
}

const char *warning_name(uint32_t bit)
{
    switch (bit) {
#define WARNING_NAME(name, value, text)                                                            \
    case value:                                                                                    \
        return #name;
        CUBIEMEM_WARNING_MAP(WARNING_NAME)
#undef WARNING_NAME
    default:
        return "UNKNOWN";
    }
}

const char *dtype_name(int dtype)
{
    switch (dtype) {
#define DTYPE_NAME(text, name, value, size)                                                        \
    case value:                                                                                    \
        return #text;
        CUBIEMEM_DTYPE_MAP(DTYPE_NAME)
#undef DTYPE_NAME
    default:
        return NULL;
    }
}

bool dtype_from_name(const char *name, int *dtype_p)
{
#define DTYPE_MATCH(known, upper, value, size)                                                     \
    if (strcmp(name, #known) == 0) {                                                               \
        *dtype_p = value;                                                                          \
        return true;                                                                               \
    }
    CUBIEMEM_DTYPE_MAP(DTYPE_MATCH)
#undef DTYPE_MATCH
    return false;
}

uint32_t dtype_size(int dtype)
{
    switch (dtype) {
#define DTYPE_SIZE(text, name, value, size)                                                        \
    case value:                                                                                    \
        return size;
        CUBIEMEM_DTYPE_MAP(DTYPE_SIZE)
#undef DTYPE_SIZE
    default:
        return 0;
    }
}
