/*
 * packet - one message and its descriptors through sendmsg and recvmsg
 *
 * The socket is a SOCK_SEQPACKET one, so a packet arrives whole or not at all.
 * Everything received is hostile: too long, truncated control data, too many
 * descriptors and empty packets have outcomes of their own, and no descriptor
 * is ever left open by accident. Never raises SIGPIPE; retries EINTR.
 */
#ifndef PROTO_PACKET_H
#define PROTO_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fdset.h"

enum packet_outcome {
    PACKET_OK,
    PACKET_AGAIN,    /* nothing to read; no room (also ETOOMANYREFS) to write */
    PACKET_END,      /* peer gone: end of file, empty packet, reset, pipe */
    PACKET_TOO_LONG, /* MSG_TRUNC, or more than PACKET_MAX_SIZE to send */
    PACKET_ERROR,    /* see errno */
};

struct packet_info {
    size_t size;
    bool fds_lost;   /* MSG_CTRUNC: not all descriptors arrived; those that did are closed */
    bool has_sender; /* SCM_CREDENTIALS came with it */
    pid_t pid;       /* of the sender, 0 if not visible from here */
    uid_t uid;
    gid_t gid;
};

/*
 * Receive one packet into buffer (of at least PACKET_MAX_SIZE bytes). `fds`
 * (initialised, empty) gets the descriptors, CLOEXEC; fds may be NULL: then any
 * that come are closed and info.fds_lost stays false. flags: MSG_DONTWAIT or 0.
 */
enum packet_outcome packet_receive(int socket, void *buffer, struct fdset *fds,
                                   int flags, struct packet_info *info_p);

/* Send one packet; fds (may be NULL) stay the caller's. */
enum packet_outcome packet_send(int socket, const void *data, size_t size,
                                const struct fdset *fds, int flags);

#endif
