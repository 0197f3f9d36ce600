/*
 * version - of the tool, and of the daemon if one answers
 *
 * That no daemon answers is no failure here: the tool's own version is known.
 */
#include "ctl.h"
#include "document.h"

#include <stdlib.h>

int cmd_version(const struct ctl *ctl, int argc, char **argv)
{
    json_t *document = NULL;
    int result = ctl_status(ctl, &document);
    const char *daemon =
        document_text(json_object_get(document, "daemon"), "version", NULL);

    (void)argc;
    (void)argv;
    if (ctl->json) {
        /* a daemon that cannot be asked is null; stderr has said why */
        result = ctl_print_json(json_pack("{s:s, s:s?}", "cubiememctl", CUBIEMEM_VERSION_STRING,
                                          "cubiememd", daemon));
    } else {
        char *printable = text_printable(daemon ? daemon : "not asked");
        printf("cubiememctl %s\ncubiememd %s\n", CUBIEMEM_VERSION_STRING, printable);
        free(printable);
        result = result == CTL_DISCONNECTED ? CTL_OK : result;
    }
    json_decref(document);
    return result;
}
