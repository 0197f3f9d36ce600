/*
 * groups - stream groups: which instances are queued and cut together
 *
 * Collected out of the clients' instances by the rule that makes a group: its name
 * within a client or, of a shared one, its name within a user.
 */
#include "ctl.h"
#include "document.h"

#include <string.h>

static bool is_in_group(const json_t *group, const json_t *client, const json_t *instance)
{
    bool shared = json_is_true(json_object_get(instance, "shared"));
    const char *scope = shared ? "uid" : "id";

    return shared == json_is_true(json_object_get(group, "shared")) &&
           strcmp(document_text(group, "name", ""), document_text(instance, "group", "")) == 0 &&
           document_integer(group, shared ? "uid" : "client") == document_integer(client, scope);
}

/* The group of an instance in the list, which is made if need be. */
static json_t *group_find(json_t *groups, const json_t *client, const json_t *instance)
{
    bool shared = json_is_true(json_object_get(instance, "shared"));
    json_t *group;
    size_t i;

    json_array_foreach(groups, i, group)
    {
        if (is_in_group(group, client, instance)) {
            return group;
        }
    }
    group = json_pack("{s:s, s:b, s:I, s:[], s:i, s:i}", "name",
                      document_text(instance, "group", ""), "shared", shared,
                      shared ? "uid" : "client", document_integer(client, shared ? "uid" : "id"),
                      "instances", "cap_bytes", 0, "allocated_bytes", 0);
    if (group && shared) {
        json_object_set_new(group, "user", json_string(document_text(client, "user", "?")));
    }
    return json_array_append_new(groups, group) == 0 ? group : NULL;
}

static bool sum_add(json_t *group, const char *key, const json_t *instance)
{
    json_int_t sum;

    if (__builtin_add_overflow(document_integer(group, key), document_integer(instance, key),
                               &sum)) {
        sum = INT64_MAX;
    }
    return json_object_set_new(group, key, json_integer(sum)) == 0;
}

json_t *groups_collect(const json_t *document)
{
    json_t *groups = json_array();
    const json_t *client, *instance;
    size_t i, j;

    json_array_foreach(document_array(document, "clients"), i, client)
    {
        json_array_foreach(document_array(client, "instances"), j, instance)
        {
            json_t *group = group_find(groups, client, instance);
            json_t *member = json_sprintf("%" JSON_INTEGER_FORMAT "/%s",
                                          document_integer(client, "id"),
                                          document_text(instance, "name", "-"));
            if (json_array_append_new(json_object_get(group, "instances"), member) < 0 ||
                !sum_add(group, "cap_bytes", instance) ||
                !sum_add(group, "allocated_bytes", instance)) {
                json_decref(groups);
                return NULL;
            }
        }
    }
    return groups;
}

/* "3/a, 3/b and 17 more" */
static void members_add(struct listing *listing, const json_t *members)
{
    size_t n = json_array_size(members);
    const char *first = n > 0 ? json_string_value(json_array_get(members, 0)) : "-";

    if (n == 1 || n == 0) {
        listing_add(listing, first);
    } else if (n == 2) {
        listing_addf(listing, "%s, %s", first, json_string_value(json_array_get(members, 1)));
    } else {
        listing_addf(listing, "%s, %s and %zu more", first,
                   json_string_value(json_array_get(members, 1)), n - 2);
    }
}

void groups_print(const json_t *groups, const struct listing_style *style, FILE *out)
{
    static const struct listing_column columns[] = {
        {"GROUP", .shrink = true}, {"OF", .shrink = true},  {"INSTANCES", .shrink = true},
        {"HELD", .right = true},   {"CAP", .right = true},
    };
    struct listing *listing = listing_create(columns, sizeof(columns) / sizeof(columns[0]));
    const json_t *group;
    size_t i;

    json_array_foreach(groups, i, group)
    {
        document_add_text(listing, group, "name");
        if (json_is_true(json_object_get(group, "shared"))) {
            listing_addf(listing, "user %s", document_text(group, "user", "?"));
        } else {
            listing_addf(listing, "client %" JSON_INTEGER_FORMAT, document_integer(group, "client"));
        }
        members_add(listing, json_object_get(group, "instances"));
        document_add_size(listing, group, "allocated_bytes");
        document_add_size(listing, group, "cap_bytes");
    }
    if (listing_rows(listing) > 0) {
        listing_print(listing, style, out);
    } else {
        fputs("no groups\n", out);
    }
    listing_destroy(listing);
}

int cmd_groups(const struct ctl *ctl, int argc, char **argv)
{
    json_t *document;
    int result = ctl_status(ctl, &document);

    (void)argc;
    (void)argv;
    if (result != CTL_OK) {
        return result;
    }
    json_t *groups = groups_collect(document);
    if (ctl->json) {
        result = ctl_print_json(json_pack("{s:O?, s:o}", "schema_version",
                                          json_object_get(document, "schema_version"), "groups",
                                          groups));
    } else {
        groups_print(groups, &ctl->style, stdout);
        json_decref(groups);
    }
    json_decref(document);
    return result;
}
