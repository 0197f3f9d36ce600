/* memlock - is anything left that refers to a segment's memory? */
#ifndef DAEMON_SIM_MEMLOCK_H
#define DAEMON_SIM_MEMLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A segment's memory as the kernel names it. */
struct memlock_id {
    uint64_t device, inode;
};

/* Name the file behind fd. */
int memlock_identify(int fd, struct memlock_id *id_p);
/* Mark fd's open file description as a reference. */
int memlock_take(int fd);
/* A second description of the same memory, which is no reference. */
int memlock_open_witness(int fd);
/* Is there a reference, seen from a witness? */
bool memlock_is_held(int witness);

/* Which of n memories are referred to anywhere on this machine? What cannot be
 * told counts as held. */
void memlock_scan(const struct memlock_id *ids, size_t n, bool *held_p);

#endif
