/*
 * groups - stream groups: which instances are queued and cut together
 *
 * A group is known by its name within a client or, if it is shared, within a user.
 * Held and cap are the sums of its members', by which a batch is measured.
 */
#include "checked.h"
#include "ctl.h"
#include "document.h"

/* "3/a, 3/b and 17 more" */
static void members_add(struct listing *listing, const json_t *members)
{
    size_t n = json_array_size(members);
    const json_t *first = json_array_get(members, 0);
    const json_t *second = json_array_get(members, 1);
    json_int_t client = document_integer(first, "client");
    const char *name = document_text(first, "instance", "-");

    if (n == 0) {
        listing_add(listing, "-");
    } else if (n == 1) {
        listing_addf(listing, "%" JSON_INTEGER_FORMAT "/%s", client, name);
    } else {
        char more[40] = "";
        if (n > 2) {
            snprintf(more, sizeof(more), " and %zu more", n - 2);
        }
        listing_addf(listing, "%" JSON_INTEGER_FORMAT "/%s, %" JSON_INTEGER_FORMAT "/%s%s", client,
                     name, document_integer(second, "client"),
                     document_text(second, "instance", "-"), more);
    }
}

static void sum_add(struct listing *listing, const json_t *members, const char *key)
{
    char buffer[SIZE_TEXT_MAX];
    const json_t *member;
    uint64_t sum = 0;
    size_t i;

    json_array_foreach(members, i, member)
    {
        json_int_t size = document_integer(member, key);
        if (size > 0 && !checked_add(sum, (uint64_t)size, &sum)) {
            sum = UINT64_MAX;
        }
    }
    listing_add(listing, size_format(sum, buffer));
}

void groups_print(const json_t *document, const struct listing_style *style, FILE *out)
{
    static const struct listing_column columns[] = {
        {"GROUP", .shrink = true}, {"OF", .shrink = true}, {"INSTANCES", .shrink = true},
        {"HELD", .right = true},   {"CAP", .right = true},
    };
    struct listing *listing = listing_create(columns, sizeof(columns) / sizeof(columns[0]));
    const json_t *group;
    size_t i;

    json_array_foreach(document_array(document, "groups"), i, group)
    {
        const json_t *members = document_array(group, "members");
        bool shared = json_is_true(json_object_get(group, "shared"));
        document_add_text(listing, group, "name");
        listing_addf(listing, "%s %" JSON_INTEGER_FORMAT, shared ? "uid" : "client",
                     document_integer(group, shared ? "uid" : "client"));
        members_add(listing, members);
        sum_add(listing, members, "allocated_bytes");
        sum_add(listing, members, "cap_bytes");
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
    if (ctl->json) {
        result = ctl_print_json(json_pack("{s:O?, s:O?}", "schema_version",
                                          json_object_get(document, "schema_version"), "groups",
                                          json_object_get(document, "groups")));
    } else {
        groups_print(document, &ctl->style, stdout);
    }
    json_decref(document);
    return result;
}
