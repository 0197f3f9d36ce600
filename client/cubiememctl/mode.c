/* mode - set-mode active|passive: are caps kept, or only physical limits? */
#include "limit.h"

#include <string.h>

int cmd_set_mode(const struct ctl *ctl, int argc, char **argv)
{
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    Cubiemem__SetMode mode = CUBIEMEM__SET_MODE__INIT;
    Cubiemem__DaemonMessage *reply;

    (void)argc;
    if (strcmp(argv[1], "active") != 0 && strcmp(argv[1], "passive") != 0) {
        return ctl_fail(CTL_USAGE, "set-mode %s: active or passive is wanted", argv[1]);
    }
    mode.mode = argv[1];
    message.set_mode = &mode;
    int result = ctl_request(ctl, &message, &reply);
    if (result != CTL_OK) {
        return result;
    }
    result = limits_reply_print(ctl, argv[1], reply->limits);
    client_reply_free(reply);
    return result;
}
