/*
 * cubiememctl - see and steer the daemon that lends a GPU's memory
 *
 * One table of verbs and one of options; options may stand before or behind the
 * verb. simulate and plan need no daemon and read their arguments themselves.
 */
#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl.h"
#include "simulate.h"

#define DEFAULT_TIMEOUT_NS INT64_C(10000000000)

struct verb {
    const char *name;
    const char *arguments;
    const char *summary;
    const char *details; /* for its own --help; NULL: the summary says it all */
    int n_arguments;
    int (*run)(const struct ctl *ctl, int argc, char **argv);
    int (*run_alone)(int argc, char **argv); /* reads its own options; no daemon */
};

static const struct verb verbs[] = {
    {"status", "", "the device, its memory and who holds it", NULL, 0, cmd_status, NULL},
    {"clients", "", "connected processes", NULL, 0, cmd_clients, NULL},
    {"instances", "", "registered instances, their quotas and what they hold", NULL, 0,
     cmd_instances, NULL},
    {"groups", "", "stream groups and their members", NULL, 0, cmd_groups, NULL},
    {"ping", "", "does the daemon answer?", NULL, 0, cmd_ping, NULL},
    {"version", "", "of the tool and of the daemon", NULL, 0, cmd_version, NULL},
    {"set-mode", "active|passive", "keep caps, or physical limits only",
     "active: a request has to fit under the caps. passive: caps are shown, not kept.\n"
     "What is held stays held.\n",
     1, cmd_set_mode, NULL},
    {"set-proportion", "INSTANCE P|auto", "an instance's share of the budget",
     "INSTANCE is ID/NAME as `instances` shows it, or a NAME that only one client has.\n"
     "P is a number from 0 to 1; auto puts it into the pool of what is left. What is\n"
     "held above the new cap stays held and is shown.\n",
     2, cmd_set_proportion, NULL},
    {"set-limit", "WHOSE SIZE|PERCENT|none",
     "a ceiling; WHOSE: --name N, --uid U, --gid G or --daemon",
     "  --name N   each user's clients of this name together\n"
     "  --uid U    all clients of a user; a number\n"
     "  --gid G    all clients of a primary group; a number\n"
     "  --daemon   all that is handed out: the budget itself\n\n"
     "SIZE is 16GiB or 500MB; PERCENT, as 80%, is of the budget (with --daemon: of the\n"
     "device); none lifts the ceiling. What is held above it stays held and is shown.\n",
     1, cmd_set_limit, NULL},
    {"evict", "ID[/INSTANCE]", "ask a client's idle owners for what they hold",
     "As a shortage of memory would: the client's library decides, what is at work\n"
     "stays. With INSTANCE only that instance's owner. ID is what `status` shows.\n"
     "Exit status 1: nothing was given back.\n",
     1, cmd_evict, NULL},
    {"kick", "ID [--kill]", "end a client's session (and kill its process)",
     "  --kill   also send SIGKILL to the process that connected, and to no other\n\n"
     "ID is what `status` shows. What the client holds comes free when its process has\n"
     "let go of it.\n",
     1, cmd_kick, NULL},
    {"drain", "[--off]", "let nobody new in and wait until all is given back",
     "  --off   let clients in again\n\n"
     "Exit status 1: after --timeout somebody still holds memory; the daemon goes on\n"
     "letting nobody in.\n",
     0, cmd_drain, NULL},
    {"simulate", "FILE|-", "replay a scenario through the policy, without a daemon", NULL, 0, NULL,
     cmd_simulate},
    {"plan", "--device SIZE ARRAY...", "how would a batch be cut?", NULL, 0, NULL, cmd_plan},
};

enum {
    OPTION_TIMEOUT = 256,
    OPTION_JSON,
    OPTION_NAME,
    OPTION_UID,
    OPTION_GID,
    OPTION_DAEMON,
    OPTION_KILL,
    OPTION_OFF,
};

static const struct option options[] = {
    {"socket", required_argument, NULL, 's'},
    {"gpu", required_argument, NULL, 'g'},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"json", no_argument, NULL, OPTION_JSON},
    {"name", required_argument, NULL, OPTION_NAME},
    {"uid", required_argument, NULL, OPTION_UID},
    {"gid", required_argument, NULL, OPTION_GID},
    {"daemon", no_argument, NULL, OPTION_DAEMON},
    {"kill", no_argument, NULL, OPTION_KILL},
    {"off", no_argument, NULL, OPTION_OFF},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {0},
};

/* A verb's own --help; simulate and plan have theirs. */
static void verb_print(const struct verb *verb)
{
    printf("Usage: cubiememctl [OPTION]... %s%s%s\n%c%s\n\n%s%s"
           "Options -s, -g, --json and --timeout: see cubiememctl --help\n",
           verb->name, *verb->arguments ? " " : "", verb->arguments,
           toupper((unsigned char)verb->summary[0]), verb->summary + 1,
           verb->details ? verb->details : "", verb->details ? "\n" : "");
}

static void usage_print(void)
{
    puts("Usage: cubiememctl [OPTION]... VERB [ARGUMENT]...\n"
         "See and steer cubiememd, which lends a GPU's memory to many processes.\n");
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        printf("  %s%s%s\n        %s\n", verbs[i].name, *verbs[i].arguments ? " " : "",
               verbs[i].arguments, verbs[i].summary);
    }
    puts("\n"
         "VERB --help says more.\n\n"
         "  -s, --socket PATH   the daemon's socket (else $CUBIEMEM_SOCKET)\n"
         "  -g, --gpu UUID      the daemon of this GPU (else $CUBIEMEM_GPU, or the only one)\n"
         "      --json          print JSON\n"
         "      --timeout S     seconds to wait for an answer, or for drain (10)\n"
         "  -h, --help          this text\n"
         "  -V, --version       the tool's version\n\n"
         "Exit status: 0 done, 2 wrong usage, 3 no daemon, 4 not permitted, 5 not found,\n"
         "6 no memory or quota, 7 another protocol version, 1 anything else.");
}

/* Read options up to the first argument ("+...", no verb yet) or all of them. Returns
 * -1, or an exit status: the program is done. */
static int options_parse(struct ctl *ctl, const struct verb *verb, int argc, char **argv,
                         const char *letters)
{
    int option;

    while ((option = getopt_long(argc, argv, letters, options, NULL)) != -1) {
        switch (option) {
        case 's':
            ctl->socket = optarg;
            break;
        case 'g':
            ctl->gpu = optarg;
            break;
        case OPTION_JSON:
            ctl->json = true;
            break;
        case OPTION_NAME:
            ctl->limit_name = optarg;
            break;
        case OPTION_UID:
            ctl->limit_uid = optarg;
            break;
        case OPTION_GID:
            ctl->limit_gid = optarg;
            break;
        case OPTION_DAEMON:
            ctl->limit_daemon = true;
            break;
        case OPTION_KILL:
            ctl->kill = true;
            break;
        case OPTION_OFF:
            ctl->off = true;
            break;
        case OPTION_TIMEOUT:
            if (!ctl_parse_seconds(optarg, &ctl->timeout_ns)) {
                return ctl_fail(CTL_USAGE,
                                "--timeout %s: seconds above 0, at most 86400, are wanted", optarg);
            }
            break;
        case 'h':
            if (verb) {
                verb_print(verb);
            } else {
                usage_print();
            }
            return CTL_OK;
        case 'V':
            puts("cubiememctl " CUBIEMEM_VERSION_STRING);
            return CTL_OK;
        default:
            return CTL_USAGE; /* getopt has said why */
        }
    }
    return -1;
}

static const struct verb *verb_find(const char *name)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    return NULL;
}

/* A verb with options of its own; a --json before it becomes its own. */
static int run_alone(const struct verb *verb, bool json, int argc, char **argv)
{
    static char json_option[] = "--json";
    char **arguments = calloc((size_t)argc + 2, sizeof(*arguments));
    int n = 0;

    if (!arguments) {
        return ctl_fail(CTL_FAILED, "out of memory");
    }
    arguments[n++] = argv[0];
    if (json) {
        arguments[n++] = json_option;
    }
    memcpy(arguments + n, argv + 1, (size_t)(argc - 1) * sizeof(*argv));
    optind = 0; /* getopt starts afresh */
    int result = verb->run_alone(n + argc - 1, arguments);
    free(arguments);
    return result;
}

static int run(struct ctl *ctl, const struct verb *verb, int argc, char **argv)
{
    if (verb->run_alone) {
        return run_alone(verb, ctl->json, argc, argv);
    }
    optind = 0;
    int done = options_parse(ctl, verb, argc, argv, "s:g:hV");
    if (done >= 0) {
        return done;
    }
    argc -= optind - 1;
    argv += optind - 1; /* getopt has moved the arguments behind the options */
    if (argc - 1 != verb->n_arguments) {
        return ctl_fail(CTL_USAGE, "usage: cubiememctl %s%s%s", verb->name,
                        *verb->arguments ? " " : "", verb->arguments);
    }
    if (verb->run != cmd_set_limit &&
        (ctl->limit_name || ctl->limit_uid || ctl->limit_gid || ctl->limit_daemon)) {
        return ctl_fail(CTL_USAGE, "--name, --uid, --gid and --daemon belong to set-limit");
    }
    if ((ctl->kill && verb->run != cmd_kick) || (ctl->off && verb->run != cmd_drain)) {
        return ctl_fail(CTL_USAGE, "--kill belongs to kick, --off to drain");
    }
    return verb->run(ctl, argc, argv);
}

static struct listing_style style_choose(void)
{
    const char *no_colour = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    struct listing_style style = {0};
    struct winsize size;

    if (isatty(STDOUT_FILENO) == 1) {
        bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
        style.width = known ? size.ws_col : 80;
        style.colour = !(no_colour && *no_colour) && terminal && strcmp(terminal, "dumb") != 0;
    }
    return style;
}

int main(int argc, char **argv)
{
    struct ctl ctl = {.timeout_ns = DEFAULT_TIMEOUT_NS, .style = style_choose()};
    int result = options_parse(&ctl, NULL, argc, argv, "+s:g:hV");

    if (result < 0 && optind == argc) {
        result = ctl_fail(CTL_USAGE, "a verb is missing; see cubiememctl --help");
    }
    if (result < 0) {
        const struct verb *verb = verb_find(argv[optind]);
        result =
            verb ? run(&ctl, verb, argc - optind, argv + optind)
                 : ctl_fail(CTL_USAGE, "%s: no such verb; see cubiememctl --help", argv[optind]);
    }
    if (fflush(stdout) != 0 && result == CTL_OK) {
        result = ctl_fail(CTL_FAILED, "cannot write the result");
    }
    return result;
}
