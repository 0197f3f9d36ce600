/*
 * test_ctl_kick - whom kick --kill signals, and whom never; how clients are named
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client_name.h"
#include "ctl.h"
#include "kick.h"

static pid_t sleeper(void)
{
    pid_t child = fork();

    if (child == 0) {
        for (;;) {
            pause();
        }
    }
    assert_true(child > 0);
    return child;
}

/* Field 22 of its stat; the name of this program has neither blank nor ')'. */
static uint64_t start_time(pid_t pid)
{
    char path[64];
    unsigned long long time = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file,
                            "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
                            "%*d %*d %*d %*d %llu",
                            &time),
                     1);
    fclose(file);
    return time;
}

static void only_the_process_that_connected_is_killed(void **state)
{
    pid_t child = sleeper();
    uint64_t time = start_time(child);
    int status;

    (void)state;
    assert_int_equal(kick_kill((uint32_t)child, time + 1), CTL_NOT_FOUND);
    assert_int_equal(kick_kill((uint32_t)child, 0), CTL_NOT_FOUND);
    assert_int_equal(kick_kill(0, time), CTL_NOT_FOUND);
    assert_int_equal(waitpid(child, &status, WNOHANG), 0);
    assert_int_equal(kick_kill((uint32_t)child, time), CTL_OK);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(kick_kill((uint32_t)child, time), CTL_NOT_FOUND);
}

static void clients_are_named_by_numbers(void **state)
{
    static const char *const bad[] = {"", "/", "/x", "x", "x/1", "3/", "-3", " 3", "3 ", "3x",
                                      "3x/y", "99999999999999999999999/x"};
    char text[64];
    struct client_name name;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), "%s", bad[i]);
        assert_false(client_name_parse(text, &name));
    }
    snprintf(text, sizeof(text), "18446744073709551615");
    assert_true(client_name_parse(text, &name));
    assert_true(name.client == UINT64_MAX);
    assert_null(name.instance);
    snprintf(text, sizeof(text), "3/a/b c");
    assert_true(client_name_parse(text, &name));
    assert_int_equal(name.client, 3);
    assert_string_equal(name.instance, "a/b c");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_process_that_connected_is_killed),
        cmocka_unit_test(clients_are_named_by_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
