/*
 * The library's connection against a scripted daemon: connecting, calls from
 * many threads, parts, hang-ups, forks. No device is touched.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cubiemem.h"
#include "fake_daemon.h"
#include "protocol_limits.h"
#include "stories.h"

static struct fake_daemon fake;

static struct cubiemem_client *connect_fake(void)
{
    struct cubiemem_options options = {.size = sizeof options, .socket = fake.path,
                                       .timeout_ns = PATIENCE_NS};
    struct cubiemem_client *client = NULL;
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_OK);
    return client;
}

static int n_open_fds(void)
{
    int n = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory) != NULL) {
        n++;
    }
    closedir(directory);
    return n;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* ------------------------------------------------------------- connect */

static void test_connect_nobody(void **state)
{
    (void)state;
    struct cubiemem_options options = {.size = sizeof options,
                                       .socket = "/tmp/cubiemem-nobody.sock"};
    struct cubiemem_client *client = (void *)1;
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_DISCONNECTED);
    assert_ptr_equal(client, (void *)1);
    assert_non_null(strstr(cubiemem_last_error()->text, "/tmp/cubiemem-nobody.sock"));
}

static void test_connect_bad_options(void **state)
{
    (void)state;
    char name[300];
    memset(name, 'x', sizeof name);
    name[256] = '\0';
    struct cubiemem_client *client = NULL;
    struct cubiemem_options options = {.size = 1};
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_INVALID_REQUEST);
    options = (struct cubiemem_options){.size = sizeof options, .timeout_ns = -1};
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_INVALID_REQUEST);
    options = (struct cubiemem_options){.size = sizeof options, .handle_kind = 7};
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_INVALID_REQUEST);
    options = (struct cubiemem_options){.size = sizeof options, .name = name};
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_INVALID_REQUEST);
    options = (struct cubiemem_options){.size = sizeof options};
    assert_int_equal(cubiemem_connect(&options, NULL), CUBIEMEM_INVALID_REQUEST);
}

static void test_connect_version(void **state)
{
    (void)state;
    struct cubiemem_client *client = NULL;
    fake_daemon_start(&fake, NULL, NULL, NULL);
    struct cubiemem_options options = {.size = sizeof options, .socket = fake.path};
    fake.major = PROTOCOL_MAJOR + 1;
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_VERSION_MISMATCH);
    assert_non_null(strstr(cubiemem_last_error()->text, "upgrade libcubiemem"));
    fake.major = PROTOCOL_MAJOR - 1;
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_VERSION_MISMATCH);
    assert_non_null(strstr(cubiemem_last_error()->text, "upgrade cubiememd"));
    fake.major = PROTOCOL_MAJOR;
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_OK);
    cubiemem_close(client);
    fake_daemon_stop(&fake);
}

static bool refuse_hello(struct fake_daemon *daemon, const Cubiemem__ClientMessage *message)
{
    fake_daemon_answer(daemon, message->id, CUBIEMEM_DRAINING, "nobody new\nplease");
    return true;
}

static void test_connect_refused(void **state)
{
    (void)state;
    struct cubiemem_client *client = NULL;
    fake_daemon_start(&fake, NULL, refuse_hello, NULL);
    struct cubiemem_options options = {.size = sizeof options, .socket = fake.path};
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_DRAINING);
    assert_non_null(strstr(cubiemem_last_error()->text, "nobody new please"));
    fake_daemon_stop(&fake);
}

/* A hundred connections leave no descriptor behind, refused ones neither. */
static void test_connect_leaks_nothing(void **state)
{
    (void)state;
    fake_daemon_start(&fake, NULL, NULL, NULL);
    cubiemem_close(connect_fake());
    int before = n_open_fds();
    for (int i = 0; i < 100; i++) {
        struct cubiemem_client *client = connect_fake();
        struct cubiemem_device_info info = {.size = sizeof info};
        assert_int_equal(cubiemem_device_info(client, &info), CUBIEMEM_OK);
        assert_string_equal(info.uuid, fake.uuid);
        assert_int_equal(info.simulated, 1);
        cubiemem_close(client);
    }
    usleep(50000);
    assert_in_range(n_open_fds(), before - 2, before + 2);
    fake_daemon_stop(&fake);
}

/* --------------------------------------------------------------- calls */

static void test_ping(void **state)
{
    (void)state;
    fake_daemon_start(&fake, NULL, NULL, NULL);
    struct cubiemem_client *client = connect_fake();
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    assert_int_equal(cubiemem_ping(client, -1), CUBIEMEM_INVALID_REQUEST);
    assert_int_equal(cubiemem_ping(client, INT64_MIN), CUBIEMEM_INVALID_REQUEST);
    assert_int_equal(cubiemem_ping(client, INT64_MAX), CUBIEMEM_OK);
    assert_int_equal(cubiemem_ping(NULL, 1), CUBIEMEM_INVALID_REQUEST);
    assert_int_equal(cubiemem_get_fd(client), CUBIEMEM_INVALID_REQUEST);
    assert_int_equal(cubiemem_dispatch(client, 0), CUBIEMEM_INVALID_REQUEST);
    /* Events between the answers are read by whoever reads, and harm nobody. */
    fake_daemon_invalidate(&fake, 99);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    }
    for (int i = 0; i < 500 && fake.n_evicted == 0; i++) {
        usleep(10000); /* by the library's thread, in its own time */
    }
    assert_int_equal(fake.n_evicted, 1);
    cubiemem_close(client);
    fake_daemon_stop(&fake);
}

static void *ping_often(void *arg)
{
    for (int i = 0; i < 500; i++) {
        if (cubiemem_ping(arg, PATIENCE_NS) != CUBIEMEM_OK) {
            return (void *)1;
        }
    }
    return NULL;
}

static void test_ping_from_threads(void **state)
{
    (void)state;
    pthread_t threads[8];
    fake_daemon_start(&fake, NULL, NULL, NULL);
    struct cubiemem_client *client = connect_fake();
    for (size_t i = 0; i < 8; i++) {
        pthread_create(&threads[i], NULL, ping_often, client);
    }
    for (size_t i = 0; i < 8; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    cubiemem_close(client);
    fake_daemon_stop(&fake);
}

/* Answers pings in the wrong order, two by two. */
static uint64_t kept_id;
static bool answer_backwards(struct fake_daemon *daemon, const Cubiemem__ClientMessage *message)
{
    if (message->ping == NULL) {
        return false;
    }
    if (kept_id == 0) {
        kept_id = message->id;
        return true;
    }
    fake_daemon_answer(daemon, message->id, CUBIEMEM_OK, NULL);
    fake_daemon_answer(daemon, kept_id, CUBIEMEM_OK, NULL);
    kept_id = 0;
    return true;
}

static void test_answers_overtake(void **state)
{
    (void)state;
    pthread_t threads[2];
    fake_daemon_start(&fake, NULL, answer_backwards, NULL);
    struct cubiemem_client *client = connect_fake();
    for (size_t i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, ping_often, client);
    }
    for (size_t i = 0; i < 2; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    cubiemem_close(client);
    fake_daemon_stop(&fake);
}

static bool never_answer(struct fake_daemon *daemon, const Cubiemem__ClientMessage *message)
{
    (void)daemon;
    return message->ping != NULL;
}

static void test_timeout(void **state)
{
    (void)state;
    fake_daemon_start(&fake, NULL, never_answer, NULL);
    struct cubiemem_client *client = connect_fake();
    int64_t start = now_ns();
    assert_int_equal(cubiemem_ping(client, 100000000), CUBIEMEM_TIMEOUT);
    assert_in_range(now_ns() - start, 100000000, PATIENCE_NS);
    assert_int_equal(cubiemem_ping(client, 0), CUBIEMEM_TIMEOUT);
    cubiemem_close(client);
    fake_daemon_stop(&fake);
}

static void *ping_once(void *arg)
{
    return (void *)(intptr_t)cubiemem_ping(arg, 20000000000);
}

/* The daemon vanishes while a call waits: it ends at once, and so do the next. */
static void test_hang_up(void **state)
{
    (void)state;
    pthread_t threads[3];
    fake_daemon_start(&fake, NULL, never_answer, NULL);
    struct cubiemem_client *client = connect_fake();
    int64_t start = now_ns();
    for (size_t i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, ping_once, client);
    }
    usleep(100000);
    fake_daemon_hang_up(&fake);
    for (size_t i = 0; i < 3; i++) {
        void *status = NULL;
        pthread_join(threads[i], &status);
        assert_int_equal((intptr_t)status, CUBIEMEM_DISCONNECTED);
    }
    assert_in_range(now_ns() - start, 0, PATIENCE_NS);
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_DISCONNECTED);
    cubiemem_close(client);
    fake_daemon_stop(&fake);
}

/* -------------------------------------------------------------- parts */

static void test_status_in_parts(void **state)
{
    (void)state;
    char *json = NULL;
    fake_daemon_start(&fake, NULL, NULL, NULL);
    struct cubiemem_client *client = connect_fake();
    assert_int_equal(cubiemem_status_json(client, &json), CUBIEMEM_OK);
    assert_string_equal(json, "[0]");
    cubiemem_string_free(json);
    fake.n_fake_parts = 3;
    assert_int_equal(cubiemem_status_json(client, &json), CUBIEMEM_OK);
    assert_string_equal(json, "[0][1][2]");
    cubiemem_string_free(json);
    cubiemem_close(client);
    fake_daemon_stop(&fake);
}

static const char *garbage;
static size_t garbage_size;
static bool answer_garbage(struct fake_daemon *daemon, const Cubiemem__ClientMessage *message)
{
    if (message->ping == NULL) {
        return false;
    }
    (void)!send(daemon->socket, garbage, garbage_size, MSG_NOSIGNAL);
    return true;
}

/* What is no message of the protocol ends the connection, and nothing else. */
static void test_garbage(void **state)
{
    (void)state;
    static const char claims_4_gib[] = "\x22\xff\xff\xff\xff\x0f";
    static const char part_7[] = "\x08\x02\x10\x07\x18\x01";
    static char large[PACKET_MAX_SIZE + 1];
    const struct {
        const char *bytes;
        size_t size;
    } cases[] = {
        {"\xff\xff\xff\xff", 4}, {claims_4_gib, 6}, {part_7, 6}, {"", 0}, {large, sizeof large},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        garbage = cases[i].bytes;
        garbage_size = cases[i].size;
        fake_daemon_start(&fake, NULL, answer_garbage, NULL);
        struct cubiemem_client *client = connect_fake();
        assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_DISCONNECTED);
        assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_DISCONNECTED);
        cubiemem_close(client);
        fake_daemon_stop(&fake);
    }
}

/* --------------------------------------------------------------- fork */

static void test_fork(void **state)
{
    (void)state;
    int status = 0;
    fake_daemon_start(&fake, NULL, NULL, NULL);
    struct cubiemem_client *client = connect_fake();
    pid_t child = fork();
    if (child == 0) {
        struct cubiemem_instance *instance = NULL;
        int ok = cubiemem_ping(client, PATIENCE_NS) == CUBIEMEM_FORKED &&
                 cubiemem_register(client, "x", NULL, &instance) == CUBIEMEM_FORKED;
        cubiemem_close(client);
        _exit(ok ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    cubiemem_close(client);
    fake_daemon_stop(&fake);
}

/* ------------------------------------------------------ manual dispatch */

static void test_manual_dispatch(void **state)
{
    (void)state;
    fake_daemon_start(&fake, NULL, NULL, NULL);
    struct cubiemem_options options = {.size = sizeof options, .socket = fake.path,
                                       .manual_dispatch = 1};
    struct cubiemem_client *client = NULL;
    assert_int_equal(cubiemem_connect(&options, &client), CUBIEMEM_OK);
    assert_in_range(cubiemem_get_fd(client), 0, 1000);
    assert_int_equal(cubiemem_dispatch(client, -1), CUBIEMEM_INVALID_REQUEST);
    assert_int_equal(cubiemem_dispatch(client, 0), CUBIEMEM_OK);
    fake_daemon_invalidate(&fake, 99);
    /* The ping reads the event; it waits for dispatch. */
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    assert_int_equal(fake.n_evicted, 0);
    assert_int_equal(cubiemem_dispatch(client, PATIENCE_NS), CUBIEMEM_OK);
    assert_int_equal(cubiemem_ping(client, PATIENCE_NS), CUBIEMEM_OK);
    assert_int_equal(fake.n_evicted, 1);
    fake_daemon_hang_up(&fake);
    usleep(20000);
    assert_int_equal(cubiemem_dispatch(client, PATIENCE_NS), CUBIEMEM_DISCONNECTED);
    cubiemem_close(client);
    fake_daemon_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connect_nobody),
        cmocka_unit_test(test_connect_bad_options),
        cmocka_unit_test(test_connect_version),
        cmocka_unit_test(test_connect_refused),
        cmocka_unit_test(test_connect_leaks_nothing),
        cmocka_unit_test(test_ping),
        cmocka_unit_test(test_ping_from_threads),
        cmocka_unit_test(test_answers_overtake),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_hang_up),
        cmocka_unit_test(test_status_in_parts),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_manual_dispatch),
    };
    return stories_run(tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
