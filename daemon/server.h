/*
 * server - the running daemon: set up, accept, shut down
 */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include "daemon.h"
#include "listener.h"
#include "options.h"

struct server {
    struct daemon daemon;
    struct listener listener;
};

/*
 * Everything from the options to a listening socket with the device up.
 * Return: EXIT_STATUS_OK; otherwise why has one line and nothing is left.
 */
int server_create(const struct options *options, struct server **server_p, char *why,
                  size_t why_size);
/* Serves until SIGTERM, SIGINT or daemon_shut_down(). */
void server_run(struct server *server);
void server_destroy(struct server *server);

#endif
