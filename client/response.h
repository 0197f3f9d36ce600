/*
 * response - what one grant placed, as the program is told
 */
#ifndef CLIENT_RESPONSE_H
#define CLIENT_RESPONSE_H

#include "client.h"

/* A response that describes the message's grant; NULL when host memory is short. */
struct cubiemem_response *response_create(const Cubiemem__ArrayResponse *message,
                                          const struct placements *arrays);

#endif
