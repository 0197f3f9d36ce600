/*
 * drain - drain [--off]: let nobody new in, and wait until all is given back
 *
 * The daemon goes on draining when this program ends, also at its time-out:
 * whoever is in may take as long as it needs. --off lets clients in again.
 */
#include "ctl.h"
#include "document.h"

#include <stdlib.h>
#include <time.h>

#include "checked.h"

#define LOOK_NS 100000000 /* between two looks at who still holds memory */

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Who holds memory, a line each. Returns how many. What the dead and the kicked held
 * until then is nobody's in this list, and draining until their processes let go. */
static size_t holders_print(const json_t *document, FILE *out)
{
    const json_t *client;
    size_t n = 0, i;

    json_array_foreach(document_array(document, "clients"), i, client)
    {
        json_int_t held = document_integer(client, "held_bytes");
        if (held == 0) {
            continue;
        }
        n++;
        if (out) {
            char size[SIZE_TEXT_MAX];
            char *name = text_printable(document_text(client, "name", "-"));
            fprintf(out, "  client %" JSON_INTEGER_FORMAT " (%s, user %s) holds %s\n",
                    document_integer(client, "id"), name, document_text(client, "user", "?"),
                    size_format((uint64_t)held, size));
            free(name);
        }
    }
    return n;
}

static int wait_for_release(const struct ctl *ctl)
{
    const struct timespec pause = {0, LOOK_NS};
    int64_t deadline = now_ns() + ctl->timeout_ns;
    size_t announced = 0;

    for (;;) {
        json_t *document;
        int result = ctl_status(ctl, &document);
        if (result != CTL_OK) {
            return result;
        }
        size_t n = holders_print(document, NULL);
        json_int_t draining = document_integer(document, "draining_bytes");
        bool pending = document_integer(document, "promised_bytes") > 0 || draining > 0;
        char size[SIZE_TEXT_MAX];
        bool over = now_ns() > deadline;
        if (n == 0 && draining > 0 && announced != SIZE_MAX) {
            fprintf(stderr, "waiting for %s that the driver has not back yet\n",
                    size_format((uint64_t)draining, size));
            announced = SIZE_MAX;
        } else if (n != announced && n > 0) {
            fprintf(stderr, "waiting for %zu client%s:\n", n, n == 1 ? "" : "s");
            holders_print(document, stderr);
            announced = n;
        }
        json_decref(document);
        if (n == 0 && !pending) {
            return CTL_OK;
        }
        if (over && n == 0) {
            return ctl_fail(CTL_FAILED,
                            "memory is still on its way back (see status: draining, promised); the "
                            "daemon goes on draining until `cubiememctl drain --off`");
        }
        if (over) {
            return ctl_fail(CTL_FAILED,
                            "%zu client%s still hold%s memory; the daemon goes on draining until "
                            "`cubiememctl drain --off`",
                            n, n == 1 ? "" : "s", n == 1 ? "s" : "");
        }
        nanosleep(&pause, NULL);
    }
}

int cmd_drain(const struct ctl *ctl, int argc, char **argv)
{
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    Cubiemem__Drain drain = CUBIEMEM__DRAIN__INIT;
    Cubiemem__DaemonMessage *reply;

    (void)argc;
    (void)argv;
    fputs(ctl->off ? "letting clients in again\n"
                   : "letting nobody new in; those that are in keep what they hold\n",
          stderr);
    drain.has_off = true;
    drain.off = ctl->off;
    message.drain = &drain;
    int result = ctl_request(ctl, &message, &reply);
    if (result != CTL_OK) {
        return result;
    }
    client_reply_free(reply);
    if (!ctl->off) {
        result = wait_for_release(ctl);
    }
    if (result != CTL_OK) {
        return result;
    }
    if (ctl->json) {
        return ctl_print_json(json_pack("{s:b}", "draining", !ctl->off));
    }
    puts(ctl->off ? "not draining" : "drained: nobody holds memory");
    return CTL_OK;
}
