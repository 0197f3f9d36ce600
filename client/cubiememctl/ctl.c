/*
 * ctl - what the verbs share that needs no daemon: exit statuses, numbers, JSON
 *
 * Numbers that people write are taken whole or not at all, and never as NaN,
 * infinite or negative. The map of statuses to exit statuses is the one that
 * cubiememctl --help promises.
 */
#include "ctl.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define DAY_SECONDS 86400.0

int ctl_fail(int exit_status, const char *format, ...)
{
    va_list arguments;
    char *text = NULL;
    char *printable = NULL;

    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) >= 0) {
        printable = text_printable(text);
        free(text);
    }
    va_end(arguments);
    fprintf(stderr, "cubiememctl: %s\n", printable ? printable : strerror(ENOMEM));
    free(printable);
    return exit_status;
}

int ctl_exit_status(int status)
{
    switch (status) {
    case CUBIEMEM_OK:
        return CTL_OK;
    case CUBIEMEM_DISCONNECTED:
        return CTL_DISCONNECTED;
    case CUBIEMEM_NOT_PERMITTED:
        return CTL_NOT_PERMITTED;
    case CUBIEMEM_NOT_FOUND:
    case CUBIEMEM_NOT_REGISTERED:
        return CTL_NOT_FOUND;
    case CUBIEMEM_NO_MEMORY:
    case CUBIEMEM_TOO_LARGE:
    case CUBIEMEM_RUN_TOO_LARGE:
    case CUBIEMEM_UNCHUNKABLE_TOO_LARGE:
    case CUBIEMEM_QUOTA_OVERCOMMITTED:
    case CUBIEMEM_AUTO_POOL_TOO_SMALL:
        return CTL_NO_MEMORY;
    case CUBIEMEM_VERSION_MISMATCH:
        return CTL_VERSION;
    default:
        return CTL_FAILED;
    }
}

bool ctl_parse_number(const char *text, double low, double high, double *number_p)
{
    char *end;

    /* strtod would take "nan", "inf", "0x1p3" and leading blanks */
    if (*text == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0') {
        return false;
    }
    double number = strtod(text, &end);
    if (*end != '\0' || !isfinite(number) || signbit(number) || number < low || number > high) {
        return false;
    }
    *number_p = number;
    return true;
}

bool ctl_parse_seconds(const char *text, int64_t *ns_p)
{
    double seconds;

    if (!ctl_parse_number(text, 1e-9, DAY_SECONDS, &seconds)) {
        return false;
    }
    *ns_p = (int64_t)(seconds * 1e9);
    return true;
}

bool ctl_parse_id(const char *text, uint32_t *id_p)
{
    char *end;

    if (*text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    unsigned long long id = strtoull(text, &end, 10);
    /* (uid_t)-1 is nobody's */
    if (*end != '\0' || errno != 0 || id >= UINT32_MAX) {
        return false;
    }
    *id_p = (uint32_t)id;
    return true;
}

int ctl_print_json(json_t *document)
{
    if (!document) {
        return ctl_fail(CTL_FAILED, "out of memory");
    }
    int result = json_dumpf(document, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    json_decref(document);
    if (result < 0 || fputc('\n', stdout) == EOF) {
        return ctl_fail(CTL_FAILED, "cannot write: %s", strerror(errno));
    }
    return CTL_OK;
}
