/*
 * pkfit - a dose-response fit on a GPU shared through cubiememd
 *
 * Fits the one-compartment model to each subject's observations by evaluating it
 * on grids of (ke, ka, Cl), and prints one line a subject: subject ke ka Cl ss
 * chunks bytes. This file reads the command line; the fit is fit.c, the part that
 * shows how to use the library lent.c.
 */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "lent.h"
#include "plain.h"

#define POINTS_MAX   1000
#define SUBJECTS_MAX 256
#define WAIT_MAX_S   86400

struct options {
    const char *data;
    const char *name;
    const char *socket;
    double proportion; /* negative: auto */
    int64_t wait_ns;
    uint32_t points;   /* on each axis */
    uint64_t chunk;    /* runs; without the daemon only */
    int subjects[SUBJECTS_MAX];
    size_t n_subjects; /* 0: all */
    bool no_daemon;
    bool exact;
    bool quiet;
};

static const char usage_text[] =
    "Usage: pkfit --data FILE [OPTION]...\n"
    "Fit ke, ka and Cl to every subject's drug concentrations by grid search.\n"
    "\n"
    "  --data FILE        observations: CSV with Subject,Wt,Dose,Time,conc\n"
    "  --subjects A,B,... subjects to fit (default: all)\n"
    "  --name NAME        of client and instance (default: pkfit)\n"
    "  --proportion P     share of the device's budget, 0 to 1 (default: auto pool)\n"
    "  --wait SECONDS     how long a batch may wait for memory (default: 60)\n"
    "  --points N         grid points on each axis (default: 100, that is 10^6 runs)\n"
    "  --socket PATH      of cubiememd (default: $CUBIEMEM_SOCKET, or the only one)\n"
    "  --no-daemon        compute in plain memory, on the CPU\n"
    "  --chunk RUNS       with --no-daemon: runs of a chunk (default: all at once)\n"
    "  --exact            print all 17 digits\n"
    "  --quiet            no progress\n"
    "  -h, --help         this text\n"
    "\n"
    "Prints a line a subject: subject ke ka Cl ss chunks bytes; chunks are those of\n"
    "one batch, bytes those of the arrays held at a time.\n";

static uint64_t number_parse(const char *option, const char *text, uint64_t low, uint64_t high)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value < low || value > high) {
        errx(2, "%s %s: a whole number from %ju to %ju is wanted", option, text, (uintmax_t)low,
             (uintmax_t)high);
    }
    return value;
}

static double proportion_parse(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= 0 && value <= 1)) {
        errx(2, "--proportion %s: a number from 0 to 1 is wanted", text);
    }
    return value;
}

static int64_t wait_parse(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= 0 && value <= WAIT_MAX_S)) {
        errx(2, "--wait %s: seconds from 0 to %d are wanted", text, WAIT_MAX_S);
    }
    return (int64_t)(value * 1e9);
}

static void subjects_parse(char *text, struct options *options)
{
    char *rest = text;
    char *item;

    while ((item = strsep(&rest, ","))) {
        if (options->n_subjects == SUBJECTS_MAX) {
            errx(2, "--subjects: more than %d", SUBJECTS_MAX);
        }
        options->subjects[options->n_subjects++] =
            (int)number_parse("--subjects", item, 1, INT_MAX);
    }
}

static void options_check(const struct options *options, int argc, char **argv)
{
    if (optind < argc) {
        errx(2, "%s: no such argument; see pkfit --help", argv[optind]);
    }
    if (!options->data) {
        errx(2, "--data FILE is missing; see pkfit --help");
    }
    if (options->chunk > 0 && !options->no_daemon) {
        errx(2, "--chunk: the daemon cuts the batches; use it with --no-daemon");
    }
}

static void options_parse(int argc, char **argv, struct options *options_p)
{
    enum { DATA = 256, SUBJECTS, NAME, PROPORTION, WAIT, POINTS, SOCKET, NO_DAEMON, CHUNK, EXACT,
           QUIET };
    static const struct option table[] = {
        {"data", required_argument, NULL, DATA},
        {"subjects", required_argument, NULL, SUBJECTS},
        {"name", required_argument, NULL, NAME},
        {"proportion", required_argument, NULL, PROPORTION},
        {"wait", required_argument, NULL, WAIT},
        {"points", required_argument, NULL, POINTS},
        {"socket", required_argument, NULL, SOCKET},
        {"no-daemon", no_argument, NULL, NO_DAEMON},
        {"chunk", required_argument, NULL, CHUNK},
        {"exact", no_argument, NULL, EXACT},
        {"quiet", no_argument, NULL, QUIET},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    struct options options = {.name = "pkfit", .proportion = -1, .wait_ns = 60000000000,
                              .points = 100};
    int option;

    while ((option = getopt_long(argc, argv, "h", table, NULL)) != -1) {
        switch (option) {
        case DATA:
            options.data = optarg;
            break;
        case SUBJECTS:
            subjects_parse(optarg, &options);
            break;
        case NAME:
            options.name = optarg;
            break;
        case PROPORTION:
            options.proportion = proportion_parse(optarg);
            break;
        case WAIT:
            options.wait_ns = wait_parse(optarg);
            break;
        case POINTS:
            options.points = (uint32_t)number_parse("--points", optarg, 2, POINTS_MAX);
            break;
        case SOCKET:
            options.socket = optarg;
            break;
        case NO_DAEMON:
            options.no_daemon = true;
            break;
        case CHUNK:
            options.chunk = number_parse("--chunk", optarg, 1, INT64_MAX);
            break;
        case EXACT:
            options.exact = true;
            break;
        case QUIET:
            options.quiet = true;
            break;
        case 'h':
            fputs(usage_text, stdout);
            exit(0);
        default:
            exit(2); /* getopt has said why */
        }
    }
    options_check(&options, argc, argv);
    *options_p = options;
}

/* The subjects to fit, in the order asked for. */
static const struct pk_subject **subjects_choose(const struct data *data, struct options *options)
{
    if (options->n_subjects == 0) {
        if (data->n_subjects > SUBJECTS_MAX) {
            errx(1, "%s has more than %d subjects; choose with --subjects", options->data,
                 SUBJECTS_MAX);
        }
        for (size_t i = 0; i < data->n_subjects; i++) {
            options->subjects[i] = data->subjects[i].number;
        }
        options->n_subjects = data->n_subjects;
    }
    const struct pk_subject **subjects = calloc(options->n_subjects, sizeof(*subjects));
    if (!subjects) {
        err(1, "cannot keep the subjects");
    }
    for (size_t i = 0; i < options->n_subjects; i++) {
        subjects[i] = data_subject(data, options->subjects[i]);
        if (!subjects[i]) {
            errx(1, "%s has no subject %d", options->data, options->subjects[i]);
        }
    }
    return subjects;
}

static int subjects_fit(struct evaluator *evaluator, const struct pk_subject *const *subjects,
                        const struct options *options, struct progress *progress)
{
    int digits = options->exact ? 17 : 6;
    struct fit *fits = calloc(options->n_subjects, sizeof(*fits));
    int result = 0;

    if (!fits) {
        warn("cannot keep the fits");
        return -1;
    }
    for (size_t i = 0; i < options->n_subjects && result == 0; i++) {
        result = fit_subject(evaluator, subjects[i], options->points, &fits[i]);
    }
    progress_finish(progress);
    for (size_t i = 0; i < options->n_subjects && result == 0; i++) {
        const struct fit *fit = &fits[i];
        printf("%d %#.*g %#.*g %#.*g %#.*g %ju %ju\n", subjects[i]->number, digits, fit->ke, digits,
               fit->ka, digits, fit->cl, digits, fit->ss, (uintmax_t)fit->cost.chunks,
               (uintmax_t)fit->cost.bytes);
    }
    free(fits);
    return result;
}

int main(int argc, char **argv)
{
    struct options options;
    struct progress progress;
    struct data data;
    char why[512];
    int result;

    options_parse(argc, argv, &options);
    if (data_read(options.data, &data, why, sizeof(why)) < 0) {
        errx(1, "%s", why);
    }
    const struct pk_subject **subjects = subjects_choose(&data, &options);
    uint64_t runs = (uint64_t)options.points * options.points * options.points;
    progress_init(&progress, options.name, options.n_subjects * FIT_BATCHES * runs, options.quiet);
    if (options.no_daemon) {
        struct plain_evaluator plain;
        plain_init(&plain, options.chunk, &progress);
        result = subjects_fit(&plain.base, subjects, &options, &progress);
    } else {
        struct lent_evaluator lent;
        result = lent_open(&lent, options.socket, options.name, options.proportion,
                           options.wait_ns, &progress);
        if (result == 0) {
            result = subjects_fit(&lent.base, subjects, &options, &progress);
            lent_close(&lent);
        }
    }
    free(subjects);
    data_finish(&data);
    return result == 0 && fflush(stdout) == 0 ? 0 : 1;
}
