/*
 * echo - the raw floor of a round trip: a process that sends back what it gets
 *
 * Over a SOCK_SEQPACKET pair, with poll on both sides, as a daemon and a caller do it
 * at the least. Started before anything else makes threads in this process.
 */
#ifndef SUPPORT_ECHO_H
#define SUPPORT_ECHO_H

#include <stddef.h>

#include "role.h"

#define ECHO_MAX_SIZE 4096

/* On the second processor (measure_pin), where the daemon is pinned too. */
void echo_start(struct role *role_p);
void echo_stop(struct role *role);

/* One round trip of this many bytes, in microseconds. */
double echo_once(const struct role *role, size_t size);

#endif
