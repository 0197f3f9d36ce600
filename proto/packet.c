/*
 * packet - one message and its descriptors, see packet.h
 *
 * The control buffer is sized for the kernel's own maximum (253 descriptors and
 * one ucred), so that more descriptors than the protocol allows arrive whole
 * and can be closed, instead of being cut where nobody can tell.
 */
#include "packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KERNEL_MAX_FDS 253 /* SCM_MAX_FD */

union control_buffer {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * KERNEL_MAX_FDS) + CMSG_SPACE(sizeof(struct ucred))];
};

/* Keeps at most PACKET_MAX_FDS; closes the rest. False if any had to go. */
static bool take_fds(const struct cmsghdr *cmsg, struct fdset *fds)
{
    size_t n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
        if (fds == NULL) {
            close(fd);
        } else if (!fdset_consume(fds, fd)) {
            all = false;
        }
    }
    return all;
}

static void read_control(struct msghdr *message, struct fdset *fds, struct packet_info *info)
{
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(message); cmsg != NULL;
         cmsg = CMSG_NXTHDR(message, cmsg)) {
        if (cmsg->cmsg_level != SOL_SOCKET) {
            continue;
        }
        if (cmsg->cmsg_type == SCM_RIGHTS) {
            info->fds_lost |= !take_fds(cmsg, fds);
        } else if (cmsg->cmsg_type == SCM_CREDENTIALS &&
                   cmsg->cmsg_len >= CMSG_LEN(sizeof(struct ucred))) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(cmsg), sizeof(sender));
            info->has_sender = true;
            info->pid = sender.pid;
            info->uid = sender.uid;
            info->gid = sender.gid;
        }
    }
}

enum packet_outcome packet_receive(int socket, void *buffer, struct fdset *fds, int flags,
                                   struct packet_info *info_p)
{
    union control_buffer control;
    struct iovec part = {buffer, PACKET_MAX_SIZE};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t size;
    do {
        size = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    } while (size < 0 && errno == EINTR);
    if (size < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return PACKET_AGAIN;
        }
        return errno == ECONNRESET || errno == EPIPE ? PACKET_END : PACKET_ERROR;
    }

    struct packet_info info = {.size = (size_t)size};
    read_control(&message, fds, &info);
    if (fds != NULL && (message.msg_flags & MSG_CTRUNC) != 0) {
        info.fds_lost = true;
    }
    enum packet_outcome outcome = PACKET_OK;
    if (size == 0) {
        outcome = PACKET_END;
    } else if ((message.msg_flags & MSG_TRUNC) != 0) {
        outcome = PACKET_TOO_LONG;
    }
    if (fds != NULL && (outcome != PACKET_OK || info.fds_lost)) {
        fdset_finish(fds);
    }
    if (outcome == PACKET_OK || outcome == PACKET_TOO_LONG) {
        *info_p = info;
    }
    return outcome;
}

enum packet_outcome packet_send(int socket, const void *data, size_t size,
                                const struct fdset *fds, int flags)
{
    if (size == 0 || size > PACKET_MAX_SIZE) {
        errno = EMSGSIZE;
        return PACKET_TOO_LONG;
    }
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * PACKET_MAX_FDS)];
    } control;
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fds != NULL && fds->n > 0) {
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fds->n);
        struct cmsghdr *cmsg = &control.align;
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * fds->n);
        memcpy(CMSG_DATA(cmsg), fds->fds, sizeof(int) * fds->n);
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) {
        return PACKET_OK;
    }
    switch (errno) {
    case EAGAIN:
    case ENOBUFS:
    case ETOOMANYREFS: /* too many descriptors on their way: back-pressure */
        return PACKET_AGAIN;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return PACKET_END;
    case EMSGSIZE:
        return PACKET_TOO_LONG;
    default:
        return PACKET_ERROR;
    }
}
