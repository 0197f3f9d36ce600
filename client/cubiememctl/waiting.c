/*
 * waiting - who waits for device memory, in the order in which they will be served
 *
 * HOLDERS are the ids of the clients that hold what the first one waits for: one that
 * waits and is among the holders of another who waits makes a circle.
 */
#include "ctl.h"
#include "document.h"

#include <string.h>

/* "3, 5, 7" */
static void holders_add(struct listing *listing, const json_t *waiting)
{
    char text[256] = "";
    const json_t *holder;
    size_t i;

    json_array_foreach(document_array(waiting, "holders"), i, holder)
    {
        size_t length = strlen(text);
        snprintf(text + length, sizeof(text) - length, "%s%" JSON_INTEGER_FORMAT,
                 i > 0 ? ", " : "", json_integer_value(holder));
    }
    listing_add(listing, text[0] != '\0' ? text : "-");
}

void waiting_print(const json_t *document, const struct listing_style *style, FILE *out)
{
    static const struct listing_column columns[] = {
        {"WAITING", .right = true}, {"INSTANCE", .shrink = true}, {"ASKED", .right = true},
        {"CHUNKS", .right = true},  {"SINCE", .right = true},     {"HOLDERS", .shrink = true},
        {"REASON", .shrink = true},
    };
    struct listing *listing = listing_create(columns, sizeof(columns) / sizeof(columns[0]));
    const json_t *waiting;
    size_t i;

    json_array_foreach(document_array(document, "waiting"), i, waiting)
    {
        document_add_integer(listing, waiting, "position");
        listing_addf(listing, "%" JSON_INTEGER_FORMAT "/%s", document_integer(waiting, "client"),
                     document_text(waiting, "instance", "-"));
        document_add_size(listing, waiting, "asked_bytes");
        document_add_integer(listing, waiting, "max_chunks");
        listing_addf(listing, "%.1f s", (double)document_integer(waiting, "since_ms") / 1000);
        holders_add(listing, waiting);
        document_add_text(listing, waiting, "reason");
    }
    if (listing_rows(listing) > 0) {
        fputc('\n', out);
        listing_print(listing, style, out);
    }
    listing_destroy(listing);
}
