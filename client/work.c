/*
 * work - begin, end, sync: when a pointer is valid
 *
 * The thin public side of the marks: checks, and one more control page where
 * the streams have outgrown the first.
 */
#include "client.h"
#include "failure.h"

int cubiemem_begin_work(struct cubiemem_instance *instance)
{
    int status = instance_check(instance, CLIENT_QUICK);
    if (status == CUBIEMEM_OK) {
        status = marks_begin(instance->owner);
    }
    /* A grant to another of the owner's instances opens the owner, not this one. It is
     * bereft before the owner is opened, so whoever gets this far sees it. */
    if (status == CUBIEMEM_OK && atomic_load(&instance->bereft)) {
        marks_begin_undo(instance->owner);
        status = failure_set(CUBIEMEM_EVICTED,
                             "the arrays of instance %.80s were taken back or replaced: take the "
                             "response, or queue them again, then allocate",
                             instance->name);
    }
    return status;
}

/* A slot for a stream that was never marked before. */
static int prepare(struct cubiemem_instance *instance, CUstream stream)
{
    enum marks_room room = marks_prepare(instance->owner, stream);
    if (room == MARKS_FULL) {
        int status = client_check(instance->client, CLIENT_WAITS);
        if (status == CUBIEMEM_OK) {
            status = client_add_page(instance->client);
        }
        if (status != CUBIEMEM_OK) {
            return status;
        }
        room = marks_prepare(instance->owner, stream);
    }
    switch (room) {
    case MARKS_READY:
        return CUBIEMEM_OK;
    case MARKS_FULL:
        return failure_set(CUBIEMEM_LIMIT, "no slot is left to mark another stream");
    case MARKS_NO_MEMORY:
    default:
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to mark another stream");
    }
}

int cubiemem_end_work(struct cubiemem_instance *instance, cubiemem_stream stream)
{
    bool unprepared = false;
    int status = instance_check(instance, CLIENT_QUICK);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    status = marks_end(instance->owner, stream, &unprepared);
    if (!unprepared) {
        channel_work_ended(&instance->client->channel);
        return status;
    }
    status = prepare(instance, stream);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    unprepared = false;
    status = marks_end(instance->owner, stream, &unprepared);
    channel_work_ended(&instance->client->channel);
    return unprepared ? failure_set(CUBIEMEM_BUSY, "too many threads mark new streams at once")
                      : status;
}

int cubiemem_sync(struct cubiemem_instance *instance)
{
    int status = instance_check(instance, CLIENT_WAITS);
    return status == CUBIEMEM_OK ? marks_wait(instance->owner, INT64_MAX) : status;
}
