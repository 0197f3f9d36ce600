/*
 * measure - see measure.h
 */
#include "measure.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "outcome.h"

uint64_t measure_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t measure_processor_ns(pid_t pid)
{
    struct timespec used = {0};
    clockid_t clock;

    expect(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &used) == 0,
           "no processor time of process %d", (int)pid);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

double measure_percentile(double *samples, size_t n, double percent)
{
    qsort(samples, n, sizeof(samples[0]), compare);
    size_t at = (size_t)(percent / 100 * (double)n);
    return samples[at < n ? at : n - 1];
}

double measure_median(double *samples, size_t n)
{
    return measure_percentile(samples, n, 50);
}

void measure_report(const char *name, double value, const char *unit, double limit)
{
    printf("%s\t%.2f\t%s\t", name, value, unit);
    if (limit >= 0) {
        printf("%g", limit);
    }
    printf("\n");
    fflush(stdout);
}

void measure_report_spread(const char *name, double *samples, size_t n, const char *unit)
{
    char line[128];

    snprintf(line, sizeof(line), "%s_p50", name);
    measure_report(line, measure_percentile(samples, n, 50), unit, MEASURE_NO_LIMIT);
    snprintf(line, sizeof(line), "%s_p99", name);
    measure_report(line, measure_percentile(samples, n, 99), unit, MEASURE_NO_LIMIT);
}

void measure_pin(pid_t pid, unsigned int which)
{
    static cpu_set_t allowed; /* before anything was pinned */
    static bool known;
    cpu_set_t one;
    unsigned int n_seen = 0;

    if (!known) {
        known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
    }
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && n_seen <= which; cpu++) {
        if (CPU_ISSET(cpu, &allowed)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            n_seen++;
        }
    }
    expect(sched_setaffinity(pid, sizeof(one), &one) == 0, "cannot pin to a processor: %s",
           strerror(errno));
}

/* The number behind `name` in a file of /proc; false: no such file or line. */
static bool read_figure(const char *path, const char *name, uint64_t *value_p)
{
    FILE *file = fopen(path, "re");
    size_t length = strlen(name);
    bool found = false;
    char line[256];

    if (file == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        found = strncmp(line, name, length) == 0 && sscanf(&line[length], "%" SCNu64, value_p) == 1;
    }
    fclose(file);
    return found;
}

uint64_t measure_status_kib(pid_t pid, const char *name)
{
    char path[64];
    uint64_t value;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    expect(read_figure(path, name, &value), "no %s in %s", name, path);
    return value;
}

uint64_t measure_wakeups(pid_t pid)
{
    char path[320];
    uint64_t sum = 0;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    expect(dir != NULL, "cannot read %s: %s", path, strerror(errno));
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        uint64_t value;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, entry->d_name);
        if (entry->d_name[0] != '.' && read_figure(path, "voluntary_ctxt_switches:", &value)) {
            sum += value;
        }
    }
    closedir(dir);
    return sum;
}
