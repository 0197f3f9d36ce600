/*
 * proportion - set-proportion INSTANCE P|auto: somebody's share of the budget
 *
 * INSTANCE is ID/NAME, as `instances` shows it, or a NAME that only one client
 * has; which of them it is the daemon finds out, and lists them where the name is
 * not enough.
 */
#include "client_name.h"
#include "limit.h"

#include <stdlib.h>
#include <string.h>

#include "checked.h"

/* "3/solver" or "solver". What stands before the first '/' is an id if it is a
 * number. */
static struct client_name instance_name_parse(char *text)
{
    struct client_name instance = {.instance = text};

    if (strchr(text, '/') && client_name_parse(text, &instance)) {
        return instance;
    }
    return (struct client_name){.instance = text};
}

static void warnings_print(uint32_t warnings)
{
#define PRINT_WARNING(name, bit, text)                                                             \
    if (warnings & (bit)) {                                                                        \
        puts("warning: " text);                                                                    \
    }
    CUBIEMEM_WARNING_MAP(PRINT_WARNING)
#undef PRINT_WARNING
}

/* The quota as it is now, and the revision if the daemon tells it. */
static int reply_print(const struct ctl *ctl, const char *name,
                       const Cubiemem__DaemonMessage *reply)
{
    const Cubiemem__InstanceReply *instance = reply->instance;
    char buffer[SIZE_TEXT_MAX];

    if (!instance) {
        return ctl_fail(CTL_FAILED, "the daemon answered without the instance");
    }
    if (ctl->json) {
        json_t *revision = reply->limits ? json_integer((json_int_t)reply->limits->revision) : NULL;
        return ctl_print_json(
            json_pack("{s:s, s:s, s:f, s:I, s:I, s:o?, s:o}", "instance", name, "pool",
                      instance->manual ? "manual" : "auto", "proportion", instance->proportion,
                      "cap_bytes", (json_int_t)instance->cap, "allocated_bytes",
                      (json_int_t)instance->allocated, "limits_revision", revision, "warnings",
                      json_integer(reply->result ? reply->result->warnings : 0)));
    }
    char *printable = text_printable(name);
    printf("%s: %s %.4g %%, cap %s", printable, instance->manual ? "manual" : "auto",
           instance->proportion * 100, size_format(instance->cap, buffer));
    printf(", held %s%s\n", size_format(instance->allocated, buffer),
           instance->allocated > instance->cap ? " (over its cap)" : "");
    free(printable);
    warnings_print(reply->result ? reply->result->warnings : 0);
    return reply->limits ? limits_reply_print(ctl, "proportion set", reply->limits) : CTL_OK;
}

int cmd_set_proportion(const struct ctl *ctl, int argc, char **argv)
{
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    Cubiemem__SetProportion manual = CUBIEMEM__SET_PROPORTION__INIT;
    Cubiemem__SetAuto automatic = CUBIEMEM__SET_AUTO__INIT;
    struct client_name instance = instance_name_parse(argv[1]);
    Cubiemem__DaemonMessage *reply;

    (void)argc;
    if (*instance.instance == '\0') {
        return ctl_fail(CTL_USAGE, "set-proportion '%s': an instance is ID/NAME or NAME", argv[1]);
    }
    if (strcmp(argv[2], "auto") == 0) {
        automatic.has_client_id = instance.has_client;
        automatic.client_id = instance.client;
        automatic.instance_name = instance.instance;
        message.set_auto = &automatic;
    } else if (ctl_parse_number(argv[2], 0, 1, &manual.proportion)) {
        manual.has_proportion = true;
        manual.has_client_id = instance.has_client;
        manual.client_id = instance.client;
        manual.instance_name = instance.instance;
        message.set_proportion = &manual;
    } else {
        return ctl_fail(CTL_USAGE, "set-proportion %s: a number from 0 to 1 or auto is wanted",
                        argv[2]);
    }
    int result = ctl_request(ctl, &message, &reply);
    if (result != CTL_OK) {
        return result;
    }
    result = reply_print(ctl, argv[1], reply);
    client_reply_free(reply);
    return result;
}
