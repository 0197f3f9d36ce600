/*
 * status - the device, its books, and who is on it, on one page
 *
 * The whole document with --json, as it came; for people the books of the device
 * as a table with shares of the budget, the ceilings if there are any, the clients
 * and their instances.
 */
#include "ctl.h"
#include "document.h"

#include <stdlib.h>

/* "label  text" with the text made printable. */
static void line_print(const char *label, const char *text, FILE *out)
{
    char *printable = text_printable(text);

    fprintf(out, "%-8s %s\n", label, printable);
    free(printable);
}

static void head_print(const json_t *document, FILE *out)
{
    const json_t *device = json_object_get(document, "device");
    const json_t *daemon = json_object_get(document, "daemon");
    const char *state = document_text(daemon, "state", "-");
    char text[512];

    snprintf(text, sizeof(text), "%s%s, %s", document_text(device, "name", "-"),
             json_is_true(json_object_get(device, "simulated")) ? " (simulated)" : "",
             document_text(device, "uuid", "-"));
    line_print("device", text, out);
    snprintf(text, sizeof(text),
             "cubiememd %s, pid %" JSON_INTEGER_FORMAT ", mode %s, limits revision "
             "%" JSON_INTEGER_FORMAT ", %s",
             document_text(daemon, "version", "-"), document_integer(daemon, "pid"),
             document_text(daemon, "mode", "-"), document_integer(daemon, "limits_revision"),
             state);
    line_print("daemon", text, out);
}

static void share_add(struct listing *listing, const json_t *document, const char *key)
{
    json_int_t budget = document_integer(document, "budget_bytes");
    const json_t *field = json_object_get(document, key);

    if (budget > 0 && json_is_integer(field)) {
        double share = (double)json_integer_value(field) / (double)budget;
        listing_addf(listing, "%.1f %%", 100 * share);
    } else {
        listing_add(listing, "-");
    }
}

static void books_print(const json_t *document, const struct listing_style *style, FILE *out)
{
    static const struct listing_column columns[] = {
        {"MEMORY"},
        {"SIZE", .right = true},
        {"OF BUDGET", .right = true},
        {""},
    };
    static const struct {
        const char *key, *name, *meaning;
    } rows[] = {
        {"budget_bytes", "budget", "what the daemon may hand out"},
        {"reserve_bytes", "reserve", "of the device, kept from everybody"},
        {"lent_bytes", "lent", "held by clients"},
        {"cached_bytes", "cached", "given back, ready to be lent again"},
        {"draining_bytes", "draining", "of the dead, until the driver has it back"},
        {"promised_bytes", "promised", "to requests under way"},
        {"others_bytes", "others", "programs that are not ours, and contexts"},
        {"allowance_bytes", "allowance", "kept for contexts that are to come"},
        {"free_bytes", "free", "what a request could get now"},
    };
    struct listing *listing = listing_create(columns, sizeof(columns) / sizeof(columns[0]));

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        listing_add(listing, rows[i].name);
        document_add_size(listing, document, rows[i].key);
        share_add(listing, document, rows[i].key);
        listing_add(listing, rows[i].meaning);
    }
    listing_print(listing, style, out);
    listing_destroy(listing);
}

void status_print(const json_t *document, const struct listing_style *style, FILE *out)
{
    const json_t *client;
    size_t n_instances = 0;
    size_t i;

    head_print(document, out);
    fputc('\n', out);
    books_print(document, style, out);
    fputc('\n', out);
    if (json_array_size(document_array(document, "limits")) > 0) {
        limits_print(document, style, out);
        fputc('\n', out);
    }
    clients_print(document, style, out);
    waiting_print(document, style, out);
    json_array_foreach(document_array(document, "clients"), i, client)
    {
        n_instances += json_array_size(document_array(client, "instances"));
    }
    if (n_instances > 0) {
        fputc('\n', out);
        instances_print(document, style, out);
    }
}

int cmd_status(const struct ctl *ctl, int argc, char **argv)
{
    json_t *document;
    int result = ctl_status(ctl, &document);

    (void)argc;
    (void)argv;
    if (result != CTL_OK) {
        return result;
    }
    if (ctl->json) {
        return ctl_print_json(document);
    }
    status_print(document, &ctl->style, stdout);
    json_decref(document);
    return CTL_OK;
}
