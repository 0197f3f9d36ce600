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

#include "protocol_limits.h"

#define ASSEMBLY_MAX_FDS 65536u

/* ------------------------------------------------------------- decoding */

/* protobuf-c multiplies the peer's lengths into memory: bounded here. What it
 * frees on its own way is freed with the arena. */
static void *decode_alloc(void *data, size_t size)
{
    struct arena *arena = data;
    if (size > MESSAGE_MAX_MEMORY || arena->taken > MESSAGE_MAX_MEMORY - size) {
        return NULL;
    }
    return arena_take(arena, size);
}

static void decode_free(void *data, void *memory)
{
    (void)data;
    (void)memory;
}

/* NULL if malformed, above the cap, or out of memory. */
static Cubiemem__DaemonMessage *decode(struct arena *arena, const uint8_t *data, size_t size)
{
    ProtobufCAllocator allocator = {decode_alloc, decode_free, arena};
    return cubiemem__daemon_message__unpack(&allocator, size, data);
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
static enum assembly_outcome assembly_complete(struct assembly *assembly, struct arena *arena,
                                               Cubiemem__DaemonMessage *message,
                                               struct incoming **incoming_p)
{
    struct incoming *incoming = calloc(1, sizeof *incoming);
    if (incoming == NULL) {
        arena_finish(arena);
        return ASSEMBLY_MEMORY;
    }
    incoming->message = message;
    incoming->arena = *arena;
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
    struct arena arena = {0};
    Cubiemem__DaemonMessage *message = decode(&arena, data, size);
    if (message == NULL) {
        arena_finish(&arena);
        fdset_finish(fds);
        return ASSEMBLY_BROKEN;
    }
    uint64_t id = message->id;
    bool more = message->more;
    bool follows = assembly->open;
    bool in_order = message->part == assembly->next_part && (!follows || assembly->id == id);
    *packet_p = message->packet;
    if (!in_order || !assembly_keep_fds(assembly, fds)) {
        arena_finish(&arena);
        fdset_finish(fds);
        return ASSEMBLY_BROKEN;
    }
    fdset_finish(fds);
    assembly->fds_lost = assembly->fds_lost || fds_lost;
    if (!more && !follows) {
        return assembly_complete(assembly, &arena, message, incoming_p);
    }
    arena_finish(&arena);
    if (!assembly_keep_bytes(assembly, data, size)) {
        return ASSEMBLY_BROKEN;
    }
    assembly->open = true;
    assembly->id = id;
    assembly->next_part++;
    if (more) {
        return ASSEMBLY_MORE;
    }
    message = decode(&arena, assembly->bytes, assembly->size);
    if (message == NULL) {
        arena_finish(&arena);
        return ASSEMBLY_BROKEN;
    }
    return assembly_complete(assembly, &arena, message, incoming_p);
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
        arena_finish(&incoming->arena);
        close_all(incoming->fds, incoming->n_fds);
        free(incoming->fds);
        free(incoming);
    }
    return NULL;
}
