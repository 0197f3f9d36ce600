/*
 * evict - evict ID[/INSTANCE]: ask a client for what its idle owners hold
 *
 * As in a shortage of memory, its library decides: what is at work stays.
 */
#include "client_name.h"
#include "ctl.h"

#include <inttypes.h>

#include "checked.h"

static int done_print(const struct ctl *ctl, const Cubiemem__EvictDone *done)
{
    char size[SIZE_TEXT_MAX];

    if (!done) {
        return ctl_fail(CTL_FAILED, "the daemon answered without a result");
    }
    if (ctl->json) {
        return ctl_print_json(json_pack(
            "{s:I, s:I, s:I, s:I, s:I}", "released_bytes", (json_int_t)done->released, "owners",
            (json_int_t)done->owners, "busy", (json_int_t)done->busy, "silent",
            (json_int_t)done->silent, "unevictable", (json_int_t)done->unevictable));
    }
    printf("released %s", size_format(done->released, size));
    printf(" of %" PRIu32 " owners; %" PRIu32 " at work, %" PRIu32 " silent, %" PRIu32
           " without a hook\n",
           done->owners, done->busy, done->silent, done->unevictable);
    return CTL_OK;
}

int cmd_evict(const struct ctl *ctl, int argc, char **argv)
{
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    Cubiemem__Evict evict = CUBIEMEM__EVICT__INIT;
    Cubiemem__DaemonMessage *reply;
    struct client_name name;
    json_t *document;

    (void)argc;
    if (!client_name_parse(argv[1], &name)) {
        return ctl_fail(CTL_USAGE, "evict '%s': ID or ID/INSTANCE is wanted, as status shows it",
                        argv[1]);
    }
    int result = ctl_status(ctl, &document);
    if (result != CTL_OK) {
        return result;
    }
    const json_t *client = client_find(document, name.client);
    if (client) {
        client_announce(name.instance ? "evicting the owner of an instance of" : "evicting",
                        client);
    }
    json_decref(document);
    evict.has_client_id = true;
    evict.client_id = name.client;
    evict.instance_name = name.instance;
    message.evict = &evict;
    result = ctl_request(ctl, &message, &reply);
    if (result == CTL_OK) {
        result = done_print(ctl, reply->evict_done);
        client_reply_free(reply);
    }
    return result;
}
