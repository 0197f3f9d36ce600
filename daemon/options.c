/*
 * options - the daemon's command line
 *
 * The table below is all there is to say about an option: its name, what it takes,
 * what --help says, and the function that checks and keeps the value. Such a function
 * answers NULL, or what a good value looks like; the parser puts the option's name and the
 * value before it.
 */
#include "options.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "exit_status.h"

#define NS_PER_S 1000000000ull
#define EVICT_TIMEOUT_MAX_S 3600u
#define HELP_INDENT 28
#define HELP_WIDTH 79
#define VALUE_SHOWN 80 /* bytes of a bad value in a message */

struct option_row {
    const char *name;
    const char *value; /* what it takes; NULL: nothing */
    const char *help;
    const char *(*apply)(struct options *options, const char *value);
};

static const char *apply_device(struct options *options, const char *value)
{
    static char why[256]; /* the daemon reads its command line once, in one thread */

    if (device_spec_check(value, why, sizeof(why)) != CUBIEMEM_OK) {
        return why;
    }
    options->device = value;
    return NULL;
}

static const char *apply_socket(struct options *options, const char *value)
{
    if (value[0] == '\0') {
        return "a path is wanted";
    }
    if (strlen(value) >= ENDPOINT_PATH_MAX) {
        return "a socket path has at most 107 bytes";
    }
    options->socket = value;
    return NULL;
}

static const char *apply_socket_group(struct options *options, const char *value)
{
    if (value[0] == '\0') {
        return "the name of a group is wanted";
    }
    options->socket_group = value;
    return NULL;
}

static const char *apply_admin_group(struct options *options, const char *value)
{
    if (value[0] == '\0') {
        return "the name of a group is wanted";
    }
    options->admin_group = value;
    return NULL;
}

static const char *apply_budget(struct options *options, const char *value)
{
    uint64_t budget;

    if (!size_parse_of(value, 1ull << 40, &budget) || budget == 0) {
        return "a size such as 16GiB or a percentage such as 80% is wanted, above 0";
    }
    options->budget = value;
    return NULL;
}

static const char *apply_reserve(struct options *options, const char *value)
{
    uint64_t reserve;

    if (!size_parse(value, &reserve)) {
        return "a size such as 500MB is wanted";
    }
    options->reserve = value;
    return NULL;
}

static const char *apply_mode(struct options *options, const char *value)
{
    if (strcmp(value, "active") == 0) {
        options->mode = POLICY_ACTIVE;
    } else if (strcmp(value, "passive") == 0) {
        options->mode = POLICY_PASSIVE;
    } else {
        return "active or passive is wanted";
    }
    return NULL;
}

static const char *apply_auto_share(struct options *options, const char *value)
{
    if (strcmp(value, "process") == 0) {
        options->auto_share = POLICY_SHARE_PROCESS;
    } else if (strcmp(value, "user") == 0) {
        options->auto_share = POLICY_SHARE_USER;
    } else if (strcmp(value, "instance") == 0) {
        options->auto_share = POLICY_SHARE_INSTANCE;
    } else {
        return "process, user or instance is wanted";
    }
    return NULL;
}

static const char *apply_evict_timeout(struct options *options, const char *value)
{
    static const char wanted[] = "seconds are wanted, such as 2 or 0.5, above 0 and at most 3600";
    const size_t digits = strspn(value, "0123456789");
    const size_t decimals = value[digits] == '.' ? strspn(value + digits + 1, "0123456789") : 0;
    const size_t length = decimals > 0 ? digits + 1 + decimals : digits;

    /* digits and one point only, so that no form of strtod()'s own gets through */
    if (digits == 0 || digits > 4 || value[length] != '\0') {
        return wanted;
    }
    const double seconds = strtod(value, NULL);
    if (!(seconds > 0) || seconds > EVICT_TIMEOUT_MAX_S) {
        return wanted;
    }
    const uint64_t ns = (uint64_t)(seconds * (double)NS_PER_S);
    if (ns == 0) {
        return wanted;
    }
    options->evict_timeout_ns = ns;
    return NULL;
}

static const char *apply_log_level(struct options *options, const char *value)
{
    return log_level_from_name(value, &options->log_level)
               ? NULL
               : "error, warn, info or debug is wanted";
}

static const char *apply_help(struct options *options, const char *value)
{
    (void)value;
    options->help = true;
    return NULL;
}

static const char *apply_version(struct options *options, const char *value)
{
    (void)value;
    options->version = true;
    return NULL;
}

/* clang-format off */
static const struct option_row rows[] = {
    {"device", "DEVICE", "the GPU: cuda:ORDINAL, GPU-UUID, or sim[:SIZE][,NAME]: a simulated one "
                         "(1GiB, sim0)", apply_device},
    {"socket", "PATH", "the socket; else CUBIEMEM_SOCKET, else <UUID>.sock in CUBIEMEM_RUNDIR, "
                       "/run/cubiemem or $XDG_RUNTIME_DIR/cubiemem", apply_socket},
    {"socket-group", "NAME", "let this group connect (mode 0660; else 0600)", apply_socket_group},
    {"admin-group", "NAME", "members may change limits and end sessions, beside root and the "
                            "daemon's own user", apply_admin_group},
    {"budget", "SIZE|PERCENT", "what may be handed out; else the device less the reserve",
     apply_budget},
    {"reserve", "SIZE", "what is kept back (512MiB on a GPU, 0 on a simulated one)",
     apply_reserve},
    {"mode", "MODE", "active: quotas are enforced (default); passive: only known", apply_mode},
    {"auto-share", "WHOM", "divide what has no manual quota by process (default), user or "
                           "instance", apply_auto_share},
    {"evict-timeout", "SECONDS", "how long an idle holder may take to give back (2)",
     apply_evict_timeout},
    {"log-level", "LEVEL", "error, warn, info (default) or debug", apply_log_level},
    {"help", NULL, "this text (also -h)", apply_help},
    {"version", NULL, "the version (also -V)", apply_version},
};
/* clang-format on */
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static int refuse(char *why, size_t why_size, const char *option, const char *reason)
{
    snprintf(why, why_size, "%.*s: %s (see --help)", VALUE_SHOWN, option, reason);
    return EXIT_STATUS_USAGE;
}

/* getopt found no option, or no value for it. */
static int refuse_unparsed(char *const *argv, int index, int found, char *why, size_t why_size)
{
    /* an argument before optind is the one that getopt complains about */
    const char *option = index > 0 ? argv[index - 1] : "";

    return refuse(why, why_size, option, found == ':' ? "a value is wanted" : "no such option");
}

int options_parse(int argc, char *const *argv, struct options *options_p, char *why,
                  size_t why_size)
{
    struct options options = {.mode = POLICY_ACTIVE,
                              .auto_share = POLICY_SHARE_PROCESS,
                              .log_level = LOG_LEVEL_INFO,
                              .evict_timeout_ns = OPTIONS_EVICT_TIMEOUT_NS};
    struct option table[N_ROWS + 1] = {{0}};
    int row, found;

    for (size_t i = 0; i < N_ROWS; i++) {
        table[i].name = rows[i].name;
        table[i].has_arg = rows[i].value != NULL ? required_argument : no_argument;
    }
    optind = 0; /* start anew, also for the second time */
    opterr = 0;
    while ((found = getopt_long(argc, argv, "+:hV", table, &row)) != -1) {
        if (found == 'h' || found == 'V') {
            options.help |= found == 'h';
            options.version |= found == 'V';
            continue;
        }
        if (found != 0) {
            return refuse_unparsed(argv, optind, found, why, why_size);
        }
        const char *reason = rows[row].apply(&options, optarg);
        if (reason != NULL) {
            snprintf(why, why_size, "--%s '%.*s': %s", rows[row].name, VALUE_SHOWN, optarg,
                     reason);
            return EXIT_STATUS_USAGE;
        }
    }
    if (optind < argc) {
        return refuse(why, why_size, argv[optind], "an option is wanted");
    }
    if (options.device == NULL && !options.help && !options.version) {
        return refuse(why, why_size, "--device",
                      "is needed: cuda:ORDINAL, GPU-UUID or sim[:SIZE][,NAME]");
    }
    *options_p = options;
    return EXIT_STATUS_OK;
}

/* Words of text from column HELP_INDENT on, not beyond HELP_WIDTH. */
static void print_wrapped(FILE *stream, const char *text)
{
    int column = HELP_INDENT;

    while (*text != '\0') {
        const int length = (int)strcspn(text, " ");
        if (column > HELP_INDENT && column + 1 + length > HELP_WIDTH) {
            fprintf(stream, "\n%*s", HELP_INDENT, "");
            column = HELP_INDENT;
        }
        column += fprintf(stream, "%s%.*s", column > HELP_INDENT ? " " : "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', stream);
}

char *options_help(void)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);

    if (stream == NULL) {
        return NULL;
    }
    fprintf(stream, "usage: cubiememd --device DEVICE [OPTION...]\n"
                    "Lend the memory of one GPU to many processes.\n\n");
    for (size_t i = 0; i < N_ROWS; i++) {
        char name[64];
        snprintf(name, sizeof(name), "--%s%s%s", rows[i].name, rows[i].value != NULL ? " " : "",
                 rows[i].value != NULL ? rows[i].value : "");
        fprintf(stream, "  %-*s", HELP_INDENT - 2, name);
        print_wrapped(stream, rows[i].help);
    }
    fprintf(stream, "\n"
                    "Exit status: 0 ended by a signal, 2 bad option or path, 5 no driver or no\n"
                    "such GPU, 6 configuration, 7 a live daemon or no socket on the path, else "
                    "1.\n");
    bool complete = ferror(stream) == 0;
    if (fclose(stream) != 0 || !complete) {
        free(text);
        return NULL;
    }
    return text;
}

int options_resolve(const struct options *options, uint64_t total, bool simulated,
                    uint64_t *budget_p, uint64_t *reserve_p, char *why, size_t why_size)
{
    char device_text[SIZE_TEXT_MAX];
    uint64_t reserve = simulated ? 0 : OPTIONS_RESERVE_GPU;
    uint64_t budget;

    if (options->reserve != NULL && !size_parse(options->reserve, &reserve)) {
        return refuse(why, why_size, "--reserve", "a size is wanted");
    }
    if (options->budget == NULL) {
        if (reserve >= total) {
            snprintf(why, why_size, "--reserve %s: leaves nothing of the device's %s",
                     options->reserve != NULL ? options->reserve : "(512MiB)",
                     size_format(total, device_text));
            return EXIT_STATUS_USAGE;
        }
        budget = total - reserve;
    } else if (!size_parse_of(options->budget, total, &budget) || budget == 0 ||
               budget > total) {
        snprintf(why, why_size, "--budget %s: the device has %s", options->budget,
                 size_format(total, device_text));
        return EXIT_STATUS_USAGE;
    }
    *budget_p = budget;
    *reserve_p = reserve;
    return EXIT_STATUS_OK;
}
