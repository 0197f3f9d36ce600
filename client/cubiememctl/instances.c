/*
 * instances - the registered holders of arrays of all clients
 *
 * One line an instance, named ID/NAME as set-proportion takes it. The quota column
 * tells a manual proportion from a share of the auto pool.
 */
#include "ctl.h"
#include "document.h"

#include <stdlib.h>
#include <string.h>

static void quota_add(struct listing *listing, const json_t *instance)
{
    const char *pool = document_text(instance, "pool", "-");
    const json_t *proportion = json_object_get(instance, "proportion");

    if (json_is_number(proportion)) {
        listing_addf(listing, "%s %.4g %%", pool, json_number_value(proportion) * 100);
    } else {
        listing_add(listing, pool);
    }
}

/* What its last grant or change of quota warned of, in words. */
static void warnings_add(struct listing *listing, const json_t *instance)
{
    static const struct {
        const char *name, *text;
    } known[] = {
#define KNOWN_WARNING(name, bit, text) {#name, text},
        CUBIEMEM_WARNING_MAP(KNOWN_WARNING)
#undef KNOWN_WARNING
    };
    char line[400] = "";
    size_t length = 0, i;
    const json_t *warning;

    json_array_foreach(document_array(instance, "warnings"), i, warning)
    {
        const char *text = json_is_string(warning) ? json_string_value(warning) : "?";
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
            text = strcmp(text, known[k].name) == 0 ? known[k].text : text;
        }
        if (length < sizeof(line)) {
            length += (size_t)snprintf(line + length, sizeof(line) - length, "%s%s",
                                       length > 0 ? "; " : "", text);
        }
    }
    listing_add(listing, line);
}

static void instance_add(struct listing *listing, const json_t *client, const json_t *instance)
{
    bool shared = json_is_true(json_object_get(instance, "shared"));

    listing_addf(listing, "%" JSON_INTEGER_FORMAT "/%s", document_integer(client, "id"),
                 document_text(instance, "name", "-"));
    listing_addf(listing, "%s%s", document_text(instance, "group", "-"), shared ? " (shared)" : "");
    document_add_text(listing, instance, "owner");
    quota_add(listing, instance);
    document_add_size(listing, instance, "allocated_bytes");
    document_add_size(listing, instance, "cap_bytes");
    warnings_add(listing, instance);
}

void instances_print(const json_t *document, const struct listing_style *style, FILE *out)
{
    static const struct listing_column columns[] = {
        {"INSTANCE", .shrink = true}, {"GROUP", .shrink = true}, {"OWNER", .shrink = true},
        {"QUOTA", .right = true},     {"HELD", .right = true},   {"CAP", .right = true},
        {""},
    };
    struct listing *listing = listing_create(columns, sizeof(columns) / sizeof(columns[0]));
    const json_t *client, *instance;
    size_t i, j;

    json_array_foreach(document_array(document, "clients"), i, client)
    {
        json_array_foreach(document_array(client, "instances"), j, instance)
        {
            instance_add(listing, client, instance);
        }
    }
    if (listing_rows(listing) > 0) {
        listing_print(listing, style, out);
    } else {
        fputs("no instances\n", out);
    }
    listing_destroy(listing);
}

/* Every instance with its client's id. NULL when memory is short. */
static json_t *instances_collect(const json_t *document)
{
    json_t *list = json_array();
    const json_t *client;
    json_t *instance;
    size_t i, j;

    json_array_foreach(document_array(document, "clients"), i, client)
    {
        json_array_foreach(document_array(client, "instances"), j, instance)
        {
            json_t *copy = json_pack("{s:O?}", "client", json_object_get(client, "id"));
            if (json_object_update(copy, instance) < 0 || json_array_append(list, copy) < 0) {
                json_decref(copy);
                json_decref(list);
                return NULL;
            }
            json_decref(copy);
        }
    }
    return list;
}

int cmd_instances(const struct ctl *ctl, int argc, char **argv)
{
    json_t *document;
    int result = ctl_status(ctl, &document);

    (void)argc;
    (void)argv;
    if (result != CTL_OK) {
        return result;
    }
    if (ctl->json) {
        result = ctl_print_json(json_pack("{s:O?, s:o}", "schema_version",
                                          json_object_get(document, "schema_version"), "instances",
                                          instances_collect(document)));
    } else {
        instances_print(document, &ctl->style, stdout);
    }
    json_decref(document);
    return result;
}
