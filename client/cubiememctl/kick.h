/* kick - the signal that kick --kill sends */
#ifndef CTL_KICK_H
#define CTL_KICK_H

#include <stdint.h>

/* SIGKILL to the process of this number and start time (clock ticks after boot), and to
 * no other; 0 is unknown and never signalled. Returns the exit status. */
int kick_kill(uint32_t pid, uint64_t start_time);

#endif
