/*
 * client_name - how people name a client or an instance: ID, ID/NAME or NAME
 */
#ifndef CTL_CLIENT_NAME_H
#define CTL_CLIENT_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

struct client_name {
    bool has_client;
    uint64_t client;
    char *instance; /* NULL: none; in the text that was read */
};

/* "3": a client. "3/solver": its instance. False for anything else. */
bool client_name_parse(char *text, struct client_name *name_p);

/* The client of this id in a status document, or NULL. */
const json_t *client_find(const json_t *document, uint64_t id);

/* "client 3 (pkfit, pid 4711, user ann) holds 2 MiB in 3 arrays of 1 instances" on
 * stderr, in front of it what is about to be done. */
void client_announce(const char *what, const json_t *client);

#endif
