/*
 * legacy_wire - what the daemon and its legacy helper say to each other
 *
 * One request or answer a packet on a SOCK_SEQPACKET pair, both of fixed size, answered in
 * order. The two are one program, so there is no version; the daemon still
 * checks every answer, because a helper shares its device context with nobody but may
 * be broken by it.
 */
#ifndef LEGACY_WIRE_H
#define LEGACY_WIRE_H

#include <stdint.h>

#include "legacy.h"

#define LEGACY_HELPER_NAME "cubiememd-legacy-helper" /* argv[0] */
#define LEGACY_HELPER_SOCKET 3                       /* its descriptor of the pair */
/* argv: name, UUID, "sim" or "cuda", run directory, the daemon's pid */
#define LEGACY_HELPER_ARGC 5

#define LEGACY_MAGIC 0x6d654c43u /* "CLem" */

enum legacy_kind { LEGACY_ALLOC = 1, LEGACY_FREE = 2 };

struct legacy_request {
    uint32_t magic;
    uint32_t kind; /* enum legacy_kind */
    uint64_t serial;
    uint64_t generation; /* of the block; chosen by the daemon */
    uint64_t size;       /* LEGACY_ALLOC: bytes, else 0 */
};

struct legacy_answer {
    uint32_t magic;
    uint32_t kind;
    uint64_t serial;
    uint64_t generation;
    int32_t status; /* of cubiemem.h */
    int32_t cu_result;
    unsigned char handle[LEGACY_HANDLE_SIZE]; /* LEGACY_ALLOC, status OK */
};

_Static_assert(sizeof(struct legacy_request) == 32, "no padding");
_Static_assert(sizeof(struct legacy_answer) == 96, "no padding");

#endif
