/*
 * dial - a connected socket to the daemon, or one line that says why not
 */
#ifndef CLIENT_DIAL_H
#define CLIENT_DIAL_H

#include <stdint.h>

/*
 * Find the socket by proto/endpoint.h's rule and connect. socket_path and uuid
 * may be NULL.
 *
 * Return: OK, *socket_p is non-blocking and close-on-exec; DISCONNECTED (nobody
 * there); NOT_PERMITTED; TIMEOUT (the daemon accepts nobody); INVALID_REQUEST;
 * NO_FDS; SYSTEM.
 */
int dial(const char *socket_path, const char *uuid, int64_t timeout_ns, int *socket_p);

#endif
