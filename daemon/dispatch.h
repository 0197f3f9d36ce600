/*
 * dispatch - what a packet says, and who does it
 *
 * Joins parts, decodes with capped memory, checks that the sender may, and calls
 * the handler of the one body that is set. Protobuf stops here (and in answer).
 * Messages that name an instance whose stream group has a transaction under way
 * are parked and taken up, in order, when it is over.
 */
#ifndef DAEMON_DISPATCH_H
#define DAEMON_DISPATCH_H

#include <stddef.h>

#include "daemon.h"

void dispatch_packet(struct connection *connection, const unsigned char *packet, size_t size);

/* A transaction is over: parked messages are looked at again, from the loop. */
void dispatch_unpark(struct daemon *daemon);
void dispatch_take_up_parked(struct daemon *daemon);
void dispatch_forget_connection(struct daemon *daemon, struct connection *connection);

#endif
