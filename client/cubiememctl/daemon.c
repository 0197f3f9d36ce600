/*
 * daemon - the way to the daemon, and words for what can go wrong on it
 *
 * The tool is a viewer to the daemon: it says Hello as a tool, opens no device and
 * holds nothing. A verb makes one request and shows the answer; the texts of
 * refusals are the library's and the daemon's own.
 */
#include "ctl.h"

#include "endpoint.h"

/* The library's words for the last failure, with its exit status. */
static int fail_as_library(int status)
{
    const struct cubiemem_error *error = cubiemem_last_error();

    return ctl_fail(ctl_exit_status(status), "%s",
                    error->text && *error->text ? error->text : cubiemem_strerror(status));
}

int ctl_open(const struct ctl *ctl, struct cubiemem_client **client_p)
{
    char path[ENDPOINT_PATH_MAX];
    char why[1024];
    int status = endpoint_for_client(ctl->socket, ctl->gpu, path, why, sizeof(why));

    if (status != CUBIEMEM_OK) {
        return ctl_fail(status == CUBIEMEM_INVALID_REQUEST ? CTL_USAGE : ctl_exit_status(status),
                        "%s", why);
    }
    status = client_open_tool(path, ctl->gpu, ctl->timeout_ns, client_p);
    if (status == CUBIEMEM_OK) {
        return CTL_OK;
    }
    return fail_as_library(status);
}

int ctl_call(struct cubiemem_client *client, Cubiemem__ClientMessage *message,
             Cubiemem__DaemonMessage **reply_p)
{
    int status = client_call(client, message, reply_p);

    return status == CUBIEMEM_OK ? CTL_OK : fail_as_library(status);
}

int ctl_request(const struct ctl *ctl, Cubiemem__ClientMessage *message,
                Cubiemem__DaemonMessage **reply_p)
{
    struct cubiemem_client *client;
    int result = ctl_open(ctl, &client);

    if (result == CTL_OK) {
        result = ctl_call(client, message, reply_p);
        cubiemem_close(client);
    }
    return result;
}

int ctl_status(const struct ctl *ctl, json_t **document_p)
{
    struct cubiemem_client *client;
    json_error_t error;
    char *text;
    int result = ctl_open(ctl, &client);

    if (result != CTL_OK) {
        return result;
    }
    int status = cubiemem_status_json(client, &text);
    if (status != CUBIEMEM_OK) {
        result = fail_as_library(status);
        cubiemem_close(client);
        return result;
    }
    cubiemem_close(client);
    json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    cubiemem_string_free(text);
    if (!json_is_object(document)) {
        json_decref(document);
        return ctl_fail(CTL_FAILED, "the daemon's status is no JSON object: %s", error.text);
    }
    *document_p = document;
    return CTL_OK;
}
