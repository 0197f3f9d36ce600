/* One line per event, whole, quoted and braked; and what systemd is told. */
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

#include "log.h"
#include "notify.h"

static void test_quoting_lets_no_control_character_through(void **state)
{
    char buffer[LOG_QUOTE_SIZE];
    char text[300];

    (void)state;
    assert_string_equal(log_quote("pkfit 3", buffer), "\"pkfit 3\"");
    assert_string_equal(log_quote("a\nb\x1b[2J\"\\", buffer),
                        "\"a\\x0ab\\x1b[2J\\x22\\x5c\"");
    assert_string_equal(log_quote(NULL, buffer), "(none)");
    assert_string_equal(log_quote("", buffer), "\"\"");
    for (size_t length = 0; length < sizeof(text); length++) {
        memset(text, length % 2 ? '\n' : 'x', length);
        text[length] = '\0';
        log_quote(text, buffer);
        assert_true(strlen(buffer) < LOG_QUOTE_SIZE);
        assert_int_equal(buffer[strlen(buffer) - 1], '"');
        assert_null(strchr(buffer, '\n'));
    }
}

/* What some logging writes to stderr, which may be the journal. */
static size_t capture(void (*act)(void), bool journal, char *text, size_t size)
{
    int pipe_fds[2];
    int saved = dup(STDERR_FILENO);
    char stream[64];
    struct stat end;
    ssize_t n = 0;

    if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) == 0 && fstat(pipe_fds[1], &end) == 0) {
        snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)end.st_dev,
                 (uintmax_t)end.st_ino + (journal ? 0 : 1));
        setenv("JOURNAL_STREAM", stream, 1);
        dup2(pipe_fds[1], STDERR_FILENO);
        log_open(LOG_LEVEL_INFO);
        act();
        dup2(saved, STDERR_FILENO);
        n = read(pipe_fds[0], text, size - 1);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
    }
    close(saved);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

static struct log_limit limit = {.burst = 3, .period_ns = 500000000};

static void log_ten(void)
{
    for (int i = 0; i < 10; i++) {
        log_ratelimited(&limit, LOG_LEVEL_WARN, "line %d", i);
    }
}

static void log_long(void)
{
    char text[5000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    log_info("%s", text);
    log_debug("not wanted");
}

static int count(const char *text, char what)
{
    int n = 0;
    for (; *text != '\0'; text++) {
        n += *text == what;
    }
    return n;
}

static void test_a_noisy_client_is_braked(void **state)
{
    char text[4096];

    (void)state;
    capture(log_ten, false, text, sizeof(text));
    assert_int_equal(count(text, '\n'), 3);
    usleep(550000);
    capture(log_ten, false, text, sizeof(text));
    assert_int_equal(count(text, '\n'), 3);
    assert_non_null(strstr(text, "line 0 (7 lines like this left out)"));
}

static void test_a_long_line_is_cut_and_stays_one(void **state)
{
    char text[8192];

    (void)state;
    size_t length = capture(log_long, false, text, sizeof(text));
    assert_int_equal(count(text, '\n'), 1);
    assert_true(length <= 2048);
    assert_int_equal(text[length - 1], '\n');
}

static void log_two(void)
{
    log_error("first");
    log_info("second");
}

/* Prefixes are for the journal alone, and JOURNAL_STREAM may be another's. */
static void test_the_journal_gets_prefixes(void **state)
{
    char text[256];

    (void)state;
    capture(log_two, true, text, sizeof(text));
    assert_string_equal(text, "<3>first\n<6>second\n");
    capture(log_two, false, text, sizeof(text));
    assert_null(strchr(text, '<'));
    assert_non_null(strstr(text, "error first\n"));
    assert_non_null(strstr(text, "info  second\n"));
}

static void test_levels(void **state)
{
    enum log_level level = LOG_LEVEL_INFO;

    (void)state;
    log_set_level(LOG_LEVEL_WARN);
    assert_true(log_wants(LOG_LEVEL_ERROR));
    assert_true(log_wants(LOG_LEVEL_WARN));
    assert_false(log_wants(LOG_LEVEL_INFO));
    assert_true(log_level_from_name("debug", &level));
    assert_int_equal(level, LOG_LEVEL_DEBUG);
    assert_false(log_level_from_name("Debug", &level));
    assert_string_equal(log_level_name(LOG_LEVEL_WARN), "warn");
}

/* `cubiememd 2>&1 | head` is no way to end a daemon. */
static void test_nobody_reads_the_log(void **state)
{
    int pipe_fds[2];

    (void)state;
    int saved = dup(STDERR_FILENO);
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    close(pipe_fds[0]);
    log_open(LOG_LEVEL_INFO);
    dup2(pipe_fds[1], STDERR_FILENO);
    log_two();
    dup2(saved, STDERR_FILENO);
    close(pipe_fds[1]);
    close(saved);
}

/* ---------------------------------------------------------------- systemd */

static void test_systemd_is_told(void **state)
{
    char dir[] = "/tmp/notify.XXXXXX", text[256];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static const char *const wanted[] = {"READY=1\nSTATUS=serving", "STATUS=3 clients",
                                         "WATCHDOG=1", "STOPPING=1\nSTATUS=bye"};

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", dir);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    notify_ready("serving");
    notify_status("3 clients");
    notify_watchdog();
    notify_stopping("bye");
    unsetenv("NOTIFY_SOCKET");
    notify_status("nobody listens");
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        ssize_t n = recv(fd, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        assert_string_equal(text, wanted[i]);
    }
    assert_int_equal(recv(fd, text, sizeof(text), 0), -1);
    close(fd);
    unlink(address.sun_path);
    rmdir(dir);
}

static void test_the_watchdog_is_fed_twice_as_often(void **state)
{
    char pid[16];

    (void)state;
    unsetenv("WATCHDOG_USEC");
    assert_int_equal(notify_watchdog_interval_ns(), 0);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    setenv("WATCHDOG_USEC", "3000000", 1);
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(notify_watchdog_interval_ns(), 1500000000);
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quoting_lets_no_control_character_through),
        cmocka_unit_test(test_a_noisy_client_is_braked),
        cmocka_unit_test(test_a_long_line_is_cut_and_stays_one),
        cmocka_unit_test(test_the_journal_gets_prefixes),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_nobody_reads_the_log),
        cmocka_unit_test(test_systemd_is_told),
        cmocka_unit_test(test_the_watchdog_is_fed_twice_as_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
