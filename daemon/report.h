/*
 * report - the whole state as one JSON document
 *
 * What `cubiememctl status --json` prints; the README lists its keys.
 */
#ifndef DAEMON_REPORT_H
#define DAEMON_REPORT_H

#include "daemon.h"

/* malloc'ed; NULL when host memory is short. */
char *report_json(const struct daemon *daemon);

#endif
