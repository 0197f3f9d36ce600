/*
 * fuzz_dispatch - whatever clients may send to a daemon on the simulated device
 *
 * An input is a list of packets: two bytes of length, of which the highest bit
 * chooses one of two clients and the next one asks for the loop to run before the
 * packet, and the packet itself. It passes through the envelope, the parts,
 * the decoder and the handlers of a whole daemon in this process. The harness
 * reads what comes, acknowledges descriptors as a client does, and gives back
 * nothing. When both clients have hung up, the books are at zero; anything else aborts.
 * Built with libFuzzer, or with replay.c to go through a corpus.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../unit/sim_env.h"
#include "connection.h"
#include "cubiemem.pb-c.h"
#include "packet.h"
#include "protocol_limits.h"
#include "server.h"
#include "session.h"

#define OTHER_CLIENT 0x8000u
#define RUN_FIRST 0x4000u
#define LENGTH_MASK 0x3fffu
#define MAX_PACKETS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct server *server;
static char folder[] = "/tmp/cubiemem-fuzz.XXXXXX";

static void remove_folder(void)
{
    char command[sizeof(folder) + 16];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command) != 0) {
        fprintf(stderr, "fuzz_dispatch: %s is left\n", folder);
    }
}

static void start(void)
{
    char socket_path[64], why[400];
    if (mkdtemp(folder) == NULL) {
        abort();
    }
    atexit(remove_folder);
    sim_env_set();
    snprintf(socket_path, sizeof(socket_path), "%s/daemon.sock", folder);
    const struct options options = {.device = "sim:64MiB",
                                    .socket = socket_path,
                                    .mode = POLICY_ACTIVE,
                                    .log_level = LOG_LEVEL_ERROR,
                                    .evict_timeout_ns = 1000000};
    log_open(LOG_LEVEL_ERROR);
    if (server_create(&options, &server, why, sizeof(why)) != 0) {
        fprintf(stderr, "fuzz_dispatch: %s\n", why);
        exit(1);
    }
    server->daemon.device.exclusive = true; /* no helper processes of this program */
}

/* Until nothing happens any more. */
static void run_loop(void)
{
    struct daemon *daemon = &server->daemon;
    uint64_t bytes;
    for (int i = 0; i < 200; i++) {
        grant_thread_wait_idle(daemon->grant, 1000000000);
        bool more = uv_run(&daemon->loop, UV_RUN_NOWAIT) != 0;
        (void)more;
        if (i > 2 && grant_thread_busy(daemon->grant) == 0 && daemon->transactions == NULL &&
            daemon->closing == NULL && reclaim_thread_pending(daemon->reclaim, &bytes) == 0) {
            return;
        }
    }
}

static void send_ack(int client, uint64_t number)
{
    unsigned char data[64];
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    Cubiemem__Ack ack = CUBIEMEM__ACK__INIT;
    ack.has_packet = true;
    ack.packet = number;
    message.ack = &ack;
    packet_send(client, data, cubiemem__client_message__pack(&message, data), NULL, MSG_DONTWAIT);
}

/* What the daemon says is always a message of the protocol. */
static void read_answers(int client)
{
    static unsigned char buffer[PACKET_MAX_SIZE];
    struct packet_info info;
    struct fdset fds = FDSET_INIT;
    while (packet_receive(client, buffer, &fds, MSG_DONTWAIT, &info) == PACKET_OK) {
        Cubiemem__DaemonMessage *message =
            cubiemem__daemon_message__unpack(NULL, info.size, buffer);
        if (message == NULL || (fds.n > 0) != (message->packet != 0)) {
            abort();
        }
        if (message->packet != 0) {
            send_ack(client, message->packet);
        }
        fdset_finish(&fds);
        cubiemem__daemon_message__free_unpacked(message, NULL);
    }
}

static void check_nothing_is_left(void)
{
    const struct daemon *daemon = &server->daemon;
    for (int i = 0; i < 50 && (daemon->connections != NULL || daemon->books.draining > 0); i++) {
        run_loop();
        if (i > 3) {
            poll(NULL, 0, 10); /* the device is read every 100 ms */
        }
    }
    if (daemon->connections != NULL || daemon->sessions != NULL || daemon->parked != NULL ||
        daemon->transactions != NULL || daemon->evictions != NULL || daemon->books.lent != 0 ||
        daemon->books.promised != 0 || daemon->books.cached != pool_size(daemon->pool) ||
        policy_check(daemon->policy) != NULL ||
        policy_next_instance(daemon->policy, NULL) != NULL) {
        fprintf(stderr, "fuzz_dispatch: something is left: lent %llu, promised %llu\n",
                (unsigned long long)daemon->books.lent,
                (unsigned long long)daemon->books.promised);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int clients[2][2];
    if (server == NULL) {
        start();
    }
    for (int i = 0; i < 2; i++) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, clients[i]) != 0 ||
            !connection_accept(&server->daemon, clients[i][1])) {
            abort();
        }
    }
    for (int n = 0; n < MAX_PACKETS && size >= 2; n++) {
        const unsigned head = data[0] | (unsigned)data[1] << 8;
        size_t length = head & LENGTH_MASK;
        data += 2;
        size -= 2;
        length = length < size ? length : size;
        if ((head & RUN_FIRST) != 0) {
            run_loop();
            read_answers(clients[0][0]);
            read_answers(clients[1][0]);
        }
        if (length > 0) {
            packet_send(clients[(head & OTHER_CLIENT) != 0][0], data, length, NULL, MSG_DONTWAIT);
        }
        data += length;
        size -= length;
    }
    run_loop();
    read_answers(clients[0][0]);
    read_answers(clients[1][0]);
    close(clients[0][0]);
    run_loop();
    close(clients[1][0]);
    check_nothing_is_left();
    return 0;
}
