/* lane - the engine's thread for one lane of operations */
#ifndef DAEMON_SIM_ENGINE_LANE_H
#define DAEMON_SIM_ENGINE_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "../queue.h"

/* Begin to work off a lane. */
int lane_start(struct queue *queue, uint32_t lane);
/* The program is dead: what needs it is left out, and what waits for its
 * functions waits for ever. */
void lanes_orphan(void);
/* Is everything done that was submitted? */
bool lanes_are_idle(const struct queue *queue);

#endif
