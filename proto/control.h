/*
 * control - the layout of a control page: work marks as words in memory
 *
 * A control page is a sealed memfd that the daemon makes for one session and
 * both sides map. It consists of 64-byte slots; slot 0 is the header. Marking
 * work costs no system call and no message: the library writes here, and the
 * daemon reads a hint for its choice of victims. The library's own answer to an
 * Invalidate decides. The daemon believes nothing it reads beyond that: a
 * client can only make itself an eternal non-victim.
 *
 * All words are little-endian C11 atomics, naturally aligned.
 */
#ifndef PROTO_CONTROL_H
#define PROTO_CONTROL_H

#include <stdatomic.h>
#include <stdint.h>

#define CONTROL_MAGIC 0x6d6d6243u /* "Cbmm" */
#define CONTROL_PAGE_SIZE 65536u
#define CONTROL_SLOT_SIZE 64u
#define CONTROL_SLOTS (CONTROL_PAGE_SIZE / CONTROL_SLOT_SIZE) /* with the header */

enum control_kind {
    CONTROL_FREE = 0,
    CONTROL_HEADER = 1,
    CONTROL_OWNER = 2,  /* allotted by the daemon: RegisterInstance's answer */
    CONTROL_STREAM = 3, /* allotted by the library among the FREE ones, from the end */
};

#define CONTROL_EVICTING (1ull << 63) /* in control_owner.word */
#define CONTROL_COUNT_MASK 0xffffffffull

struct control_header {
    _Atomic uint32_t kind; /* CONTROL_HEADER */
    uint32_t magic;
    uint32_t n_slots;
    uint32_t page; /* its number */
    uint8_t reserved[48];
};

/* Per owner. Idle = count 0, used == granted, and completed == submitted in
 * every stream slot of the owner. */
struct control_owner {
    _Atomic uint32_t kind;
    uint32_t reserved0;
    _Atomic uint64_t word;         /* begun count, and the evicting bit */
    _Atomic uint64_t granted;      /* number of the last grant; daemon writes */
    _Atomic uint64_t used;         /* last grant delivered and worked with; library writes */
    _Atomic int64_t last_begin_ns; /* CLOCK_MONOTONIC; library writes */
    uint8_t reserved[24];
};

/* Per (owner, stream); for the per-thread default stream also per thread. */
struct control_stream {
    _Atomic uint32_t kind;
    _Atomic uint32_t owner;      /* page << 16 | slot of its owner */
    _Atomic uint64_t submitted;  /* library writes */
    _Atomic uint64_t completed;  /* the stream writes */
    uint8_t reserved[40];
};

union control_slot {
    _Atomic uint32_t kind;
    struct control_header header;
    struct control_owner owner;
    struct control_stream stream;
};

_Static_assert(sizeof(union control_slot) == CONTROL_SLOT_SIZE, "slot size");
_Static_assert(sizeof(struct control_owner) == CONTROL_SLOT_SIZE, "slot size");
_Static_assert(sizeof(struct control_stream) == CONTROL_SLOT_SIZE, "slot size");

#endif
