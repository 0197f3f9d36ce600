/*
 * watch - see watch.h
 */
#include "watch.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../../client/connection.h" /* the daemon has a header of this name, too */
#include "measure.h"
#include "outcome.h"

#define PAUSE_NS 2000000

void watch_open(const struct harness *harness, struct watch *watch_p)
{
    *watch_p = (struct watch){.daemon = harness->pid};
    must(client_open_tool(harness->socket, NULL, 0, &watch_p->client), "connect as a tool");
}

void watch_close(struct watch *watch)
{
    cubiemem_close(watch->client);
    watch->client = NULL;
}

/* The document, the caller's; *text_p (may be NULL) with cubiemem_string_free(). */
static json_t *status_of(struct watch *watch, char **text_p)
{
    char *text;

    must(cubiemem_status_json(watch->client, &text), "status");
    json_t *status = json_loads(text, 0, NULL);
    expect(json_is_object(status), "the status is no JSON object: %s", text);
    if (text_p != NULL) {
        *text_p = text;
    } else {
        cubiemem_string_free(text);
    }
    return status;
}

static uint64_t figure(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    expect(json_is_integer(value), "the status has no figure %s", name);
    return (uint64_t)json_integer_value(value);
}

static const json_t *client_of(const json_t *status, const char *name)
{
    size_t i;
    const json_t *client;

    json_array_foreach(json_object_get(status, "clients"), i, client)
    {
        if (strcmp(json_string_value(json_object_get(client, "name")), name) == 0) {
            return client;
        }
    }
    return NULL;
}

uint64_t watch_figure(struct watch *watch, const char *name)
{
    json_t *status = status_of(watch, NULL);
    uint64_t value = figure(status, name);

    json_decref(status);
    return value;
}

uint64_t watch_client(struct watch *watch, const char *client, const char *name)
{
    json_t *status = status_of(watch, NULL);
    const json_t *found = client_of(status, client);
    uint64_t value = found != NULL ? figure(found, name) : 0;

    json_decref(status);
    return value;
}

bool watch_state_is(struct watch *watch, const char *client, const char *state)
{
    json_t *status = status_of(watch, NULL);
    const json_t *found = client_of(status, client);
    bool is = found != NULL &&
              strcmp(json_string_value(json_object_get(found, "state")), state) == 0;

    json_decref(status);
    return is;
}

size_t watch_n_clients(struct watch *watch)
{
    json_t *status = status_of(watch, NULL);
    size_t n = json_array_size(json_object_get(status, "clients"));

    json_decref(status);
    return n;
}

/* ---------------------------------------------------------------- waiting */

static void pause_until(uint64_t end_ns, const char *what, uint64_t is, uint64_t wanted)
{
    expect(measure_now_ns() < end_ns, "%s stays %" PRIu64 ", not %" PRIu64, what, is, wanted);
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

static uint64_t end_of(int timeout_ms)
{
    return measure_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

void watch_until(struct watch *watch, const char *name, uint64_t value, int timeout_ms)
{
    uint64_t end_ns = end_of(timeout_ms), is;

    while ((is = watch_figure(watch, name)) != value) {
        pause_until(end_ns, name, is, value);
    }
}

void watch_until_client(struct watch *watch, const char *client, const char *name, uint64_t value,
                        int timeout_ms)
{
    uint64_t end_ns = end_of(timeout_ms), is;

    while ((is = watch_client(watch, client, name)) != value) {
        pause_until(end_ns, name, is, value);
    }
}

void watch_until_n_clients(struct watch *watch, size_t n, int timeout_ms)
{
    uint64_t end_ns = end_of(timeout_ms);
    size_t is;

    while ((is = watch_n_clients(watch)) != n) {
        pause_until(end_ns, "clients", is, n);
    }
}

/* ---------------------------------------------------------------- balance */

static uint64_t sum_of(const json_t *list, const char *name)
{
    uint64_t sum = 0;
    size_t i;
    const json_t *entry;

    json_array_foreach(list, i, entry)
    {
        sum += figure(entry, name);
    }
    return sum;
}

static void balance(struct watch *watch, bool at_rest)
{
    char *text;
    json_t *status = status_of(watch, &text);
    const json_t *clients = json_object_get(status, "clients");
    uint64_t lent = figure(status, "lent_bytes");
    uint64_t promised = figure(status, "promised_bytes");
    /* Draining is left out: what the pool lets go for a promise is in both for a while. */
    uint64_t out = lent + promised;
    size_t i;
    const json_t *client;

    expect(at_rest || lent >= sum_of(clients, "held_bytes"), "more is held than lent: %s", text);
    expect(!at_rest || lent == sum_of(clients, "held_bytes"), "held and lent differ: %s", text);
    expect(out <= figure(status, "budget_bytes"), "more is out than there is: %s", text);
    expect(!at_rest || promised == 0, "something is promised, and nobody asks: %s", text);
    json_array_foreach(clients, i, client)
    {
        uint64_t charged = sum_of(json_object_get(client, "instances"), "allocated_bytes");
        expect(!at_rest || figure(client, "held_bytes") == charged,
               "a client holds other than it is charged: %s", text);
    }
    json_decref(status);
    cubiemem_string_free(text);
}

void watch_balance(struct watch *watch)
{
    balance(watch, false);
}

void watch_balance_at_rest(struct watch *watch)
{
    balance(watch, true);
}

/* ------------------------------------------------------------- the daemon */

int watch_daemon_fds(const struct watch *watch)
{
    char path[64];
    int n = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)watch->daemon);
    DIR *dir = opendir(path);
    expect(dir != NULL, "cannot read %s", path);
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n - 2; /* . and .. */
}

uint64_t watch_daemon_rss_kib(const struct watch *watch)
{
    const char *sanitizer = getenv("SAN");

    if (sanitizer != NULL && *sanitizer != '\0') {
        return 0;
    }
    return measure_status_kib(watch->daemon, "VmRSS:");
}
