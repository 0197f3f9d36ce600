/*
 * registry - the clients of this process, for fork and for streams
 *
 * A forked child must not speak on its parent's connection, nor mark work on
 * its parent's pages: the child handler closes both, in every client. Streams
 * come without a client; their driver is found here.
 */
#ifndef CLIENT_REGISTRY_H
#define CLIENT_REGISTRY_H

#include "client.h"

void registry_add(struct cubiemem_client *client);
void registry_remove(struct cubiemem_client *client);

/*
 * Call fn with the context of the client that the stream belongs to: a group
 * stream's own, else the newest that has one. The registry is held meanwhile.
 * Return: what fn returns; NOT_REGISTERED if no client has a device.
 */
int registry_with_context(CUstream stream, int (*fn)(struct context *context, void *arg),
                          void *arg);

#endif
