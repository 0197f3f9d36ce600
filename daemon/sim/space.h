/* space - the device addresses of this process */
#ifndef DAEMON_SIM_SPACE_H
#define DAEMON_SIM_SPACE_H

#include <stdbool.h>

#include "segment.h"

enum space_kind { SPACE_VMM, SPACE_ALLOC, SPACE_IPC };

struct space_mapping {
    uint64_t address, size;
    struct segment *segment;
    enum space_kind kind;
    int protection;       /* PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE */
    unsigned int n_opens; /* SPACE_IPC */
};

/* All under the process's lock. */
CUresult space_reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *address_p);
CUresult space_unreserve(uint64_t address, uint64_t size);
/* A mapping takes a reference to its segment. */
CUresult space_map(uint64_t address, uint64_t size, struct segment *segment);
CUresult space_unmap(uint64_t address, uint64_t size);
CUresult space_set_protection(uint64_t address, uint64_t size, int protection);

/* A whole segment at an address of the system's choice, ready for use. */
CUresult space_place(struct segment *segment, enum space_kind kind, uint64_t *address_p);
/* Undo space_place(). */
void space_remove(uint64_t address);
/* Undo all of a kind on a GPU. */
void space_remove_kind(const struct gpu *gpu, enum space_kind kind);

/* The mapping at an address, or NULL; valid until the next change. */
struct space_mapping *space_find(uint64_t address);
struct space_mapping *space_find_segment(const struct segment *segment, enum space_kind kind);
/* The GPU whose memory the whole range is, accessible, or NULL. */
struct gpu *space_check(uint64_t address, uint64_t size, bool for_writing);
/* Is any of the range a device's, mapped or reserved? */
bool space_overlaps(uint64_t address, uint64_t size);
/* Tell the GPU's new engine what is mapped. */
CUresult space_replay(const struct gpu *gpu);

#endif
