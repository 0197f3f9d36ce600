/*
 * stories - the tests of a program, each in a process of its own
 */
#include "stories.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* exit() and not _exit(): a sanitizer looks for leaks there. */
__attribute__((noreturn)) static void tell(const struct CMUnitTest *story, CMFixtureFunction setup,
                                           CMFixtureFunction teardown)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    exit(_cmocka_run_group_tests(story->name, story, 1, setup, teardown) == 0 ? 0 : 1);
}

static bool is_told_well(const struct CMUnitTest *story, CMFixtureFunction setup,
                         CMFixtureFunction teardown)
{
    int status = 0;

    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        tell(story, setup, teardown);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            pid = -1;
        }
    }
    if (pid < 0) {
        fprintf(stderr, "%s: no process: %s\n", story->name, strerror(errno));
        return false;
    }
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "%s: %s\n", story->name, strsignal(WTERMSIG(status)));
    }
    return status == 0;
}

int stories_run(const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                CMFixtureFunction teardown)
{
    const char *wanted = getenv("STORY");
    int n_failed = 0;

    for (size_t i = 0; i < n; i++) {
        if (wanted == NULL || strstr(tests[i].name, wanted) != NULL) {
            n_failed += !is_told_well(&tests[i], setup, teardown);
        }
    }
    if (n_failed > 0) {
        fprintf(stderr, "%d of %zu stories failed\n", n_failed, n);
    }
    return n_failed;
}
