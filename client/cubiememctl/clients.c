/*
 * clients - who is connected, what each holds and does
 *
 * One line a client. The id is what other verbs take; a pid that the daemon does
 * not know (another PID namespace) is shown as '?'.
 */
#include "ctl.h"
#include "document.h"

void clients_print(const json_t *document, const struct listing_style *style, FILE *out)
{
    static const struct listing_column columns[] = {
        {"ID", .right = true},     {"CLIENT", .shrink = true}, {"PID", .right = true},
        {"USER", .shrink = true},  {"HELD", .right = true},    {"CAP", .right = true},
        {"ARRAYS", .right = true}, {"CHUNKS", .right = true},  {"STATE"},
    };
    struct listing *listing = listing_create(columns, sizeof(columns) / sizeof(columns[0]));
    const json_t *client;
    size_t i;

    json_array_foreach(document_array(document, "clients"), i, client)
    {
        document_add_integer(listing, client, "id");
        document_add_text(listing, client, "name");
        document_add_integer(listing, client, "pid");
        if (json_is_string(json_object_get(client, "user"))) {
            document_add_text(listing, client, "user");
        } else {
            document_add_integer(listing, client, "uid");
        }
        document_add_size(listing, client, "held_bytes");
        document_add_size(listing, client, "cap_bytes");
        document_add_integer(listing, client, "arrays");
        document_add_integer(listing, client, "chunks");
        document_add_text(listing, client, "state");
    }
    if (listing_rows(listing) > 0) {
        listing_print(listing, style, out);
    } else {
        fputs("no clients\n", out);
    }
    listing_destroy(listing);
}

int cmd_clients(const struct ctl *ctl, int argc, char **argv)
{
    json_t *document;
    int result = ctl_status(ctl, &document);

    (void)argc;
    (void)argv;
    if (result != CTL_OK) {
        return result;
    }
    if (ctl->json) {
        result = ctl_print_json(json_pack("{s:O?, s:O?}", "schema_version",
                                          json_object_get(document, "schema_version"), "clients",
                                          json_object_get(document, "clients")));
    } else {
        clients_print(document, &ctl->style, stdout);
    }
    json_decref(document);
    return result;
}
