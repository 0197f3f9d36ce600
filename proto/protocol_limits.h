/*
 * protocol_limits - every bound of the protocol, in one place
 *
 * Both sides check against these; what is outside gets INVALID_REQUEST or
 * LIMIT, or closes the connection where the framing itself is broken.
 */
#ifndef PROTO_PROTOCOL_LIMITS_H
#define PROTO_PROTOCOL_LIMITS_H

#include "cubiemem.h"

#define PROTOCOL_MAJOR 1u
#define PROTOCOL_MINOR 0u
#define PROTOCOL_FEATURES 0ull /* bits that this build has */

#define PACKET_MAX_SIZE 65536u /* bytes of one message */
#define PACKET_MAX_FDS 64u     /* descriptors in one message */
#define MESSAGE_MAX_SIZE (4u << 20)   /* bytes of all parts of a message */
#define MESSAGE_MAX_MEMORY (16u << 20) /* bytes that decoding may take */

#define LIMIT_RANK CUBIEMEM_MAX_RANK
#define LIMIT_LABEL CUBIEMEM_MAX_LABEL
#define LIMIT_ARRAYS_PER_BATCH 4096u
#define LIMIT_REQUESTS_UNDER_WAY 64u /* of one session */
#define LIMIT_PARKED 1024u           /* messages of one session that wait for an Allocate */
#define LIMIT_INSTANCES 4096u        /* of one session */
#define LIMIT_SESSION_ARRAYS 65536u  /* queued and held: less than 1 KiB of host memory each */
#define LIMIT_OUTPUT_BYTES (8u << 20) /* queued for a client that does not read */

/* Of one uid other than root's. Requests: under way, and parked behind an Allocate. Who
 * sends more messages (after a burst of a second's) is read from more slowly. */
#define LIMIT_USER_SESSIONS 2048u
#define LIMIT_USER_INSTANCES 16384u
#define LIMIT_USER_REQUESTS 4096u
#define LIMIT_USER_MESSAGES_PER_S 50000u
#define LIMIT_USER_STRANGERS 256u /* connections that have not said Hello, and tools */
#define LIMIT_USER_PAUSE_NS 5000000ll

#define LIMIT_HELLO_NS 5000000000ll     /* from accept to Hello */
#define LIMIT_GIVE_BACK_NS 5000000000ll /* from a grant, or the end of work, to its GiveBack */
#define LIMIT_UNREAD_NS 10000000000ll   /* output queued and not read */

#define ARRAY_ALIGNMENT 512u           /* bytes; of arrays in a block */
#define SEGMENT_MAX_SIZE (1ull << 30)  /* bytes */
#define TOKEN_SIZE 16u

#endif
