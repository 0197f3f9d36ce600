/*
 * arena - zeroed memory that is freed all at once
 *
 * For messages that are built, sent and forgotten. Never moves what it gave.
 */
#ifndef CLIENT_ARENA_H
#define CLIENT_ARENA_H

#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>

struct arena_piece {
    struct arena_piece *next;
    alignas(max_align_t) unsigned char bytes[];
};

struct arena {
    struct arena_piece *pieces;
};

static inline void *arena_alloc(struct arena *arena, size_t n, size_t size)
{
    size_t bytes, whole;
    if (__builtin_mul_overflow(n, size, &bytes) ||
        __builtin_add_overflow(bytes, sizeof(struct arena_piece), &whole)) {
        return NULL;
    }
    struct arena_piece *piece = calloc(1, whole);
    if (piece == NULL) {
        return NULL;
    }
    piece->next = arena->pieces;
    arena->pieces = piece;
    return piece->bytes;
}

static inline void arena_finish(struct arena *arena)
{
    while (arena->pieces != NULL) {
        struct arena_piece *next = arena->pieces->next;
        free(arena->pieces);
        arena->pieces = next;
    }
}

#endif
