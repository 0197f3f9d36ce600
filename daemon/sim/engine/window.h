/* window - where the engine has mapped what its program sees at an address */
#ifndef DAEMON_SIM_ENGINE_WINDOW_H
#define DAEMON_SIM_ENGINE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* fd is consumed. A known address gets other rights. */
int window_map(uint64_t address, uint64_t size, int protection, int fd);
void window_unmap(uint64_t address);

/* Between these, what window_at() returns stays mapped. */
void window_enter(void);
void window_leave(void);
/* Our address for the program's; *size_p: how far it goes. NULL: not mapped, or
 * not with these rights. */
void *window_at(uint64_t address, bool for_writing, uint64_t *size_p);

#endif
