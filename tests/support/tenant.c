/*
 * tenant - see tenant.h
 */
#include "tenant.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

#include "outcome.h"

void tenant_open(const struct harness *harness, const char *name, int handle_kind,
                 struct tenant *tenant_p)
{
    const struct cubiemem_options options = {
        .size = sizeof(options), .name = name, .handle_kind = handle_kind};
    const struct cubiemem_instance_options instance = {.size = sizeof(instance)};
    struct tenant tenant;

    tenant.client = harness_connect(harness, &options);
    must(cubiemem_register(tenant.client, name, &instance, &tenant.instance), "register");
    *tenant_p = tenant;
}

void tenant_close(struct tenant *tenant)
{
    cubiemem_close(tenant->client);
    memset(tenant, 0, sizeof(*tenant));
}

static int ask(struct tenant *tenant, const uint64_t *sizes, size_t n,
               struct cubiemem_array *arrays_p)
{
    struct cubiemem_array_request requests[TENANT_MAX_ARRAYS] = {0};
    char labels[TENANT_MAX_ARRAYS][2];
    int64_t shapes[TENANT_MAX_ARRAYS];
    struct cubiemem_response *response;

    expect(n <= TENANT_MAX_ARRAYS, "%zu arrays are more than a tenant takes", n);
    for (size_t i = 0; i < n; i++) {
        labels[i][0] = (char)('a' + i);
        labels[i][1] = '\0';
        shapes[i] = (int64_t)sizes[i];
        requests[i] = (struct cubiemem_array_request){.size = sizeof(requests[i]),
                                                      .label = labels[i],
                                                      .shape = &shapes[i],
                                                      .rank = 1,
                                                      .dtype = CUBIEMEM_UINT8,
                                                      .chunk_axis_index = CUBIEMEM_AXIS_NONE,
                                                      .unchunkable = 1};
    }
    must(cubiemem_queue(tenant->instance, requests, n), "queue");
    int status = cubiemem_allocate(tenant->instance, NULL, &response);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    for (size_t i = 0; i < n; i++) {
        arrays_p[i].size = sizeof(arrays_p[i]);
        must(cubiemem_response_array(response, labels[i], &arrays_p[i]), "response_array");
    }
    cubiemem_response_free(response);
    return CUBIEMEM_OK;
}

void tenant_take(struct tenant *tenant, const uint64_t *sizes, size_t n,
                 struct cubiemem_array *arrays_p)
{
    must(ask(tenant, sizes, n, arrays_p), "allocate");
}

int tenant_try(struct tenant *tenant, uint64_t size, struct cubiemem_array *array_p)
{
    return ask(tenant, &size, 1, array_p);
}

void tenant_take_when_free(struct tenant *tenant, uint64_t size, int timeout_ms,
                           struct cubiemem_array *array_p)
{
    int status = tenant_try(tenant, size, array_p);

    for (int waited_ms = 0; status != CUBIEMEM_OK && waited_ms < timeout_ms; waited_ms += 20) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        status = tenant_try(tenant, size, array_p);
    }
    must(status, "allocate what a dead client held");
}

void tenant_release(struct tenant *tenant)
{
    must(cubiemem_release(tenant->instance, NULL, 0), "release");
}

uint64_t tenant_figure(struct tenant *tenant, const char *name)
{
    char *text;

    must(cubiemem_status_json(tenant->client, &text), "status");
    json_t *status = json_loads(text, 0, NULL);
    const json_t *figure = json_object_get(status, name);
    expect(json_is_integer(figure), "the status has no figure %s: %s", name, text);
    uint64_t value = (uint64_t)json_integer_value(figure);
    json_decref(status);
    cubiemem_string_free(text);
    return value;
}
