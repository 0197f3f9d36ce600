/*
 * version - of the tool, and of the daemon if one answers
 *
 * That no daemon answers is no failure here: the tool's own version is known.
 */
#include "ctl.h"

#include <stdlib.h>

/* daemon is NULL where none could be asked; stderr has said why */
static int version_print(const struct ctl *ctl, const char *daemon)
{
    if (ctl->json) {
        return ctl_print_json(
            json_pack("{s:s, s:s?}", "cubiememctl", CUBIEMEM_VERSION_STRING, "cubiememd", daemon));
    }
    char *printable = text_printable(daemon ? daemon : "unknown");
    printf("cubiememctl %s\ncubiememd %s\n", CUBIEMEM_VERSION_STRING, printable);
    free(printable);
    return CTL_OK;
}

int cmd_version(const struct ctl *ctl, int argc, char **argv)
{
    struct cubiemem_client *client = NULL;
    int result = ctl_open(ctl, &client);
    const char *daemon = client != NULL ? client_daemon_version(client) : NULL;

    (void)argc;
    (void)argv;
    result = result == CTL_DISCONNECTED ? CTL_OK : result;
    int printed = version_print(ctl, daemon);
    if (client) {
        cubiemem_close(client);
    }
    return printed == CTL_OK ? result : printed;
}
