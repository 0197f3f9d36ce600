/* Where sockets are: explicit paths, directories, several daemons, the dead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cubiemem.h"
#include "endpoint.h"

#define GPU_A "GPU-aaaaaaaa-0000-0000-0000-000000000000"
#define GPU_B "GPU-bbbbbbbb-0000-0000-0000-000000000000"

static char dir[64];
static char path[ENDPOINT_PATH_MAX];
static char why[512];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/endpoint.XXXXXX");
    unsetenv("CUBIEMEM_SOCKET");
    unsetenv("CUBIEMEM_GPU");
    if (mkdtemp(dir) == NULL || setenv("CUBIEMEM_RUNDIR", dir, 1) != 0) {
        return -1;
    }
    memset(path, '#', sizeof(path));
    return 0;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

/* A socket <dir>/<uuid>.sock on which somebody listens, or, closed, nobody. */
static int socket_make(const char *uuid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof(address.sun_path), "%.60s/%.40s.sock", dir, uuid);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static void assert_path_is(const char *uuid)
{
    char wanted[160];
    snprintf(wanted, sizeof(wanted), "%s/%s.sock", dir, uuid);
    assert_string_equal(path, wanted);
}

static int for_client(const char *uuid)
{
    return endpoint_for_client(NULL, uuid, path, why, sizeof(why));
}

static void test_an_explicit_path_wins(void **state)
{
    (void)state;
    setenv("CUBIEMEM_SOCKET", "/from/environment", 1);
    assert_int_equal(endpoint_for_client("/given", GPU_A, path, why, sizeof(why)), 0);
    assert_string_equal(path, "/given");
    assert_int_equal(for_client(GPU_A), 0);
    assert_string_equal(path, "/from/environment");
    assert_int_equal(endpoint_for_daemon(NULL, GPU_A, path, why, sizeof(why)), 0);
    assert_string_equal(path, "/from/environment");
    assert_int_equal(endpoint_run_dir(NULL, path, why, sizeof(why)), 0);
    assert_string_equal(path, "/from");
    setenv("CUBIEMEM_SOCKET", "", 1); /* empty is unset */
    assert_int_equal(endpoint_for_daemon(NULL, GPU_A, path, why, sizeof(why)), 0);
    assert_path_is(GPU_A);
}

static void test_the_directory_of_a_path(void **state)
{
    (void)state;
    endpoint_dir_of("/run/cubiemem/x.sock", path);
    assert_string_equal(path, "/run/cubiemem");
    endpoint_dir_of("/x.sock", path);
    assert_string_equal(path, "/");
    endpoint_dir_of("x.sock", path);
    assert_string_equal(path, ".");
}

static void test_a_path_of_107_bytes_fits_and_108_do_not(void **state)
{
    char text[120] = "/";

    (void)state;
    memset(text + 1, 'p', 106);
    assert_int_equal(endpoint_for_client(text, NULL, path, why, sizeof(why)), 0);
    assert_string_equal(path, text);
    text[107] = 'p';
    strcpy(path, "before");
    assert_int_equal(endpoint_for_client(text, NULL, path, why, sizeof(why)),
                     CUBIEMEM_INVALID_REQUEST);
    assert_int_equal(endpoint_for_daemon(text, GPU_A, path, why, sizeof(why)),
                     CUBIEMEM_INVALID_REQUEST);
    setenv("CUBIEMEM_RUNDIR", text, 1);
    assert_int_equal(for_client(NULL), CUBIEMEM_INVALID_REQUEST);
    text[100] = '\0'; /* the directory fits, a socket in it does not */
    setenv("CUBIEMEM_RUNDIR", text, 1);
    assert_int_equal(for_client(GPU_A), CUBIEMEM_INVALID_REQUEST);
    assert_string_equal(path, "before");
    assert_null(strchr(why, '\n'));
}

static void test_no_daemon_says_how_to_start_one(void **state)
{
    (void)state;
    assert_int_equal(for_client(NULL), CUBIEMEM_DISCONNECTED);
    assert_non_null(strstr(why, dir));
    assert_non_null(strstr(why, "cubiememd --device"));
    assert_int_equal(for_client(GPU_A), CUBIEMEM_DISCONNECTED);
    assert_non_null(strstr(why, GPU_A));
}

static void test_one_of_several_has_to_be_chosen(void **state)
{
    int a = socket_make(GPU_A);

    (void)state;
    assert_int_equal(for_client(NULL), 0);
    assert_path_is(GPU_A);
    int b = socket_make(GPU_B);
    assert_int_equal(for_client(NULL), CUBIEMEM_INVALID_REQUEST);
    assert_non_null(strstr(why, GPU_A));
    assert_non_null(strstr(why, GPU_B));
    setenv("CUBIEMEM_GPU", GPU_B, 1);
    assert_int_equal(for_client(NULL), 0);
    assert_path_is(GPU_B);
    assert_int_equal(for_client(GPU_A), 0);
    assert_path_is(GPU_A);
    close(a);
    close(b);
}

static void test_the_dead_do_not_count_beside_the_living(void **state)
{
    int a = socket_make(GPU_A);
    int b = socket_make(GPU_B);

    (void)state;
    close(a);
    assert_int_equal(for_client(NULL), 0);
    assert_path_is(GPU_B);
    assert_true(endpoint_is_alive(path));
    close(b);
    assert_false(endpoint_is_alive(path));
    assert_int_equal(for_client(NULL), 0); /* one of them: connect() will say it */
}

/* Asking whether a daemon lives leaves nothing for it to accept. */
static void test_asking_makes_no_connection(void **state)
{
    int a = socket_make(GPU_A);

    (void)state;
    fcntl(a, F_SETFL, O_NONBLOCK);
    assert_int_equal(for_client(GPU_A), 0);
    assert_true(endpoint_is_alive(path));
    assert_int_equal(accept4(a, NULL, NULL, SOCK_CLOEXEC), -1);
    close(a);
}

static void test_a_uuid_is_no_path(void **state)
{
    static const char *const bad[] = {"../GPU", "a/b", "", ".hidden"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(for_client(bad[i]), CUBIEMEM_INVALID_REQUEST);
        assert_int_equal(endpoint_for_daemon(NULL, bad[i], path, why, sizeof(why)),
                         CUBIEMEM_INVALID_REQUEST);
    }
}

static void test_only_sockets_are_listed(void **state)
{
    char file[160];
    char **paths;
    size_t n;
    int a = socket_make(GPU_B), b = socket_make(GPU_A);

    (void)state;
    snprintf(file, sizeof(file), "%s/file.sock", dir);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    snprintf(file, sizeof(file), "%s/x.lock", dir);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(endpoint_list(&paths, &n), CUBIEMEM_OK);
    assert_int_equal(n, 2);
    assert_non_null(strstr(paths[0], GPU_A));
    assert_non_null(strstr(paths[1], GPU_B));
    endpoint_list_free(paths, n);
    close(a);
    close(b);
}

/* The daemon makes its directory, with the mode that a socket for a group needs. */
static void test_the_daemon_makes_its_directory(void **state)
{
    static const mode_t masks[] = {077, 0};
    char below[128];
    struct stat made;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        snprintf(below, sizeof(below), "%s/run%zu", dir, i);
        setenv("CUBIEMEM_RUNDIR", below, 1);
        mode_t before = umask(masks[i]);
        int status = endpoint_for_daemon(NULL, GPU_A, path, why, sizeof(why));
        umask(before);
        assert_int_equal(status, 0);
        assert_int_equal(stat(below, &made), 0);
        assert_int_equal(made.st_mode & 07777, 0755);
    }
    snprintf(below, sizeof(below), "%s/no/such/parent", dir);
    setenv("CUBIEMEM_RUNDIR", below, 1);
    assert_int_equal(endpoint_for_daemon(NULL, GPU_A, path, why, sizeof(why)), CUBIEMEM_SYSTEM);
    assert_non_null(strstr(why, below));
    assert_non_null(strstr(why, "CUBIEMEM_RUNDIR"));
}

/* Without CUBIEMEM_RUNDIR a client looks below XDG_RUNTIME_DIR as well. */
static void test_a_client_looks_into_the_users_directory(void **state)
{
    char below[128];
    const char *const outer = dir;

    (void)state;
    snprintf(below, sizeof(below), "%s/cubiemem", outer);
    assert_int_equal(mkdir(below, 0700), 0);
    snprintf(dir + strlen(dir), sizeof(dir) - strlen(dir), "/cubiemem");
    int a = socket_make(GPU_A);
    unsetenv("CUBIEMEM_RUNDIR");
    *strrchr(dir, '/') = '\0';
    setenv("XDG_RUNTIME_DIR", dir, 1);
    int status = for_client(GPU_A);
    snprintf(below, sizeof(below), "%s/cubiemem/%s.sock", dir, GPU_A);
    assert_int_equal(status, 0);
    assert_string_equal(path, below);
    close(a);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_an_explicit_path_wins),
        TEST(test_the_directory_of_a_path),
        TEST(test_a_path_of_107_bytes_fits_and_108_do_not),
        TEST(test_no_daemon_says_how_to_start_one),
        TEST(test_one_of_several_has_to_be_chosen),
        TEST(test_the_dead_do_not_count_beside_the_living),
        TEST(test_asking_makes_no_connection),
        TEST(test_a_uuid_is_no_path),
        TEST(test_only_sockets_are_listed),
        TEST(test_the_daemon_makes_its_directory),
        TEST(test_a_client_looks_into_the_users_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
