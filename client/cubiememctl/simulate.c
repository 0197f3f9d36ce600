/*
 * simulate - replay a scenario file through the policy, without a daemon
 *
 * Carries the steps out with daemon/policy/scenario.c and shows what came of
 * them: as a table, with --json as the file with `got` beside each step's
 * `expect` and `final` at the end of each scenario, with --check as the
 * differences alone. What stands in the file is somebody else's text: control
 * characters do not reach the terminal.
 */
#include "simulate.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "scenario.h"

enum { EXIT_DIFFERENCES = 1, EXIT_USAGE = 2 };

struct simulation {
    bool json, check;
    FILE *differences; /* where they go; with --json beside the output */
    size_t n_scenarios, n_steps, n_compared, n_differences;
};

static const char usage[] =
    "usage: cubiememctl simulate [--json] [--check] FILE|-\n"
    "\n"
    "Replay the scenarios of FILE (- is the standard input) through the daemon's\n"
    "policy and show what each step comes to. No daemon is needed.\n"
    "\n"
    "  --json   print the scenarios with what came of each step (\"got\", \"final\")\n"
    "  --check  compare with what the steps expect, print each difference and the\n"
    "           counts; exit status 1 if there is a difference\n";

/* ------------------------------------------------------------------ output */

static void put_text(const char *text, FILE *out)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        fputc(*c < 0x20 || *c == 0x7f ? '?' : *c, out);
    }
}

static void put_size(json_int_t size)
{
    char text[SIZE_TEXT_MAX];

    fputs(size_format((uint64_t)size, text), stdout);
}

static void put_shape(const json_t *shape)
{
    const json_t *length;
    size_t i;

    fputc('(', stdout);
    json_array_foreach(shape, i, length)
    {
        printf("%s%" JSON_INTEGER_FORMAT, i > 0 ? "," : "", json_integer_value(length));
    }
    fputc(')', stdout);
}

/* "x (3,3) float32, c (1,4,1) int32"; of a result, bytes in place of the type. */
static void put_arrays(json_t *arrays)
{
    const char *label, *separator = "";
    json_t *array;

    json_object_foreach(arrays, label, array)
    {
        const char *dtype = json_string_value(json_object_get(array, "dtype"));

        fputs(separator, stdout);
        separator = ", ";
        put_text(label, stdout);
        fputc(' ', stdout);
        put_shape(json_object_get(array, "shape"));
        fputc(' ', stdout);
        if (dtype != NULL) {
            put_text(dtype, stdout);
        } else {
            put_size(json_integer_value(json_object_get(array, "nbytes")));
        }
    }
}

static void put_argument(const char *key, json_t *value)
{
    char *text;

    if (strcmp(key, "arrays") == 0) {
        fputs("  ", stdout);
        put_arrays(value);
        return;
    }
    fputc(' ', stdout);
    if (strcmp(key, "instance") != 0) {
        put_text(key, stdout);
        fputc('=', stdout);
    }
    if (json_is_string(value)) {
        put_text(json_string_value(value), stdout);
        return;
    }
    if (json_is_real(value)) {
        printf("%g", json_real_value(value));
        return;
    }
    text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    fputs(text != NULL ? text : "?", stdout);
    free(text);
}

static void put_event(json_t *event)
{
    const char *instance = json_string_value(json_object_get(event, "instance"));
    json_t *arrays = json_object_get(event, "arrays");

    fputs("          ", stdout);
    put_text(json_string_value(json_object_get(event, "event")), stdout);
    fputc(' ', stdout);
    put_text(instance, stdout);
    if (arrays != NULL) {
        printf(": %" JSON_INTEGER_FORMAT " x %" JSON_INTEGER_FORMAT
               " runs, tail %" JSON_INTEGER_FORMAT,
               json_integer_value(json_object_get(event, "chunks")),
               json_integer_value(json_object_get(event, "chunk_length")),
               json_integer_value(json_object_get(event, "tail_length")));
        fputs(json_object_size(arrays) > 0 ? "; " : "", stdout);
        put_arrays(arrays);
    }
    fputc('\n', stdout);
}

static void put_step(size_t number, json_t *step, json_t *got)
{
    const char *status = json_string_value(json_object_get(got, "status"));
    json_t *result = json_object_get(got, "result");
    json_t *value;
    const char *key;
    size_t i;

    printf("  %4zu  %-22s  %s", number, status,
           json_string_value(json_object_get(step, "op")));
    json_object_foreach(step, key, value)
    {
        if (strcmp(key, "op") != 0 && strcmp(key, "expect") != 0) {
            put_argument(key, value);
        }
    }
    if (result != NULL) {
        printf(": %" JSON_INTEGER_FORMAT " bytes", json_integer_value(result));
    }
    fputc('\n', stdout);
    json_array_foreach(json_object_get(got, "warnings"), i, value)
    {
        printf("          warning %s\n", json_string_value(value));
    }
    json_array_foreach(json_object_get(got, "events"), i, value)
    {
        put_event(value);
    }
}

static void put_head(json_t *description, const char *name)
{
    json_t *device = json_object_get(description, "device");

    put_text(name, stdout);
    printf(": %s, device ", json_string_value(json_object_get(description, "mode")));
    put_size(json_integer_value(json_object_get(device, "total_bytes")));
    fputs(", free ", stdout);
    put_size(json_integer_value(json_object_get(device, "free_bytes")));
    fputc('\n', stdout);
}

static void put_final(json_t *final)
{
    char cap[SIZE_TEXT_MAX], allocated[SIZE_TEXT_MAX];
    const char *name;
    json_t *instance;

    printf("  %-20s %-7s %10s %12s %12s\n", "instance", "pool", "proportion", "cap", "allocated");
    json_object_foreach(final, name, instance)
    {
        int width = (int)strlen(name);

        fputs("  ", stdout);
        put_text(name, stdout);
        printf("%*s %-7s %10.6f %12s %12s\n", width < 20 ? 20 - width : 0, "",
               json_string_value(json_object_get(instance, "pool")),
               json_number_value(json_object_get(instance, "proportion")),
               size_format((uint64_t)json_integer_value(json_object_get(instance, "cap_bytes")),
                           cap),
               size_format(
                   (uint64_t)json_integer_value(json_object_get(instance, "allocated_bytes")),
                   allocated));
    }
}

/* ------------------------------------------------------------------ replay */

static void difference(const char *line, void *arg)
{
    const struct simulation *simulation = arg;

    put_text(line, simulation->differences);
    fputc('\n', simulation->differences);
}

static void simulation_compare(struct simulation *simulation, json_t *expect, json_t *got,
                               const char *where)
{
    if (simulation->check && expect != NULL) {
        simulation->n_compared++;
        simulation->n_differences +=
            scenario_compare(expect, got, where, difference, simulation);
    }
}

static bool simulation_step(struct simulation *simulation, struct scenario *scenario,
                            const char *name, size_t i, json_t *step)
{
    char error[SCENARIO_ERROR_MAX], where[512];
    json_t *got = scenario_step(scenario, step, error);

    snprintf(where, sizeof(where), "%.400s: step %zu", name, i + 1);
    if (got == NULL) {
        fflush(stdout);
        fputs("cubiememctl: simulate: ", stderr);
        put_text(where, stderr);
        fputs(": ", stderr);
        put_text(error, stderr);
        fputc('\n', stderr);
        return false;
    }
    simulation->n_steps++;
    if (!simulation->json && !simulation->check) {
        put_step(i + 1, step, got);
    }
    simulation_compare(simulation, json_object_get(step, "expect"), got, where);
    if (simulation->json) {
        json_object_set_new(step, "got", got);
    } else {
        json_decref(got);
    }
    return true;
}

static bool simulation_replay(struct simulation *simulation, json_t *description)
{
    const char *name = json_string_value(json_object_get(description, "name"));
    char error[SCENARIO_ERROR_MAX], number[32], where[512];
    struct scenario *scenario = scenario_create(description, error);
    json_t *steps = json_object_get(description, "steps");
    json_t *step, *final;
    bool good = true;
    size_t i;

    simulation->n_scenarios++;
    snprintf(number, sizeof(number), "scenario %zu", simulation->n_scenarios);
    name = name != NULL ? name : number;
    if (scenario == NULL || !json_is_array(steps)) {
        fputs("cubiememctl: simulate: ", stderr);
        put_text(name, stderr);
        fprintf(stderr, ": %s\n", scenario == NULL ? error : "\"steps\" must be a list");
        scenario_destroy(scenario);
        return false;
    }
    if (!simulation->json && !simulation->check) {
        put_head(description, name);
    }
    json_array_foreach(steps, i, step)
    {
        good = good && simulation_step(simulation, scenario, name, i, step);
    }
    if (good) {
        final = scenario_final(scenario);
        snprintf(where, sizeof(where), "%.400s: final", name);
        simulation_compare(simulation, json_object_get(description, "expect_final"), final, where);
        if (simulation->json) {
            json_object_set(description, "final", final);
        } else if (!simulation->check) {
            put_final(final);
        }
        json_decref(final);
    }
    scenario_destroy(scenario);
    return good;
}

/* A file of scenarios, or one scenario alone. */
static bool simulation_run(struct simulation *simulation, json_t *file)
{
    json_t *scenarios = json_object_get(file, "scenarios");
    json_t *format = json_object_get(file, "format");
    json_t *description;
    size_t i;

    if (format != NULL && json_integer_value(format) != 1) {
        fputs("cubiememctl: simulate: the file has a format other than 1\n", stderr);
        return false;
    }
    if (scenarios == NULL && json_object_get(file, "steps") != NULL) {
        return simulation_replay(simulation, file);
    }
    if (!json_is_array(scenarios)) {
        fputs("cubiememctl: simulate: the file has no \"scenarios\" (and no \"steps\")\n", stderr);
        return false;
    }
    json_array_foreach(scenarios, i, description)
    {
        if (!simulation_replay(simulation, description)) {
            return false;
        }
    }
    return true;
}

static json_t *load(const char *path)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *in = is_stdin ? stdin : fopen(path, "re");
    json_error_t error;
    json_t *file;

    if (in == NULL) {
        fprintf(stderr, "cubiememctl: simulate: cannot open %s: %s\n", path, strerror(errno));
        return NULL;
    }
    file = json_loadf(in, JSON_REJECT_DUPLICATES, &error);
    if (file == NULL) {
        fprintf(stderr, "cubiememctl: simulate: %s: line %d: ", is_stdin ? "standard input" : path,
                error.line);
        put_text(error.text, stderr);
        fputc('\n', stderr);
    }
    if (!is_stdin) {
        fclose(in);
    }
    return file;
}

static int simulation_report(const struct simulation *simulation, json_t *file)
{
    if (simulation->json) {
        json_dumpf(file, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
        fputc('\n', stdout);
    }
    if (simulation->check) {
        fprintf(simulation->differences,
                "%zu scenarios, %zu steps, %zu compared, %zu differences\n",
                simulation->n_scenarios, simulation->n_steps, simulation->n_compared,
                simulation->n_differences);
    }
    return simulation->n_differences > 0 ? EXIT_DIFFERENCES : EXIT_SUCCESS;
}

int cmd_simulate(int argc, char **argv)
{
    static const struct option options[] = {
        { "json", no_argument, NULL, 'j' },
        { "check", no_argument, NULL, 'c' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    struct simulation simulation = { .differences = stdout };
    json_t *file;
    int option, result = EXIT_FAILURE;

    optind = 0;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'j':
            simulation.json = true;
            break;
        case 'c':
            simulation.check = true;
            break;
        case 'h':
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        default:
            fputs(usage, stderr);
            return EXIT_USAGE;
        }
    }
    if (optind + 1 != argc) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (simulation.json) {
        simulation.differences = stderr;
    }
    file = load(argv[optind]);
    if (file == NULL) {
        return EXIT_FAILURE;
    }
    if (simulation_run(&simulation, file)) {
        result = simulation_report(&simulation, file);
    }
    json_decref(file);
    return fflush(stdout) == 0 ? result : EXIT_FAILURE;
}
