/*
 * main - from the command line to a running server
 */
#include <stdio.h>
#include <stdlib.h>

#include "cubiemem.h"
#include "exit_status.h"
#include "legacy.h"
#include "log.h"
#include "options.h"
#include "server.h"

int main(int argc, char **argv)
{
    if (legacy_is_helper(argc, argv)) {
        return legacy_helper_main(argc, argv);
    }
    char why[512] = "";
    struct options options;
    int status = options_parse(argc, argv, &options, why, sizeof(why));
    if (status != EXIT_STATUS_OK) {
        fprintf(stderr, "cubiememd: %s\n", why);
        return status;
    }
    if (options.help) {
        char *help = options_help();
        fputs(help != NULL ? help : "", stdout);
        free(help);
        return EXIT_STATUS_OK;
    }
    if (options.version) {
        printf("cubiememd %s\n", CUBIEMEM_VERSION_STRING);
        return EXIT_STATUS_OK;
    }
    log_open(options.log_level);
    struct server *server;
    status = server_create(&options, &server, why, sizeof(why));
    if (status != EXIT_STATUS_OK) {
        log_error("%s", why);
        return status;
    }
    server_run(server);
    server_destroy(server);
    return EXIT_STATUS_OK;
}
