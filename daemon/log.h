/*
 * log - one line per event on stderr
 *
 * Where the journal reads stderr (JOURNAL_STREAM), lines carry sd-daemon's <N>
 * prefixes and no time; elsewhere the time and the level. A line is one write, so lines
 * of several threads and processes do not mix. What a client supplied goes through
 * log_quote() first: no client writes lines or terminal sequences into the log.
 */
#ifndef LOG_H
#define LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* "error", "warn", "info", "debug" */
bool log_level_from_name(const char *name, enum log_level *level_p);
const char *log_level_name(enum log_level level);

/* Before the first line (without it: info, no journal). Also ignores SIGPIPE. */
void log_open(enum log_level level);
/* From any thread, at any time. */
void log_set_level(enum log_level level);
bool log_wants(enum log_level level);

__attribute__((format(printf, 2, 3))) void log_line(enum log_level level, const char *format, ...);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#define LOG_QUOTE_SIZE 128
/*
 * Text of a stranger in double quotes: what is not printable ASCII, quotes and
 * backslashes become \xNN; what is too long ends in "...". NULL is (none).
 * Returns buffer.
 */
const char *log_quote(const char *text, char buffer[LOG_QUOTE_SIZE]);

/*
 * A brake for lines that a client can cause at will: `burst` lines in `period_ns`, and the
 * next line behind a gap says how many were left out. Zero-initialised: 5 in 10 s. One
 * thread at a time.
 */
struct log_limit {
    uint32_t burst;
    uint64_t period_ns;
    /* the brake's own */
    uint64_t started_ns;
    uint32_t used;
    uint64_t left_out;
};
__attribute__((format(printf, 3, 4))) void
log_ratelimited(struct log_limit *limit, enum log_level level, const char *format, ...);

#endif
