/*
 * player - see player.h
 *
 * The process that orders touches no driver, since no context survives a fork. The
 * player's "kernel" writes words into its array through the pointer that it was
 * granted; the simulated device's memory can be reached so.
 */
#include "player.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "outcome.h"

struct held {
    struct cubiemem_instance *instance;
    struct cubiemem_array array; /* of the last grant */
    _Atomic uint64_t hooks;
    enum player_hook hook;
};

struct play {
    const struct harness *harness;
    const char *name;
    const char *setting;
    int fd;
    struct cubiemem_client *client;
    struct held held[PLAYER_INSTANCES];
};

/* ------------------------------------------------------------- the player */

/* In a hook: does everything answer as documented? */
static bool calls_answer(struct cubiemem_instance *instance)
{
    struct cubiemem_instance *other;
    struct cubiemem_response *response;
    struct cubiemem_instance_info info = {.size = sizeof(info)};
    uint64_t free_size, total;
    char *json;

    return cubiemem_allocate(instance, NULL, &response) == CUBIEMEM_IN_CALLBACK &&
           cubiemem_register(instance->client, "in-hook", NULL, &other) ==
               CUBIEMEM_IN_CALLBACK &&
           cubiemem_sync(instance) == CUBIEMEM_IN_CALLBACK &&
           cubiemem_ping(instance->client, 0) == CUBIEMEM_IN_CALLBACK &&
           cubiemem_set_auto(instance) == CUBIEMEM_IN_CALLBACK &&
           cubiemem_set_proportion(instance, 0.5) == CUBIEMEM_IN_CALLBACK &&
           cubiemem_change_group(instance, "g", 0) == CUBIEMEM_IN_CALLBACK &&
           cubiemem_instance_info(instance, &info) == CUBIEMEM_IN_CALLBACK &&
           cubiemem_memory_info(instance, &free_size, &total) == CUBIEMEM_IN_CALLBACK &&
           cubiemem_status_json(instance->client, &json) == CUBIEMEM_IN_CALLBACK &&
           cubiemem_begin_work(instance) == CUBIEMEM_EVICTED &&
           cubiemem_queue(instance, NULL, 0) == CUBIEMEM_OK &&
           cubiemem_take_response(instance, &response) == CUBIEMEM_NOT_FOUND;
}

static void hook(struct cubiemem_instance *instance, void *argument)
{
    struct held *held = argument;

    if (held->hook == PLAYER_CALLS) {
        /* No lock is held, so another thread gets through, and may even wait. */
        cubiemem_unregister(instance); /* is refused: it would wait for this hook */
        if (!calls_answer(instance)) {
            return;
        }
    }
    held->hooks++;
}

static int do_register(struct play *play, const struct player_order *order)
{
    struct held *held = &play->held[order->instance];
    char name[] = {'i', (char)('0' + order->instance), '\0'};
    struct cubiemem_instance_options options = {
        .size = sizeof(options),
        .group = order->group[0] != '\0' ? order->group : NULL,
        .shared = order->shared,
        .owner = order->text[0] != '\0' ? order->text : NULL,
        .invalidate = order->hook != PLAYER_NO_HOOK ? hook : NULL,
        .invalidate_arg = held,
    };

    held->hook = order->hook;
    return cubiemem_register(play->client, name, &options, &held->instance);
}

static int do_queue(struct held *held, const struct player_order *order)
{
    const uint64_t runs = order->runs > 1 ? order->runs : 1;
    const int64_t shape[2] = {(int64_t)runs, (int64_t)(order->size / runs)};
    const struct cubiemem_array_request request = {
        .size = sizeof(request),
        .label = order->text[0] != '\0' ? order->text : "a",
        .shape = shape,
        .rank = 2,
        .dtype = CUBIEMEM_UINT8,
        .chunk_axis_index = runs > 1 ? 0 : CUBIEMEM_AXIS_NONE,
        .unchunkable = runs == 1,
        .total_runs = (int64_t)runs,
    };

    return cubiemem_queue(held->instance, &request, 1);
}

static void note_response(struct held *held, const struct player_order *order,
                          struct cubiemem_response *response, struct player_answer *answer)
{
    struct cubiemem_partition partition = {.size = sizeof(partition)};
    struct cubiemem_array array = {.size = sizeof(array)};

    must(cubiemem_response_partition(response, &partition), "partition");
    answer->chunks = partition.chunks;
    if (cubiemem_response_array(response, order->text[0] != '\0' ? order->text : "a", &array) ==
        CUBIEMEM_OK) {
        held->array = array;
        answer->value = array.nbytes;
        answer->grant = array.grant;
    }
    cubiemem_response_free(response);
}

static int do_allocate(struct held *held, const struct player_order *order,
                       struct player_answer *answer)
{
    struct cubiemem_response *response;
    int status = cubiemem_allocate(held->instance, NULL, &response);

    if (status == CUBIEMEM_OK) {
        note_response(held, order, response, answer);
    }
    return status;
}

static int do_response(struct held *held, const struct player_order *order,
                       struct player_answer *answer)
{
    struct cubiemem_response *response;
    int status = cubiemem_take_response(held->instance, &response);

    if (status == CUBIEMEM_OK) {
        note_response(held, order, response, answer);
    }
    return status;
}

static void do_write(struct held *held, uint64_t word)
{
    uint64_t *words = held->array.pointer;

    for (uint64_t i = 0; i < held->array.nbytes / sizeof(*words); i++) {
        words[i] = word;
    }
}

static uint64_t count_foreign(const struct held *held, uint64_t word)
{
    const uint64_t *words = held->array.pointer;
    uint64_t n = 0;

    for (uint64_t i = 0; i < held->array.nbytes / sizeof(*words); i++) {
        n += words[i] != word;
    }
    return n;
}

static int do_end(struct held *held)
{
    cubiemem_stream stream;
    int status = cubiemem_group_stream(held->instance, &stream);

    return status == CUBIEMEM_OK ? cubiemem_end_work(held->instance, stream) : status;
}

static int do_use(struct held *held)
{
    int status = cubiemem_begin_work(held->instance);

    if (status == CUBIEMEM_OK) {
        do_write(held, 0x75736564);
        status = do_end(held);
    }
    return status == CUBIEMEM_OK ? cubiemem_sync(held->instance) : status;
}

static int do_delay(struct held *held, uint64_t ns)
{
    struct context *context = &held->instance->client->context;
    struct context_guard guard;
    cubiemem_stream stream;
    int status = cubiemem_group_stream(held->instance, &stream);

    if (status == CUBIEMEM_OK) {
        status = context_enter(context, &guard);
    }
    if (status == CUBIEMEM_OK) {
        status = context->driver.simDelay(stream, ns) == CUDA_SUCCESS ? CUBIEMEM_OK
                                                                      : CUBIEMEM_CUDA;
        context_leave(context, &guard);
    }
    return status;
}

static uint64_t do_fork(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        for (;;) {
            pause();
        }
    }
    return (uint64_t)pid;
}

static int obey(struct play *play, const struct player_order *order, struct player_answer *answer)
{
    struct held *held = &play->held[order->instance];
    const char *label = order->text;

    switch (order->what) {
    case PLAYER_REGISTER:
        return do_register(play, order);
    case PLAYER_QUEUE:
        return do_queue(held, order);
    case PLAYER_TAKE:
        must(do_queue(held, order), "queue");
        return do_allocate(held, order, answer);
    case PLAYER_ALLOCATE:
        return do_allocate(held, order, answer);
    case PLAYER_RESPONSE:
        return do_response(held, order, answer);
    case PLAYER_BEGIN:
        return cubiemem_begin_work(held->instance);
    case PLAYER_END:
        return do_end(held);
    case PLAYER_SYNC:
        return cubiemem_sync(held->instance);
    case PLAYER_USE:
        return do_use(held);
    case PLAYER_DELAY:
        return do_delay(held, order->size);
    case PLAYER_WRITE:
        do_write(held, order->size);
        return CUBIEMEM_OK;
    case PLAYER_CHECK:
        answer->value = count_foreign(held, order->size);
        return CUBIEMEM_OK;
    case PLAYER_RELEASE:
        return cubiemem_release(held->instance, label[0] != '\0' ? &label : NULL,
                                label[0] != '\0');
    case PLAYER_HOOKS:
        answer->value = held->hooks;
        return CUBIEMEM_OK;
    case PLAYER_UNREGISTER:
        cubiemem_unregister(held->instance);
        return CUBIEMEM_OK;
    case PLAYER_FORK:
        answer->value = do_fork();
        return CUBIEMEM_OK;
    case PLAYER_HANG_UP:
        return shutdown(play->client->channel.socket, SHUT_RDWR) == 0 ? CUBIEMEM_OK
                                                                      : CUBIEMEM_SYSTEM;
    case PLAYER_EXEC:
    case PLAYER_CLOSE:
    case PLAYER_EXIT:
    default:
        return CUBIEMEM_OK; /* after the answer */
    }
}

__attribute__((noreturn)) static void leave(struct play *play, enum player_do how)
{
    if (how == PLAYER_CLOSE) {
        cubiemem_close(play->client);
        exit(EXIT_SUCCESS);
    }
    if (how == PLAYER_EXEC) {
        execlp("sleep", "sleep", "3600", (char *)NULL);
    }
    _exit(EXIT_SUCCESS);
}

static void play_run(int fd, const void *argument)
{
    struct play play = *(const struct play *)argument;
    struct cubiemem_options options = {.size = sizeof(options), .name = play.name};
    struct player_order order;

    if (play.setting != NULL) {
        putenv((char *)(uintptr_t)play.setting);
    }
    play.client = harness_connect(play.harness, &options);
    for (;;) {
        struct player_answer answer = {0};
        role_hear(fd, &order, sizeof(order));
        expect(order.instance < PLAYER_INSTANCES, "a player has no instance %u", order.instance);
        answer.status = obey(&play, &order, &answer);
        role_tell(fd, &answer, sizeof(answer));
        if (order.what == PLAYER_CLOSE || order.what == PLAYER_EXIT ||
            order.what == PLAYER_EXEC) {
            leave(&play, order.what);
        }
    }
}

/* --------------------------------------------------------------- the test */

void player_start_with(struct player *player_p, const struct harness *harness, const char *name,
                       const char *setting)
{
    const struct play play = {.harness = harness, .name = name, .setting = setting};

    role_start(&player_p->role, name, play_run, &play);
}

void player_start(struct player *player_p, const struct harness *harness, const char *name)
{
    player_start_with(player_p, harness, name, NULL);
}

void player_tell(struct player *player, const struct player_order *order)
{
    role_tell(player->role.fd, order, sizeof(*order));
}

struct player_answer player_hear(struct player *player)
{
    struct player_answer answer;

    role_hear(player->role.fd, &answer, sizeof(answer));
    return answer;
}

bool player_has_answered(struct player *player, int timeout_ms)
{
    struct pollfd readable = {.fd = player->role.fd, .events = POLLIN};

    return poll(&readable, 1, timeout_ms) > 0;
}

struct player_answer player_do(struct player *player, const struct player_order *order)
{
    player_tell(player, order);
    return player_hear(player);
}

static void succeed(struct player *player, const struct player_order *order, const char *what)
{
    int status = player_do(player, order).status;

    expect(status == CUBIEMEM_OK, "%s: %s answers %s", player->role.name, what,
           cubiemem_status_name(status));
}

void player_register(struct player *player, enum player_hook wanted)
{
    succeed(player, &(struct player_order){.what = PLAYER_REGISTER, .hook = wanted}, "register");
}

int player_take(struct player *player, uint64_t size)
{
    return player_do(player, &(struct player_order){.what = PLAYER_TAKE, .size = size}).status;
}

void player_use(struct player *player)
{
    succeed(player, &(struct player_order){.what = PLAYER_USE}, "use");
}

int player_begin(struct player *player)
{
    return player_do(player, &(struct player_order){.what = PLAYER_BEGIN}).status;
}

void player_end(struct player *player)
{
    succeed(player, &(struct player_order){.what = PLAYER_END}, "end_work");
}

uint64_t player_hooks(struct player *player)
{
    return player_do(player, &(struct player_order){.what = PLAYER_HOOKS}).value;
}

void player_stop(struct player *player)
{
    siginfo_t info;

    kill(player->role.pid, SIGSTOP);
    expect(waitid(P_PID, (id_t)player->role.pid, &info, WSTOPPED | WNOWAIT) == 0,
           "%s does not stop", player->role.name);
}

void player_continue(struct player *player)
{
    kill(player->role.pid, SIGCONT);
}

void player_close(struct player *player)
{
    succeed(player, &(struct player_order){.what = PLAYER_CLOSE}, "close");
    role_finish(&player->role);
}

void player_kill(struct player *player)
{
    role_kill(&player->role);
}
