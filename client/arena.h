/*
 * arena - memory that is freed all at once
 *
 * For messages that are built or received, looked at and forgotten. Pieces of a
 * few KiB, with larger ones for what does not fit; never moves what it gave.
 */
#ifndef CLIENT_ARENA_H
#define CLIENT_ARENA_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_PIECE_SIZE 4032u

struct arena_piece {
    struct arena_piece *next;
    alignas(max_align_t) unsigned char bytes[];
};

struct arena {
    struct arena_piece *pieces;
    unsigned char *at; /* free bytes of the newest piece of common size */
    size_t left;
    size_t taken; /* bytes given out */
};

/* Not zeroed; NULL when host memory is short. */
static inline void *arena_take(struct arena *arena, size_t size)
{
    size_t whole;
    if (__builtin_add_overflow(size, alignof(max_align_t) - 1, &whole)) {
        return NULL;
    }
    whole -= whole % alignof(max_align_t);
    if (whole > arena->left) {
        size_t piece_size = whole > ARENA_PIECE_SIZE / 4 ? whole : ARENA_PIECE_SIZE;
        struct arena_piece *piece;
        if (piece_size > SIZE_MAX - sizeof *piece) {
            return NULL;
        }
        piece = malloc(sizeof *piece + piece_size);
        if (piece == NULL) {
            return NULL;
        }
        piece->next = arena->pieces;
        arena->pieces = piece;
        if (piece_size != ARENA_PIECE_SIZE) {
            arena->taken += whole;
            return piece->bytes; /* all of it; the last common piece goes on */
        }
        arena->at = piece->bytes;
        arena->left = piece_size;
    }
    void *memory = arena->at;
    arena->at += whole;
    arena->left -= whole;
    arena->taken += whole;
    return memory;
}

/* n zeroed objects. */
static inline void *arena_alloc(struct arena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        return NULL;
    }
    void *memory = arena_take(arena, bytes);
    return memory != NULL ? memset(memory, 0, bytes) : NULL;
}

static inline void arena_finish(struct arena *arena)
{
    while (arena->pieces != NULL) {
        struct arena_piece *next = arena->pieces->next;
        free(arena->pieces);
        arena->pieces = next;
    }
    *arena = (struct arena){0};
}

#endif
