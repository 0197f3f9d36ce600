/*
 * handle - legacy CUDA IPC handles of arrays, for programs that know no others
 *
 * A handle never travels without offset, size, device and generation: the
 * handle alone is the block's, and two arrays of one block have the same.
 */
#include <string.h>

#include "client.h"
#include "failure.h"
#include "output.h"

static int describe(const struct cubiemem_instance *instance, const char *label,
                    struct cubiemem_ipc_handle *handle)
{
    const struct placement *place = placements_find(&instance->held, label);
    if (place == NULL) {
        return failure_set(CUBIEMEM_NOT_FOUND, "%.80s holds no array %.255s", instance->name,
                           label);
    }
    if (place->block == NULL) {
        return failure_set(CUBIEMEM_HANDLE_KIND, "array %.255s has no device memory of its own",
                           label);
    }
    if (!place->block->legacy) {
        return failure_set(CUBIEMEM_HANDLE_KIND,
                           "array %.255s lies in memory that has no legacy handle: connect with "
                           ".handle_kind = CUBIEMEM_HANDLE_LEGACY",
                           label);
    }
    *handle = (struct cubiemem_ipc_handle){
        .size = sizeof *handle,
        .offset = place->block->handle_offset + place->array.offset,
        .nbytes = place->array.nbytes,
        .generation = place->block->generation,
    };
    memcpy(handle->handle, place->block->handle, sizeof handle->handle);
    memcpy(handle->device_uuid, instance->client->device.uuid, sizeof handle->device_uuid);
    return CUBIEMEM_OK;
}

int cubiemem_export_legacy(struct cubiemem_instance *instance, const char *label,
                           struct cubiemem_ipc_handle *handle_p)
{
    struct cubiemem_ipc_handle handle;
    int status = instance_check(instance, CLIENT_QUICK);
    if (status == CUBIEMEM_OK && label == NULL) {
        status = failure_set(CUBIEMEM_INVALID_REQUEST, "no label");
    }
    if (status != CUBIEMEM_OK) {
        return status;
    }
    pthread_mutex_lock(&instance->client->books);
    status = describe(instance, label, &handle);
    pthread_mutex_unlock(&instance->client->books);
    return status == CUBIEMEM_OK ? copy_out(handle_p, &handle, sizeof handle) : status;
}
