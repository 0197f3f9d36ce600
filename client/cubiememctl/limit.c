/*
 * limit - ceilings over a client name, a uid, a gid or the whole daemon
 *
 *     set-limit --name sim 16GiB     set-limit --uid 1000 50%
 *     set-limit --daemon 80%         set-limit --gid 100 none
 *
 * Whether a ceiling makes sense, and who is over it now, the daemon decides.
 */
#include "limit.h"

#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "document.h"

/* Exactly one of the four says whose ceiling it is. */
static int target_set(const struct ctl *ctl, Cubiemem__SetLimit *limit)
{
    int n = !!ctl->limit_name + !!ctl->limit_uid + !!ctl->limit_gid + ctl->limit_daemon;

    if (n != 1) {
        return ctl_fail(CTL_USAGE, "set-limit: say whose: --name N, --uid U, --gid G or --daemon");
    }
    if (ctl->limit_uid && !ctl_parse_id(ctl->limit_uid, &limit->uid)) {
        return ctl_fail(CTL_USAGE, "--uid %s: a number is wanted", ctl->limit_uid);
    }
    if (ctl->limit_gid && !ctl_parse_id(ctl->limit_gid, &limit->gid)) {
        return ctl_fail(CTL_USAGE, "--gid %s: a number is wanted", ctl->limit_gid);
    }
    limit->name = (char *)ctl->limit_name;
    limit->has_uid = ctl->limit_uid != NULL;
    limit->has_gid = ctl->limit_gid != NULL;
    limit->has_daemon = ctl->limit_daemon;
    limit->daemon = ctl->limit_daemon;
    return CTL_OK;
}

/* "80%"; false if it is no percentage from 0 to 100. */
static bool percent_parse(const char *text, double *percent_p)
{
    char digits[32];
    size_t size = strlen(text);

    if (size < 2 || size > sizeof(digits) || text[size - 1] != '%') {
        return false;
    }
    memcpy(digits, text, size - 1);
    digits[size - 1] = '\0';
    return ctl_parse_number(digits, 0, 100, percent_p);
}

static int value_set(const char *text, Cubiemem__SetLimit *limit)
{
    if (strcmp(text, "none") == 0) {
        limit->has_none = true;
        limit->none = true;
    } else if (percent_parse(text, &limit->percent)) {
        limit->has_percent = true;
    } else if (size_parse(text, &limit->size)) {
        limit->has_size = true;
    } else {
        return ctl_fail(CTL_USAGE,
                        "%s: a size (16GiB, 500MB), a percentage (80%%) or none is wanted", text);
    }
    return CTL_OK;
}

int limits_reply_print(const struct ctl *ctl, const char *what, const Cubiemem__LimitsReply *limits)
{
    if (!limits) {
        return ctl_fail(CTL_FAILED, "the daemon answered without a revision of the limits");
    }
    if (ctl->json) {
        json_t *over = json_array();
        for (size_t i = 0; i < limits->n_over; i++) {
            json_array_append_new(over, json_string(limits->over[i]));
        }
        return ctl_print_json(json_pack("{s:I, s:b, s:o}", "limits_revision",
                                        (json_int_t)limits->revision, "applied",
                                        limits->n_over == 0, "over", over));
    }
    printf("%s: limits revision %ju, %s\n", what, (uintmax_t)limits->revision,
           limits->n_over == 0 ? "applied at once" : "over it now:");
    for (size_t i = 0; i < limits->n_over; i++) {
        char *line = text_printable(limits->over[i]);
        printf("  %s\n", line);
        free(line);
    }
    return CTL_OK;
}

int cmd_set_limit(const struct ctl *ctl, int argc, char **argv)
{
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    Cubiemem__SetLimit limit = CUBIEMEM__SET_LIMIT__INIT;
    Cubiemem__DaemonMessage *reply;

    (void)argc;
    int result = target_set(ctl, &limit);
    if (result == CTL_OK) {
        result = value_set(argv[1], &limit);
    }
    message.set_limit = &limit;
    if (result == CTL_OK) {
        result = ctl_request(ctl, &message, &reply);
    }
    if (result != CTL_OK) {
        return result;
    }
    result = limits_reply_print(ctl, "limit set", reply->limits);
    client_reply_free(reply);
    return result;
}

/* "uid 1000", "gid 100", "name x of uid 1000" */
static void whose_add(struct listing *listing, const json_t *limit)
{
    const char *kind = document_text(limit, "kind", "-");
    const char *name = document_text(limit, "name", NULL);

    if (name) {
        listing_addf(listing, "%s %s of uid %" JSON_INTEGER_FORMAT, kind, name,
                     document_integer(limit, "uid"));
    } else {
        listing_addf(listing, "%s %" JSON_INTEGER_FORMAT, kind, document_integer(limit, "id"));
    }
}

void limits_print(const json_t *document, const struct listing_style *style, FILE *out)
{
    static const struct listing_column columns[] = {
        {"CEILING OF", .shrink = true},
        {"LIMIT", .right = true},
        {"HELD", .right = true},
        {""},
    };
    struct listing *listing = listing_create(columns, sizeof(columns) / sizeof(columns[0]));
    const json_t *limit;
    size_t i;

    json_array_foreach(document_array(document, "limits"), i, limit)
    {
        whose_add(listing, limit);
        document_add_size(listing, limit, "limit_bytes");
        document_add_size(listing, limit, "used_bytes");
        listing_add(listing, json_is_true(json_object_get(limit, "over")) ? "over its limit" : "");
    }
    listing_print(listing, style, out);
    listing_destroy(listing);
}
