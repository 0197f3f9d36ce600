/* The socket file: who may have it, what is replaced, and what is left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exit_status.h"
#include "listener.h"

#define UUID "GPU-aaaaaaaa-0000-0000-0000-000000000000"

static char dir[64];
static char path[ENDPOINT_PATH_MAX];
static char why[512];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/listener.XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(path, sizeof(path), "%.60s/s", dir);
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    return 0;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

static int listen_on(const char *group, struct listener *listener)
{
    const struct listener_config config = {.path = path, .uuid = UUID, .group = group};
    return listener_open(&config, listener, why, sizeof(why));
}

static int connect_to(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, path, sizeof(path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A socket left behind on the path. */
static void leave_dead_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, path, sizeof(path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    close(fd);
}

static void test_opens_serves_and_removes(void **state)
{
    struct listener listener;
    struct stat file;
    int on = 0;
    socklen_t size = sizeof(on);

    (void)state;
    assert_int_equal(listen_on(NULL, &listener), EXIT_STATUS_OK);
    int client = connect_to();
    assert_true(client >= 0);
    int accepted = accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(accepted >= 0);
    /* accepted ones inherit it, so even an early message has its sender */
    assert_int_equal(getsockopt(accepted, SOL_SOCKET, SO_PASSCRED, &on, &size), 0);
    assert_int_equal(on, 1);
    assert_true(fcntl(listener.fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(listener.fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(listener.lock_fd, F_GETFD) & FD_CLOEXEC);
    close(client);
    close(accepted);
    listener_finish(&listener);
    assert_int_equal(lstat(path, &file), -1);
    listener_finish(&listener); /* twice is fine */
}

/* CASES 36 */
static void test_the_mode_is_the_configurations_whatever_the_umask(void **state)
{
    static const mode_t masks[] = {077, 0, 0777};
    struct listener listener;
    struct stat file;
    const struct group *group = getgrgid(getegid());

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        mode_t before = umask(masks[i]);
        int status = listen_on(NULL, &listener);
        mode_t after = umask(before);
        assert_int_equal(status, EXIT_STATUS_OK);
        assert_int_equal(after, masks[i]);
        assert_int_equal(stat(path, &file), 0);
        assert_int_equal(file.st_mode & 07777, 0600);
        listener_finish(&listener);

        if (group == NULL) {
            continue;
        }
        before = umask(masks[i]);
        status = listen_on(group->gr_name, &listener);
        umask(before);
        assert_int_equal(status, EXIT_STATUS_OK);
        assert_int_equal(stat(path, &file), 0);
        assert_int_equal(file.st_mode & 07777, 0660);
        assert_int_equal(file.st_gid, group->gr_gid);
        listener_finish(&listener);
    }
}

static void test_an_unknown_group_leaves_nothing(void **state)
{
    struct listener listener;
    struct stat file;

    (void)state;
    assert_int_equal(listen_on("no-such-group-anywhere", &listener), EXIT_STATUS_USAGE);
    assert_non_null(strstr(why, "no-such-group-anywhere"));
    assert_int_equal(lstat(path, &file), -1);
    assert_int_equal(listen_on(NULL, &listener), EXIT_STATUS_OK); /* nor the lock */
    listener_finish(&listener);
}

/* CASES 31, a to c */
static void test_a_dead_socket_is_replaced(void **state)
{
    struct listener listener;

    (void)state;
    leave_dead_socket();
    assert_int_equal(listen_on(NULL, &listener), EXIT_STATUS_OK);
    int client = connect_to();
    assert_true(client >= 0);
    close(client);
    listener_finish(&listener);
}

static void test_a_live_daemon_is_left_alone(void **state)
{
    struct listener first, second;
    struct stat before, after;
    int ready[2], end[2];
    char byte;

    (void)state;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    pid_t pid = fork(); /* the other daemon is another process */
    if (pid == 0) {
        bool ok = listen_on(NULL, &first) == EXIT_STATUS_OK;
        if (write(ready[1], ok ? "y" : "n", 1) != 1) {
            _exit(1);
        }
        close(end[1]);
        _exit(read(end[0], &byte, 1) == 0 ? 0 : 1); /* without any clean-up */
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(lstat(path, &before), 0);
    assert_int_equal(listen_on(NULL, &second), EXIT_STATUS_IN_USE);
    char pid_text[32];
    snprintf(pid_text, sizeof(pid_text), "pid %d", (int)pid);
    assert_non_null(strstr(why, pid_text));
    assert_int_equal(lstat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    int client = connect_to();
    assert_true(client >= 0);
    close(client);

    close(end[1]); /* it dies; the lock goes with it, the socket stays behind */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(listen_on(NULL, &second), EXIT_STATUS_OK);
    listener_finish(&second);
    close(end[0]);
    close(ready[0]);
    close(ready[1]);
}

/* A program of another kind, without our lock, listens there. */
static void test_a_stranger_who_listens_is_left_alone(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static const int types[] = {SOCK_SEQPACKET, SOCK_STREAM, SOCK_DGRAM};
    struct listener listener;

    (void)state;
    memcpy(address.sun_path, path, sizeof(path));
    for (size_t i = 0; i < 3; i++) {
        int fd = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        if (types[i] != SOCK_DGRAM) {
            assert_int_equal(listen(fd, 1), 0);
        }
        assert_int_equal(listen_on(NULL, &listener), EXIT_STATUS_IN_USE);
        assert_non_null(strstr(why, path));
        assert_true(endpoint_is_alive(path));
        close(fd);
        unlink(path);
    }
}

static void test_what_is_no_socket_is_left_alone(void **state)
{
    struct listener listener;
    struct stat file;
    char text[8] = "";

    (void)state;
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    assert_int_equal(write(fd, "data", 4), 4);
    close(fd);
    assert_int_equal(listen_on(NULL, &listener), EXIT_STATUS_IN_USE);
    fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, text, sizeof(text)), 4);
    close(fd);
    assert_string_equal(text, "data");

    unlink(path);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_int_equal(listen_on(NULL, &listener), EXIT_STATUS_IN_USE);
    assert_int_equal(lstat(path, &file), 0);
    assert_true(S_ISLNK(file.st_mode));

    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(listen_on(NULL, &listener), EXIT_STATUS_IN_USE);
    rmdir(path);
}

static void test_a_lock_that_is_no_file_is_refused(void **state)
{
    struct listener listener;
    char lock[128];

    (void)state;
    snprintf(lock, sizeof(lock), "%s/%s.lock", dir, UUID);
    assert_int_equal(mkfifo(lock, 0600), 0);
    assert_int_equal(listen_on(NULL, &listener), EXIT_STATUS_IN_USE);
    unlink(lock);
    assert_int_equal(symlink("/etc/passwd", lock), 0);
    assert_int_equal(listen_on(NULL, &listener), EXIT_STATUS_SYSTEM);
    assert_non_null(strstr(why, lock));
}

static void test_another_ones_socket_is_not_removed(void **state)
{
    struct listener listener;
    struct stat file;

    (void)state;
    assert_int_equal(listen_on(NULL, &listener), EXIT_STATUS_OK);
    unlink(path);
    leave_dead_socket();
    listener_finish(&listener);
    assert_int_equal(lstat(path, &file), 0);
}

static void test_paths(void **state)
{
    char longer[200];
    const struct listener_config too_long = {.path = longer, .uuid = UUID};
    const struct listener_config no_dir = {.path = "/no/such/dir/s", .uuid = UUID};
    struct listener listener = {.fd = 77};

    (void)state;
    memset(longer, 'x', 108);
    longer[108] = '\0';
    assert_int_equal(listener_open(&too_long, &listener, why, sizeof(why)), EXIT_STATUS_USAGE);
    assert_int_equal(listener_open(&no_dir, &listener, why, sizeof(why)), EXIT_STATUS_SYSTEM);
    assert_non_null(strstr(why, "/no/such/dir"));
    assert_int_equal(listener.fd, 77); /* written on success only */
}

/* The life of a daemon that systemd started with this socket as descriptor 3. */
__attribute__((noreturn)) static void be_activated(int type, bool with_listen)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char text[16], other[ENDPOINT_PATH_MAX];
    const struct listener_config config = {.path = other, .uuid = UUID, .activation = true};
    struct listener listener;
    struct stat file;
    int on = 0;
    socklen_t size = sizeof(on);

    snprintf(other, sizeof(other), "%.60s/other", dir);
    memcpy(address.sun_path, path, sizeof(path));
    int fd = socket(AF_UNIX, type, 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        (with_listen && listen(fd, 8) != 0) || (fd != 3 && dup2(fd, 3) != 3)) {
        _exit(99);
    }
    snprintf(text, sizeof(text), "%d", (int)getpid());
    setenv("LISTEN_PID", text, 1);
    setenv("LISTEN_FDS", "1", 1);
    int status = listener_open(&config, &listener, why, sizeof(why));
    if (status != EXIT_STATUS_OK) {
        _exit(status);
    }
    getsockopt(listener.fd, SOL_SOCKET, SO_PASSCRED, &on, &size);
    if (!listener.passed || strcmp(listener.path, path) != 0 || on != 1) {
        _exit(98);
    }
    listener_finish(&listener);
    _exit(lstat(path, &file) == 0 ? 0 : 97); /* never unlinked */
}

static int activated(int type, bool with_listen)
{
    int status = 0;

    pid_t pid = fork();
    if (pid == 0) {
        be_activated(type, with_listen);
    }
    waitpid(pid, &status, 0);
    unlink(path);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_systemds_socket_is_used_and_kept(void **state)
{
    (void)state;
    assert_int_equal(activated(SOCK_SEQPACKET, true), EXIT_STATUS_OK);
    assert_int_equal(activated(SOCK_STREAM, true), EXIT_STATUS_CONFIG);
    assert_int_equal(activated(SOCK_SEQPACKET, false), EXIT_STATUS_CONFIG);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_opens_serves_and_removes),
        TEST(test_the_mode_is_the_configurations_whatever_the_umask),
        TEST(test_an_unknown_group_leaves_nothing),
        TEST(test_a_dead_socket_is_replaced),
        TEST(test_a_live_daemon_is_left_alone),
        TEST(test_a_stranger_who_listens_is_left_alone),
        TEST(test_what_is_no_socket_is_left_alone),
        TEST(test_a_lock_that_is_no_file_is_refused),
        TEST(test_another_ones_socket_is_not_removed),
        TEST(test_paths),
        TEST(test_systemds_socket_is_used_and_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
