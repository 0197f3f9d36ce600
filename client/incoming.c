/*
 * incoming - one whole message from the daemon, with its descriptors
 *
 * Most messages are one packet: they are decoded straight from the receive
 * buffer. A packet with `more` is kept as bytes, because protobuf joins encoded
 * messages by concatenation; what was said twice is decoded twice, but long
 * messages are rare.
 */
#include "incoming.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "limits.h"

#define ASSEMBLY_MAX_FDS 65536u

/* ------------------------------------------------------------- decoding */

/* protobuf-c multiplies the peer's lengths into memory; this is the bound. */
struct budget {
    size_t left;
};

static void *budget_alloc(void *data, size_t size)
{
    struct budget *budget = data;
    if (size > budget->left) {
        return NULL;
    }
    void *memory = malloc(size);
    if (memory != NULL) {
        budget->left -= size;
    }
    return memory;
}

static void budget_free(void *data, void *memory)
{
    (void)data;
    free(memory);
}

Cubiemem__DaemonMessage *incoming_decode(const uint8_t *data, size_t size)
{
    struct budget budget = {MESSAGE_MAX_MEMORY};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    return cubiemem__daemon_message__unpack(&allocator, size, data);
}

void incoming_free_message(Cubiemem__DaemonMessage *message)
{
    ProtobufCAllocator allocator = {budget_alloc, budget_free, NULL};
    if (message != NULL) {
        cubiemem__daemon_message__free_unpacked(message, &allocator);
    }
}

/* ------------------------------------------------------------- assembly */

static void close_all(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

void assembly_finish(struct assembly *assembly)
{
    close_all(assembly->fds, assembly->n_fds);
    free(assembly->fds);
    free(assembly->bytes);
    *assembly = (struct assembly){0};
}

static bool assembly_keep_fds(struct assembly *assembly, struct fdset *fds)
{
    if (fds->n == 0) {
        return true;
    }
    if (assembly->n_fds + fds->n > ASSEMBLY_MAX_FDS) {
        return false;
    }
    int *grown = realloc(assembly->fds, (assembly->n_fds + fds->n) * sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    assembly->fds = grown;
    for (int fd; (fd = fdset_steal_next(fds)) >= 0;) {
        assembly->fds[assembly->n_fds++] = fd;
    }
    return true;
}

static bool assembly_keep_bytes(struct assembly *assembly, const uint8_t *data, size_t size)
{
    if (size > MESSAGE_MAX_SIZE - assembly->size) {
        return false;
    }
    if (assembly->size + size > assembly->capacity) {
        size_t capacity = (assembly->size + size) * 2;
        uint8_t *grown = realloc(assembly->bytes, capacity);
        if (grown == NULL) {
            return false;
        }
        assembly->bytes = grown;
        assembly->capacity = capacity;
    }
    memcpy(assembly->bytes + assembly->size, data, size);
    assembly->size += size;
    return true;
}

/* The message is whole: hand it and the collected descriptors over. */
static enum assembly_outcome assembly_complete(struct assembly *assembly,
                                               Cubiemem__DaemonMessage *message,
                                               struct incoming **incoming_p)
{
    struct incoming *incoming = calloc(1, sizeof *incoming);
    if (incoming == NULL) {
        incoming_free_message(message);
        return ASSEMBLY_MEMORY;
    }
    incoming->message = message;
    incoming->fds = assembly->fds;
    incoming->n_fds = assembly->n_fds;
    incoming->fds_lost = assembly->fds_lost;
    assembly->fds = NULL;
    assembly->n_fds = 0;
    assembly_finish(assembly);
    *incoming_p = incoming;
    return ASSEMBLY_WHOLE;
}

enum assembly_outcome assembly_add(struct assembly *assembly, const uint8_t *data, size_t size,
                                   struct fdset *fds, bool fds_lost, uint64_t *packet_p,
                                   struct incoming **incoming_p)
{
    Cubiemem__DaemonMessage *message = incoming_decode(data, size);
    if (message == NULL) {
        fdset_finish(fds);
        return ASSEMBLY_BROKEN;
    }
    uint64_t id = message->id;
    bool more = message->more;
    bool follows = assembly->open;
    bool in_order = message->part == assembly->next_part && (!follows || assembly->id == id);
    *packet_p = message->packet;
    if (!in_order || !assembly_keep_fds(assembly, fds)) {
        incoming_free_message(message);
        fdset_finish(fds);
        return ASSEMBLY_BROKEN;
    }
    fdset_finish(fds);
    assembly->fds_lost = assembly->fds_lost || fds_lost;
    if (!more && !follows) {
        return assembly_complete(assembly, message, incoming_p);
    }
    incoming_free_message(message);
    if (!assembly_keep_bytes(assembly, data, size)) {
        return ASSEMBLY_BROKEN;
    }
    assembly->open = true;
    assembly->id = id;
    assembly->next_part++;
    if (more) {
        return ASSEMBLY_MORE;
    }
    message = incoming_decode(assembly->bytes, assembly->size);
    return message == NULL ? ASSEMBLY_BROKEN : assembly_complete(assembly, message, incoming_p);
}

/* ------------------------------------------------------------- incoming */

int incoming_steal_fd(struct incoming *incoming)
{
    if (incoming->next_fd >= incoming->n_fds) {
        return -1;
    }
    int fd = incoming->fds[incoming->next_fd];
    incoming->fds[incoming->next_fd++] = -1;
    return fd;
}

struct incoming *incoming_destroy(struct incoming *incoming)
{
    if (incoming != NULL) {
        incoming_free_message(incoming->message);
        close_all(incoming->fds, incoming->n_fds);
        free(incoming->fds);
        free(incoming);
    }
    return NULL;
}
