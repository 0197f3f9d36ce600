/* hostwork - what a stream does in the program itself */
#ifndef DAEMON_SIM_HOSTWORK_H
#define DAEMON_SIM_HOSTWORK_H

#include "link.h"

/* Start the thread for a lane's host operations; it takes a reference. */
CUresult hostwork_start(struct link *link, uint32_t lane);

#endif
