/*
 * log - one line per event on stderr
 *
 * A line is put together on the stack and written by one write(2); what is too long
 * is cut. Errors of the write are ignored: there is nobody left to tell. The level and
 * the kind of prefix are atomics, so any thread may log at any time.
 */
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_SIZE 2048u /* under PIPE_BUF, so that a line stays whole */

static const struct {
    const char *name;
    const char *prefix; /* sd-daemon(3) */
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", "<3>"},
    [LOG_LEVEL_WARN] = {"warn", "<4>"},
    [LOG_LEVEL_INFO] = {"info", "<6>"},
    [LOG_LEVEL_DEBUG] = {"debug", "<7>"},
};
#define N_LEVELS (sizeof(levels) / sizeof(levels[0]))

static _Atomic int wanted = LOG_LEVEL_INFO;
static atomic_bool to_journal;

bool log_level_from_name(const char *name, enum log_level *level_p)
{
    for (size_t i = 0; i < N_LEVELS; i++) {
        if (strcmp(name, levels[i].name) == 0) {
            *level_p = (enum log_level)i;
            return true;
        }
    }
    return false;
}

const char *log_level_name(enum log_level level)
{
    return levels[level].name;
}

/* JOURNAL_STREAM holds device and inode of the journal's socket. A program started
 * with its stderr elsewhere still has the variable, so they are compared. */
static bool stderr_is_journal(void)
{
    const char *text = getenv("JOURNAL_STREAM");
    struct stat state;
    uintmax_t dev, ino;

    return text != NULL && sscanf(text, "%" SCNuMAX ":%" SCNuMAX, &dev, &ino) == 2 &&
           fstat(STDERR_FILENO, &state) == 0 && state.st_dev == dev && state.st_ino == ino;
}

void log_open(enum log_level level)
{
    signal(SIGPIPE, SIG_IGN); /* that nobody reads the log any more is no reason to end */
    atomic_store(&to_journal, stderr_is_journal());
    log_set_level(level);
}

void log_set_level(enum log_level level)
{
    atomic_store(&wanted, (int)level);
}

bool log_wants(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&wanted, memory_order_relaxed);
}

/* Prefix of a line; returns its length. */
static size_t prefix_print(enum log_level level, char *line, size_t size)
{
    struct timespec now;
    struct tm local;
    int length;

    if (atomic_load_explicit(&to_journal, memory_order_relaxed)) {
        length = snprintf(line, size, "%s", levels[level].prefix);
    } else {
        clock_gettime(CLOCK_REALTIME, &now);
        localtime_r(&now.tv_sec, &local);
        length = snprintf(line, size, "%02d:%02d:%02d.%03ld %-5s ", local.tm_hour, local.tm_min,
                          local.tm_sec, now.tv_nsec / 1000000, levels[level].name);
    }
    return (size_t)length;
}

__attribute__((format(printf, 3, 0))) static void
write_line(enum log_level level, const char *tail, const char *format, va_list arguments)
{
    char line[LINE_MAX_SIZE];
    const int saved = errno;
    const size_t tail_length = strlen(tail) + 1; /* with the line's end */
    size_t length = prefix_print(level, line, sizeof(line));
    const size_t room = sizeof(line) - length - tail_length;

    int text = vsnprintf(line + length, room, format, arguments);
    if (text >= 0) {
        length += (size_t)text < room ? (size_t)text : room - 1;
        memcpy(line + length, tail, tail_length - 1);
        length += tail_length - 1;
        line[length++] = '\n';
        while (write(STDERR_FILENO, line, length) < 0 && errno == EINTR) {
        }
    }
    errno = saved;
}

void log_line(enum log_level level, const char *format, ...)
{
    va_list arguments;

    if (!log_wants(level)) {
        return;
    }
    va_start(arguments, format);
    write_line(level, "", format, arguments);
    va_end(arguments);
}

const char *log_quote(const char *text, char buffer[LOG_QUOTE_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    const size_t room = LOG_QUOTE_SIZE - sizeof("...\""); /* behind what is quoted */
    size_t length = 0;

    if (text == NULL) {
        memcpy(buffer, "(none)", sizeof("(none)"));
        return buffer;
    }
    buffer[length++] = '"';
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        const bool plain = *c >= 0x20 && *c < 0x7f && *c != '"' && *c != '\\';
        if (length + (plain ? 1 : 4) > room) {
            memcpy(buffer + length, "...", 3);
            length += 3;
            break;
        }
        if (plain) {
            buffer[length++] = (char)*c;
        } else {
            buffer[length++] = '\\';
            buffer[length++] = 'x';
            buffer[length++] = digits[*c >> 4];
            buffer[length++] = digits[*c & 15];
        }
    }
    buffer[length++] = '"';
    buffer[length] = '\0';
    return buffer;
}

void log_ratelimited(struct log_limit *limit, enum log_level level, const char *format, ...)
{
    const uint32_t burst = limit->burst != 0 ? limit->burst : 5;
    const uint64_t period_ns = limit->period_ns != 0 ? limit->period_ns : 10000000000ull;
    struct timespec time;
    char tail[64] = "";
    va_list arguments;

    if (!log_wants(level)) {
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &time);
    const uint64_t now = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    if (limit->started_ns == 0 || now - limit->started_ns >= period_ns) {
        limit->started_ns = now;
        limit->used = 0;
    }
    if (limit->used >= burst) {
        limit->left_out++;
        return;
    }
    limit->used++;
    if (limit->left_out > 0) {
        snprintf(tail, sizeof(tail), " (%" PRIu64 " lines like this left out)", limit->left_out);
        limit->left_out = 0;
    }
    va_start(arguments, format);
    write_line(level, tail, format, arguments);
    va_end(arguments);
}
