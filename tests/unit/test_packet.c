/*
 * test_packet - packets, descriptors and credentials over a socket pair
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "packet.h"

static int open_fds(void)
{
    int n = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        n++;
    }
    closedir(directory);
    return n;
}

struct pair {
    int ends[2];
    unsigned char *buffer;
    int fds_before;
};

static int setup(void **state)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    pair->fds_before = open_fds();
    int flags = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
    assert_int_equal(socketpair(AF_UNIX, flags, 0, pair->ends), 0);
    pair->buffer = malloc(PACKET_MAX_SIZE);
    *state = pair;
    return 0;
}

static int teardown(void **state)
{
    struct pair *pair = *state;
    close(pair->ends[0]);
    close(pair->ends[1]);
    assert_int_equal(open_fds(), pair->fds_before); /* nothing leaked */
    free(pair->buffer);
    free(pair);
    return 0;
}

static void whole_packet_arrives(void **state)
{
    struct pair *pair = *state;
    unsigned char *big = malloc(PACKET_MAX_SIZE);
    memset(big, 7, PACKET_MAX_SIZE);
    assert_int_equal(packet_send(pair->ends[0], big, PACKET_MAX_SIZE, NULL, 0), PACKET_OK);
    struct packet_info info;
    assert_int_equal(packet_receive(pair->ends[1], pair->buffer, NULL, 0, &info), PACKET_OK);
    assert_int_equal(info.size, PACKET_MAX_SIZE);
    assert_memory_equal(big, pair->buffer, PACKET_MAX_SIZE);
    assert_int_equal(packet_receive(pair->ends[1], pair->buffer, NULL, 0, &info), PACKET_AGAIN);
    free(big);
}

static void empty_and_long_packets_are_outcomes(void **state)
{
    struct pair *pair = *state;
    struct packet_info info;
    unsigned char *big = calloc(1, PACKET_MAX_SIZE + 1);
    assert_int_equal(packet_send(pair->ends[0], big, PACKET_MAX_SIZE + 1, NULL, 0),
                     PACKET_TOO_LONG);
    assert_int_equal(packet_send(pair->ends[0], big, 0, NULL, 0), PACKET_TOO_LONG);
    assert_int_equal(send(pair->ends[0], big, PACKET_MAX_SIZE + 1, 0), PACKET_MAX_SIZE + 1);
    assert_int_equal(packet_receive(pair->ends[1], pair->buffer, NULL, 0, &info),
                     PACKET_TOO_LONG);
    assert_int_equal(send(pair->ends[0], big, 0, 0), 0);
    assert_int_equal(packet_receive(pair->ends[1], pair->buffer, NULL, 0, &info), PACKET_END);
    close(pair->ends[0]);
    pair->ends[0] = open("/dev/null", O_RDONLY);
    assert_int_equal(packet_receive(pair->ends[1], pair->buffer, NULL, 0, &info), PACKET_END);
    assert_int_equal(packet_send(pair->ends[1], big, 1, NULL, 0), PACKET_END); /* no SIGPIPE */
    free(big);
}

static void sixty_four_descriptors_pass_and_no_more(void **state)
{
    struct pair *pair = *state;
    struct fdset out = FDSET_INIT, in = FDSET_INIT;
    for (unsigned i = 0; i < PACKET_MAX_FDS; i++) {
        assert_true(fdset_dup(&out, pair->ends[0]));
    }
    assert_false(fdset_consume(&out, dup(pair->ends[0])));
    assert_int_equal(packet_send(pair->ends[0], "x", 1, &out, 0), PACKET_OK);
    struct packet_info info;
    assert_int_equal(packet_receive(pair->ends[1], pair->buffer, &in, 0, &info), PACKET_OK);
    assert_false(info.fds_lost);
    assert_int_equal(in.n, PACKET_MAX_FDS);
    assert_true((fcntl(in.fds[5], F_GETFD) & FD_CLOEXEC) != 0);
    int mine = fdset_steal_next(&in);
    assert_true(mine >= 0);
    fdset_finish(&in);
    assert_true(fcntl(mine, F_GETFD) >= 0);
    close(mine);

    /* 65 in one packet: all are closed, and it is said. */
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 65)];
    } control = {0};
    char letter = 'y';
    struct iovec part = {&letter, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(int) * 65);
    int *places = (int *)(void *)CMSG_DATA(cmsg);
    for (int i = 0; i < 65; i++) {
        places[i] = pair->ends[0];
    }
    assert_int_equal(sendmsg(pair->ends[0], &message, 0), 1);
    assert_int_equal(packet_receive(pair->ends[1], pair->buffer, &in, 0, &info), PACKET_OK);
    assert_true(info.fds_lost);
    assert_int_equal(in.n, 0);

    /* Unasked-for descriptors are closed where none are expected. */
    assert_int_equal(packet_send(pair->ends[0], "z", 1, &out, 0), PACKET_OK);
    assert_int_equal(packet_receive(pair->ends[1], pair->buffer, NULL, 0, &info), PACKET_OK);
    assert_false(info.fds_lost);
    fdset_finish(&out);
}

static void lost_descriptors_are_said(void **state)
{
    struct pair *pair = *state;
    struct fdset out = FDSET_INIT, in = FDSET_INIT;
    const char *runner = getenv("RUNNER");
    if (runner != NULL && strstr(runner, "valgrind") != NULL) {
        skip(); /* it has a limit of its own in the place of RLIMIT_NOFILE */
    }
    assert_true(fdset_dup(&out, pair->ends[0]));
    assert_true(fdset_dup(&out, pair->ends[0]));
    assert_int_equal(packet_send(pair->ends[0], "x", 1, &out, 0), PACKET_OK);
    fdset_finish(&out);

    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = dup(0);
    close(next);
    few = before;
    few.rlim_cur = (rlim_t)next + 1; /* room for one */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct packet_info info;
    enum packet_outcome outcome = packet_receive(pair->ends[1], pair->buffer, &in, 0, &info);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(outcome, PACKET_OK);
    assert_true(info.fds_lost);
    assert_int_equal(in.n, 0);
}

static void credentials_come_with_it(void **state)
{
    struct pair *pair = *state;
    int one = 1;
    assert_int_equal(setsockopt(pair->ends[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)), 0);
    assert_int_equal(packet_send(pair->ends[0], "x", 1, NULL, 0), PACKET_OK);
    struct packet_info info;
    assert_int_equal(packet_receive(pair->ends[1], pair->buffer, NULL, 0, &info), PACKET_OK);
    assert_true(info.has_sender);
    assert_int_equal(info.pid, getpid());
    assert_int_equal(info.uid, getuid());
}

static void full_socket_is_back_pressure(void **state)
{
    struct pair *pair = *state;
    char packet[4096] = {0};
    int sent = 0;
    enum packet_outcome outcome;
    while ((outcome = packet_send(pair->ends[0], packet, sizeof(packet), NULL, 0)) == PACKET_OK) {
        sent++;
    }
    assert_int_equal(outcome, PACKET_AGAIN);
    assert_true(sent > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whole_packet_arrives, setup, teardown),
        cmocka_unit_test_setup_teardown(empty_and_long_packets_are_outcomes, setup, teardown),
        cmocka_unit_test_setup_teardown(sixty_four_descriptors_pass_and_no_more, setup, teardown),
        cmocka_unit_test_setup_teardown(lost_descriptors_are_said, setup, teardown),
        cmocka_unit_test_setup_teardown(credentials_come_with_it, setup, teardown),
        cmocka_unit_test_setup_teardown(full_socket_is_back_pressure, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
