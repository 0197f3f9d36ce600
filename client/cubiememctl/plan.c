/*
 * plan - how a batch would be cut: chunks and bytes for each of N processes
 *
 * Asks the daemon's own policy: N processes with one instance each, all in the
 * auto pool, which ask one after the other for the same arrays; what one was
 * granted is no longer free for the next. So the answer is the one that simulate
 * gives for these steps.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "protocol_limits.h"
#include "policy.h"
#include "simulate.h"
#include "status.h"

#define MAX_PROCESSES 4096u
#define DEFAULT_GRANULARITY (2ull << 20)

enum { EXIT_USAGE = 2, EXIT_REFUSED = 6 };

struct question {
    uint64_t device, free, granularity;
    bool has_device, has_free, json;
    unsigned int n_processes;
    enum policy_mode mode;
    struct array *arrays;
    size_t n_arrays;
};

/* What one process comes to. */
struct answer {
    int status;
    uint64_t cap, bytes;
    struct policy_partition partition;
    uint32_t warnings;
    struct policy_refusal refusal;
};

static const char usage[] =
    "usage: cubiememctl plan --device SIZE [--free SIZE] [--processes N]\n"
    "           [--mode active|passive] [--granularity SIZE] [--json]\n"
    "           LABEL:SHAPE:DTYPE[:axis=I|:unchunkable|:pinned]...\n"
    "\n"
    "Show into how many chunks each of N processes would have to cut its batch, and\n"
    "how many bytes it would be charged. No daemon is needed.\n"
    "\n"
    "  --device SIZE       what the daemon may hand out, as 16GiB\n"
    "  --free SIZE         what of it is free now (all)\n"
    "  --processes N       with one instance each, all in the auto pool (1)\n"
    "  --mode MODE         active: each within its cap; passive: first come (active)\n"
    "  --granularity SIZE  of a block (2MiB)\n"
    "\n"
    "SHAPE is 100x6x1000000 or 100,6,1000000; the chunk axis is 2 if none is named.\n"
    "Example: cubiememctl plan --device 16GiB --processes 3 state:100x6x1000000:float64\n";

static int complain(const char *what, const char *text)
{
    fprintf(stderr, "cubiememctl: plan: %s: %s\n", what, text);
    return EXIT_USAGE;
}

/* ------------------------------------------------------------------- arrays */

static bool parse_shape(char *text, struct array *array)
{
    size_t size = strlen(text);

    array->shape = calloc(size / 2 + 1, sizeof(array->shape[0]));
    if (array->shape == NULL) {
        return false;
    }
    if (size >= 2 && text[0] == '(' && text[size - 1] == ')') {
        text[size - 1] = '\0';
        text++;
    }
    while (*text != '\0') {
        char *end;
        long long length;

        if (!isdigit((unsigned char)*text)) {
            return false;
        }
        errno = 0;
        length = strtoll(text, &end, 10);
        if (errno != 0 || (*end != '\0' && *end != 'x' && *end != ',') ||
            (*end != '\0' && end[1] == '\0')) {
            return false;
        }
        array->shape[array->rank++] = length;
        text = *end != '\0' ? end + 1 : end;
    }
    return true;
}

static bool parse_flag(const char *text, struct array *array)
{
    char *end;
    long axis;

    if (strcmp(text, "unchunkable") == 0) {
        array->unchunkable = true;
        return true;
    }
    if (strcmp(text, "pinned") == 0) {
        array->memory = CUBIEMEM_PINNED;
        return true;
    }
    if (strncmp(text, "axis=", 5) != 0 || !isdigit((unsigned char)text[5])) {
        return false;
    }
    axis = strtol(text + 5, &end, 10);
    array->axis = axis > INT32_MAX ? INT32_MAX : (int32_t)axis;
    return *end == '\0';
}

/* LABEL:SHAPE:DTYPE[:flag]...; 0, or the exit status after a complaint. */
static int parse_array(const char *argument, struct array *array)
{
    char *text = strdup(argument), *rest = text, *label, *shape, *dtype, *flag;
    int result = 0;

    if (text == NULL) {
        return complain(argument, "not enough host memory");
    }
    label = strsep(&rest, ":");
    shape = strsep(&rest, ":");
    dtype = strsep(&rest, ":");
    array->memory = CUBIEMEM_DEVICE;
    array->axis = 2;
    array->total_runs = 1;
    array->label = strdup(label);
    if (dtype == NULL) {
        result = complain(argument, "an array is LABEL:SHAPE:DTYPE, as state:100x6x1000:float64");
    } else if (!parse_shape(shape, array)) {
        result = complain(argument, "the shape must be whole numbers, as 100x6x1000");
    } else if (!dtype_from_name(dtype, &array->dtype)) {
        result = complain(argument, "the dtype is not known; it is such as float64, int32, bool");
    }
    while (result == 0 && (flag = strsep(&rest, ":")) != NULL) {
        if (!parse_flag(flag, array)) {
            result = complain(argument, "behind the dtype stands axis=I, unchunkable or pinned");
        }
    }
    free(text);
    return result;
}

static int parse_arrays(int argc, char **argv, struct question *question)
{
    size_t culprit;
    const char *why;
    int result = 0, status;

    if (argc < 1) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    question->arrays = calloc((size_t)argc, sizeof(question->arrays[0]));
    if (question->arrays == NULL) {
        return complain("arrays", "not enough host memory");
    }
    for (int i = 0; i < argc && result == 0; i++) {
        result = parse_array(argv[i], &question->arrays[question->n_arrays++]);
    }
    if (result != 0) {
        return result;
    }
    status = arrays_check(question->arrays, question->n_arrays, &culprit, &why);
    if (status != CUBIEMEM_OK) {
        complain(argv[culprit], why);
        return status == CUBIEMEM_TOO_LARGE ? EXIT_REFUSED : EXIT_USAGE;
    }
    return 0;
}

/* ------------------------------------------------------------------ options */

static int parse_option(int option, const char *text, struct question *question)
{
    char *end;
    unsigned long n;

    switch (option) {
    case 'd':
        question->has_device = true;
        return size_parse(text, &question->device) ? 0 : complain("--device", "a size, as 16GiB");
    case 'f':
        question->has_free = true;
        return size_parse(text, &question->free) ? 0 : complain("--free", "a size, as 12GiB");
    case 'g':
        return size_parse(text, &question->granularity) && question->granularity > 0
                   ? 0
                   : complain("--granularity", "a size above 0, as 2MiB");
    case 'p':
        n = isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : 0;
        if (n < 1 || n > MAX_PROCESSES || *end != '\0') {
            return complain("--processes", "a number from 1 to 4096");
        }
        question->n_processes = (unsigned int)n;
        return 0;
    case 'm':
        if (strcmp(text, "active") != 0 && strcmp(text, "passive") != 0) {
            return complain("--mode", "active or passive");
        }
        question->mode = strcmp(text, "active") == 0 ? POLICY_ACTIVE : POLICY_PASSIVE;
        return 0;
    case 'j':
        question->json = true;
        return 0;
    default:
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
}

/* 0; -1 after --help; or the exit status after a complaint. */
static int parse(int argc, char **argv, struct question *question)
{
    static const struct option options[] = {
        { "device", required_argument, NULL, 'd' },
        { "free", required_argument, NULL, 'f' },
        { "granularity", required_argument, NULL, 'g' },
        { "processes", required_argument, NULL, 'p' },
        { "mode", required_argument, NULL, 'm' },
        { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    int option, result;

    optind = 0;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            return -1;
        }
        result = parse_option(option, optarg, question);
        if (result != 0) {
            return result;
        }
    }
    if (!question->has_device) {
        return complain("--device", "say how much the daemon may hand out, as --device 16GiB");
    }
    if (!question->has_free) {
        question->free = question->device;
    }
    return parse_arrays(argc - optind, argv + optind, question);
}

/* ------------------------------------------------------------------ answers */

static bool ask(struct policy *policy, struct policy_instance *instance, uint64_t *free_bytes,
                const struct question *question, struct answer *answer)
{
    struct policy_instance_view view;
    struct policy_plan *plan;
    const char *why;
    size_t culprit;

    answer->status = policy_queue(policy, instance, question->arrays, question->n_arrays, &culprit,
                                  &why);
    if (answer->status != CUBIEMEM_OK) {
        return false;
    }
    policy_instance_read(instance, &view);
    answer->cap = view.cap;
    answer->status =
        policy_plan(policy, instance, *free_bytes, true, &plan, &answer->refusal);
    if (answer->status != CUBIEMEM_OK) {
        answer->warnings = answer->refusal.warnings;
        return answer->status != CUBIEMEM_HOST_MEMORY;
    }
    answer->partition = plan->partition;
    answer->warnings = plan->warnings;
    answer->bytes = plan->wanted;
    policy_reserve(policy, plan);
    policy_commit(policy, plan);
    *free_bytes -= plan->wanted;
    policy_plan_destroy(plan);
    return true;
}

/* All register before the first asks, so that each has its share. */
static bool ask_all(struct policy *policy, const struct question *question,
                    struct answer *answers)
{
    struct policy_instance *instance = NULL;
    uint64_t free_bytes = question->free;
    uint32_t warnings;

    for (unsigned int i = 0; i < question->n_processes; i++) {
        const struct policy_registration registration = {
            .identity = { .scope = i + 1, .process = i + 1 },
            .name = "plan",
            .evictable = true,
        };

        if (policy_register(policy, &registration, &instance, &warnings) != CUBIEMEM_OK) {
            return false;
        }
    }
    instance = NULL;
    for (unsigned int i = 0; i < question->n_processes; i++) {
        instance = policy_next_instance(policy, instance);
        if (!ask(policy, instance, &free_bytes, question, &answers[i])) {
            return false;
        }
    }
    return true;
}

static void put_warnings(uint32_t warnings)
{
    for (uint32_t bit = 1; bit <= warnings; bit <<= 1) {
        if ((warnings & bit) != 0) {
            printf("  %s", warning_name(bit));
        }
    }
}

static void put_row(unsigned int process, const struct answer *answer)
{
    char bytes[SIZE_TEXT_MAX], cap[SIZE_TEXT_MAX], largest[SIZE_TEXT_MAX], asked[SIZE_TEXT_MAX];

    printf("%7u  ", process);
    if (answer->status == CUBIEMEM_OK) {
        printf("%8" PRIu64 "  %12" PRIu64 "  %12" PRIu64 "  %12s  %12s", answer->partition.chunks,
               answer->partition.chunk_length, answer->partition.tail_length,
               size_format(answer->bytes, bytes), size_format(answer->cap, cap));
        put_warnings(answer->warnings);
    } else {
        printf("%s: %s", status_name(answer->status), status_text(answer->status));
        if (answer->refusal.largest != UINT64_MAX) {
            printf(" (asked %s, room %s by %s%s%s)", size_format(answer->refusal.asked, asked),
                   size_format(answer->refusal.largest, largest), answer->refusal.limited_by,
                   answer->refusal.label != NULL ? ", array " : "",
                   answer->refusal.label != NULL ? answer->refusal.label : "");
        } else if (answer->refusal.why != NULL) {
            printf(" (%s%s%s)", answer->refusal.label != NULL ? answer->refusal.label : "",
                   answer->refusal.label != NULL ? ": " : "", answer->refusal.why);
        }
    }
    fputc('\n', stdout);
}

static void put_table(const struct question *question, const struct answer *answers)
{
    printf("%7s  %8s  %12s  %12s  %12s  %12s\n", "process", "chunks", "chunk length", "tail",
           "bytes", "cap");
    for (unsigned int i = 0; i < question->n_processes; i++) {
        put_row(i + 1, &answers[i]);
    }
}

static json_t *json_of_answer(unsigned int process, const struct answer *answer)
{
    const struct policy_refusal *refusal = &answer->refusal;
    json_t *object = json_pack("{s:i, s:s, s:I}", "process", (int)process, "status",
                               status_name(answer->status), "cap_bytes",
                               (json_int_t)answer->cap);
    json_t *warnings = json_array();

    for (uint32_t bit = 1; bit <= answer->warnings; bit <<= 1) {
        if ((answer->warnings & bit) != 0) {
            json_array_append_new(warnings, json_string(warning_name(bit)));
        }
    }
    json_object_set_new(object, "warnings", warnings);
    if (answer->status == CUBIEMEM_OK) {
        json_object_update_new(
            object, json_pack("{s:I, s:I, s:I, s:I, s:I}", "runs",
                              (json_int_t)answer->partition.runs, "chunks",
                              (json_int_t)answer->partition.chunks, "chunk_length",
                              (json_int_t)answer->partition.chunk_length, "tail_length",
                              (json_int_t)answer->partition.tail_length, "bytes",
                              (json_int_t)answer->bytes));
    } else {
        json_object_update_new(
            object, json_pack("{s:I, s:I, s:o, s:s, s:s?}", "asked_bytes",
                              (json_int_t)(refusal->asked > INT64_MAX ? INT64_MAX : refusal->asked),
                              "free_bytes", (json_int_t)refusal->free, "largest_bytes",
                              refusal->largest <= INT64_MAX
                                  ? json_integer((json_int_t)refusal->largest)
                                  : json_null(),
                              "limited_by", refusal->limited_by, "label", refusal->label));
    }
    return object;
}

static void put_json(const struct question *question, const struct answer *answers)
{
    json_t *processes = json_array();
    json_t *object;

    for (unsigned int i = 0; i < question->n_processes; i++) {
        json_array_append_new(processes, json_of_answer(i + 1, &answers[i]));
    }
    object = json_pack("{s:i, s:I, s:I, s:I, s:s, s:o}", "schema_version", 1, "device_bytes",
                       (json_int_t)question->device, "free_bytes", (json_int_t)question->free,
                       "granularity_bytes", (json_int_t)question->granularity, "mode",
                       question->mode == POLICY_ACTIVE ? "active" : "passive", "processes",
                       processes);
    json_dumpf(object, stdout, JSON_INDENT(1));
    fputc('\n', stdout);
    json_decref(object);
}

static int answer_all(const struct question *question)
{
    const struct policy_config config = {
        .total = question->device,
        .granularity = question->granularity,
        .alignment = question->granularity % ARRAY_ALIGNMENT == 0 ? ARRAY_ALIGNMENT : 1,
        .mode = question->mode,
        .auto_share = POLICY_SHARE_PROCESS,
    };
    struct answer *answers = calloc(question->n_processes, sizeof(*answers));
    struct policy *policy = policy_create(&config);
    int result = EXIT_SUCCESS;

    if (answers == NULL || policy == NULL || !ask_all(policy, question, answers)) {
        fputs("cubiememctl: plan: not enough host memory\n", stderr);
        result = EXIT_FAILURE;
    } else {
        (question->json ? put_json : put_table)(question, answers);
        for (unsigned int i = 0; i < question->n_processes; i++) {
            if (answers[i].status != CUBIEMEM_OK) {
                result = answers[i].status == CUBIEMEM_INVALID_REQUEST ? EXIT_USAGE : EXIT_REFUSED;
            }
        }
    }
    policy_destroy(policy);
    free(answers);
    return result;
}

int cmd_plan(int argc, char **argv)
{
    struct question question = {
        .granularity = DEFAULT_GRANULARITY,
        .n_processes = 1,
        .mode = POLICY_ACTIVE,
    };
    int result = parse(argc, argv, &question);

    if (result == 0) {
        result = answer_all(&question);
    }
    arrays_free(question.arrays, question.n_arrays);
    return result < 0 ? EXIT_SUCCESS : fflush(stdout) == 0 ? result : EXIT_FAILURE;
}
