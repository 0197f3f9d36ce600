/*
 * outcome - see outcome.h
 */
#include "outcome.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cubiemem.h"

/* One write, so that the lines of several processes do not mix. */
__attribute__((format(printf, 2, 0))) static void say(const char *word, const char *format,
                                                      va_list arguments)
{
    char text[1024];

    vsnprintf(text, sizeof(text), format, arguments);
    fflush(stdout);
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, word, text);
}

void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say("FAILED", format, arguments);
    va_end(arguments);
    exit(EXIT_FAILURE);
}

void skip(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say("skipped", format, arguments);
    va_end(arguments);
    exit(OUTCOME_SKIPPED);
}

void must(int status, const char *what)
{
    if (status != CUBIEMEM_OK) {
        const struct cubiemem_error *error = cubiemem_last_error();
        fail("%s: %s: %s (errno %d, CUresult %d)", what, cubiemem_status_name(status),
             error->text != NULL ? error->text : "no text", error->sys_errno, error->cu_result);
    }
}
