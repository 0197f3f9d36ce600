/* ping - is the daemon there, and how long does a round trip take? */
#include "ctl.h"

#include <time.h>

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int cmd_ping(const struct ctl *ctl, int argc, char **argv)
{
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    Cubiemem__Ping ping = CUBIEMEM__PING__INIT;
    Cubiemem__DaemonMessage *reply;
    struct cubiemem_client *client;
    int result = ctl_open(ctl, &client);

    (void)argc;
    (void)argv;
    if (result != CTL_OK) {
        return result;
    }
    message.ping = &ping;
    int64_t start = now_ns();
    result = ctl_call(client, &message, &reply);
    int64_t took = now_ns() - start;
    if (result == CTL_OK) {
        client_reply_free(reply);
        if (ctl->json) {
            result = ctl_print_json(json_pack("{s:I}", "round_trip_ns", (json_int_t)took));
        } else {
            printf("the daemon answered in %.1f us\n", (double)took / 1e3);
        }
    }
    cubiemem_close(client);
    return result;
}
