/*
 * failure - why the last call of this thread failed
 *
 * One record a thread, filled where the cause is known and passed up as a bare
 * status: every function here returns the status it was given, so that a caller
 * writes `return failure_set(...)`. What cubiemem_last_error() shows.
 */
#ifndef CLIENT_FAILURE_H
#define CLIENT_FAILURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cubiemem.h"
#include "cubiemem.pb-c.h"
#include "driver.h"

/* A status with one line of text; the figures become unknown. */
int failure_set(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* With an errno, whose text is appended. */
int failure_system(int status, int sys_errno, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* CUBIEMEM_CUDA (DEVICE_LOST where the context is beyond repair), with the
 * driver's own words appended. */
int failure_cuda(const struct driver *driver, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The daemon's verdict: its code, text and figures. OK stays OK and records
 * nothing. */
int failure_result(const Cubiemem__Result *result, const char *what);
/* The bytes that a request on this side of the socket asked for. */
int failure_asked(int status, uint64_t asked);
/* While held (by this thread; it nests), what fails is not recorded: for undoing
 * after a failure. */
void failure_hold(bool on);
/* The same text and figures under a status that says more. */
int failure_recode(int status);

#endif
