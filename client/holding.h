/*
 * holding - what an instance holds, as it comes and goes
 *
 * A grant is applied as a whole or handed back as a whole. Memory is unmapped
 * before the daemon hears that it is back, always.
 */
#ifndef CLIENT_HOLDING_H
#define CLIENT_HOLDING_H

#include "client.h"
#include "incoming.h"

/*
 * Apply the ArrayResponse in `incoming` to its instance: wait for the work in
 * what is dropped, unmap it, map what is new, hand back what is left over. The
 * caller has the act role. response_p NULL: nobody asked; the response is kept in
 * the instance, in the same step, to be taken.
 *
 * Return: OK; NO_FDS, HOST_MEMORY, CUDA, INTERNAL: the arrays of the grant are
 * not held (nor those that they replace), and the daemon knows it;
 * NOT_REGISTERED.
 */
int holding_apply(struct cubiemem_client *client, struct incoming *incoming,
                  struct cubiemem_response **response_p);

/* Would the application of this event, or of this Yield, wait for work that is begun? */
bool holding_waits(struct cubiemem_client *client, const struct incoming *event);

/* Unmap blocks that the daemon needs before it can go on, and say so. */
void holding_yield(struct cubiemem_client *client, const Cubiemem__Yield *yield);

/*
 * Unmap what lies under these labels (NULL: everything). Blocks with no array
 * left go; the daemon is not told. Books held. On failure (CUDA, HOST_MEMORY)
 * the labels that are still held may have lost nothing.
 */
int holding_drop(struct cubiemem_instance *instance, const char *const *labels, size_t n_labels);

/* Does a response wait to be taken whose arrays are held, or some of them? What is not
 * held any more is left out of it. Books held. */
bool holding_has_untaken(struct cubiemem_instance *instance);

/* Without unmapping: the context is dead, or its work never ended. Books held. */
void holding_forget(struct cubiemem_instance *instance);

#endif
