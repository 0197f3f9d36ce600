/*
 * client_name - naming a client, and saying what is about to happen to it
 *
 * The announcement goes to stderr: stdout has the result only.
 */
#include "client_name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "ctl.h"
#include "document.h"

bool client_name_parse(char *text, struct client_name *name_p)
{
    char *slash = strchr(text, '/');
    size_t digits = strspn(text, "0123456789");

    errno = 0;
    uint64_t id = strtoull(text, NULL, 10);
    if (digits == 0 || errno != 0 || (slash ? slash != text + digits : text[digits] != '\0') ||
        (slash && slash[1] == '\0')) {
        return false;
    }
    *name_p = (struct client_name){true, id, slash ? slash + 1 : NULL};
    return true;
}

const json_t *client_find(const json_t *document, uint64_t id)
{
    const json_t *client;
    size_t i;

    json_array_foreach(document_array(document, "clients"), i, client)
    {
        if ((uint64_t)document_integer(client, "id") == id) {
            return client;
        }
    }
    return NULL;
}

void client_announce(const char *what, const json_t *client)
{
    const json_t *pid = json_object_get(client, "pid");
    json_int_t held = document_integer(client, "held_bytes");
    char size[SIZE_TEXT_MAX], number[24] = "?";
    char *name = text_printable(document_text(client, "name", "-"));
    size_t n = json_array_size(document_array(client, "instances"));

    if (json_is_integer(pid)) {
        snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(pid));
    }
    fprintf(stderr,
            "%s client %" JSON_INTEGER_FORMAT " (%s, pid %s, user %s): it holds %s in %zu "
            "instance%s\n",
            what, document_integer(client, "id"), name, number, document_text(client, "user", "?"),
            size_format((uint64_t)held, size), n, n == 1 ? "" : "s");
    free(name);
}
