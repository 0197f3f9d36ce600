/*
 * measure - times and what they come to; the lines of a benchmark
 *
 * A figure is printed as name<TAB>value<TAB>unit<TAB>limit, the limit empty where the
 * figure is only reported. Values above their limit fall short.
 */
#ifndef SUPPORT_MEASURE_H
#define SUPPORT_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

uint64_t measure_now_ns(void); /* CLOCK_MONOTONIC */
/* Processor time that a process (0: this one) has used, all threads. */
uint64_t measure_processor_ns(pid_t pid);

/* Both sort the samples. */
double measure_median(double *samples, size_t n);
double measure_percentile(double *samples, size_t n, double percent);

#define MEASURE_NO_LIMIT (-1.0)
void measure_report(const char *name, double value, const char *unit, double limit);
/* "NAME_p50" and "NAME_p99", without limits. */
void measure_report_spread(const char *name, double *samples, size_t n, const char *unit);

/*
 * Pin a process (0: this thread) to the first or second of the processors that this
 * program may use; where there is one alone, both are that one. Threads that a process
 * starts later are pinned with it.
 */
void measure_pin(pid_t pid, unsigned int which);

/* kB of a line such as "VmRSS:" in /proc/PID/status; fails if there is none. */
uint64_t measure_status_kib(pid_t pid, const char *name);
/* Context switches of all threads of a process that went to sleep themselves. */
uint64_t measure_wakeups(pid_t pid);

#endif
