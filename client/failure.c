/*
 * failure - why the last call of this thread failed
 *
 * The record is thread-local and holds its own text, so that it stays valid
 * until the thread's next failing call and never allocates. Texts that come
 * from the daemon are cut to one line: a peer does not write to our terminal.
 */
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "status.h"

#define FAILURE_TEXT_SIZE 768
#define FAILURE_LIMIT_SIZE 288

static _Thread_local struct cubiemem_error failure = {
    .asked = UINT64_MAX,
    .held = UINT64_MAX,
    .cap = UINT64_MAX,
    .free = UINT64_MAX,
    .largest = UINT64_MAX,
    .text = "no call of this thread has failed",
};
static _Thread_local char failure_text[FAILURE_TEXT_SIZE];
static _Thread_local char failure_limited_by[FAILURE_LIMIT_SIZE];

static _Thread_local unsigned failure_held;

void failure_hold(bool on)
{
    failure_held = on ? failure_held + 1 : failure_held - 1;
}

static void failure_reset(int status)
{
    failure = (struct cubiemem_error){
        .status = status,
        .asked = UINT64_MAX,
        .held = UINT64_MAX,
        .cap = UINT64_MAX,
        .free = UINT64_MAX,
        .largest = UINT64_MAX,
        .text = failure_text,
    };
}

/* Appends to the text; what does not fit is cut. */
__attribute__((format(printf, 1, 2))) static void failure_append(const char *format, ...)
{
    size_t used = strlen(failure_text);
    va_list list;
    va_start(list, format);
    vsnprintf(failure_text + used, sizeof failure_text - used, format, list);
    va_end(list);
}

static void failure_one_line(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || (unsigned char)*text == 0x7f) {
            *text = ' ';
        }
    }
}

int failure_set(int status, const char *format, ...)
{
    va_list list;
    if (failure_held > 0) {
        return status;
    }
    failure_reset(status);
    va_start(list, format);
    vsnprintf(failure_text, sizeof failure_text, format, list);
    va_end(list);
    failure_one_line(failure_text);
    return status;
}

int failure_system(int status, int sys_errno, const char *format, ...)
{
    va_list list;
    if (failure_held > 0) {
        return status;
    }
    failure_reset(status);
    va_start(list, format);
    vsnprintf(failure_text, sizeof failure_text, format, list);
    va_end(list);
    failure.sys_errno = sys_errno;
    failure_append(": %s", strerrordesc_np(sys_errno) ? strerrordesc_np(sys_errno) : "unknown");
    failure_one_line(failure_text);
    return status;
}

/* Errors after which nothing works in the context any more. */
static int failure_is_fatal(CUresult result)
{
    switch ((int)result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        return 1;
    default:
        return 0;
    }
}

int failure_cuda(const struct driver *driver, CUresult result, const char *format, ...)
{
    va_list list;
    char buffer[128];
    int status = failure_is_fatal(result) ? CUBIEMEM_DEVICE_LOST : CUBIEMEM_CUDA;
    if (failure_held > 0) {
        return status;
    }
    failure_reset(status);
    va_start(list, format);
    vsnprintf(failure_text, sizeof failure_text, format, list);
    va_end(list);
    failure.cu_result = (int)result;
    failure_append(": %s", driver_error(driver, result, buffer));
    failure_one_line(failure_text);
    return status;
}

int failure_result(const Cubiemem__Result *result, const char *what)
{
    if (result == NULL || !result->has_code) {
        return failure_set(CUBIEMEM_INTERNAL, "%s: the daemon's answer has no result", what);
    }
    if (result->code == CUBIEMEM_OK) {
        return CUBIEMEM_OK;
    }
    /* A positive code would look like success with a value to some callers. */
    int status = result->code < 0 ? result->code : CUBIEMEM_INTERNAL;
    if (failure_held > 0) {
        return status;
    }
    failure_reset(status);
    snprintf(failure_text, sizeof failure_text, "%s: %.600s", what,
             result->text != NULL && result->text[0] != '\0' ? result->text
                                                             : status_text(result->code));
    failure_one_line(failure_text);
    failure.sys_errno = result->sys_errno;
    failure.cu_result = result->cu_result;
    failure.asked = result->has_asked ? result->asked : UINT64_MAX;
    failure.held = result->has_held ? result->held : UINT64_MAX;
    failure.cap = result->has_cap ? result->cap : UINT64_MAX;
    failure.free = result->has_free ? result->free : UINT64_MAX;
    failure.largest = result->has_largest ? result->largest : UINT64_MAX;
    if (result->limited_by != NULL) {
        snprintf(failure_limited_by, sizeof failure_limited_by, "%s", result->limited_by);
        failure_one_line(failure_limited_by);
        failure.limited_by = failure_limited_by;
    }
    return status;
}

int failure_asked(int status, uint64_t asked)
{
    if (failure_held == 0) {
        failure.asked = asked;
    }
    return status;
}

int failure_recode(int status)
{
    if (failure_held == 0) {
        failure.status = status;
    }
    return status;
}

const struct cubiemem_error *cubiemem_last_error(void)
{
    return &failure;
}

const char *cubiemem_version(void)
{
    return CUBIEMEM_VERSION_STRING;
}

const char *cubiemem_strerror(int status)
{
    return status_text(status);
}

const char *cubiemem_status_name(int status)
{
    return status_name(status);
}
