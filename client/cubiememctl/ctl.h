/*
 * ctl - what the verbs of cubiememctl share: options, the way to the daemon, exit
 * statuses
 *
 * A verb gets the options and its own arguments, as many as it wants, from argv[1]
 * on, and returns the exit status; it has then said on stderr what went wrong. Only results go to
 * stdout: with --json one document and nothing else.
 */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "../connection.h"
#include "cubiemem.h"
#include "cubiemem.pb-c.h"
#include "listing.h"

enum ctl_exit {
    CTL_OK = 0,
    CTL_FAILED = 1,
    CTL_USAGE = 2,
    CTL_DISCONNECTED = 3,
    CTL_NOT_PERMITTED = 4,
    CTL_NOT_FOUND = 5,
    CTL_NO_MEMORY = 6,
    CTL_VERSION = 7,
};

/* The options of all verbs, and those of single ones. */
struct ctl {
    const char *socket; /* NULL: by the environment */
    const char *gpu;
    int64_t timeout_ns;
    bool json;
    const char *limit_name;
    const char *limit_uid;
    const char *limit_gid;
    bool limit_daemon;
    bool kill; /* kick */
    bool off;  /* drain */
    struct listing_style style;
};

/* ctl.c */
__attribute__((format(printf, 2, 3))) int ctl_fail(int exit_status, const char *format, ...);
int ctl_exit_status(int status);
/* Seconds as people write them; false unless finite, above 0 and at most a day. */
bool ctl_parse_seconds(const char *text, int64_t *ns_p);
/* A whole number that fits 32 bits (a uid, a gid); false otherwise. */
bool ctl_parse_id(const char *text, uint32_t *id_p);
/* "0.25", "1"; false unless a finite number from low to high and nothing behind it. */
bool ctl_parse_number(const char *text, double low, double high, double *number_p);
/* Pretty, valid and ASCII only; takes the document. */
int ctl_print_json(json_t *document);

/* daemon.c: each says what went wrong and returns an exit status */
int ctl_open(const struct ctl *ctl, struct cubiemem_client **client_p);
int ctl_call(struct cubiemem_client *client, Cubiemem__ClientMessage *message,
             Cubiemem__DaemonMessage **reply_p);
/* One connection, one request. The reply is freed with client_reply_free(). */
int ctl_request(const struct ctl *ctl, Cubiemem__ClientMessage *message,
                Cubiemem__DaemonMessage **reply_p);
/* The status document, parsed; to be freed with json_decref(). */
int ctl_status(const struct ctl *ctl, json_t **document_p);

/* Shown documents: pure, for tests. */
void status_print(const json_t *document, const struct listing_style *style, FILE *out);
void clients_print(const json_t *document, const struct listing_style *style, FILE *out);
void instances_print(const json_t *document, const struct listing_style *style, FILE *out);
/* Nothing if nobody waits. */
void waiting_print(const json_t *document, const struct listing_style *style, FILE *out);
void limits_print(const json_t *document, const struct listing_style *style, FILE *out);
void groups_print(const json_t *document, const struct listing_style *style, FILE *out);

/* The verbs. */
int cmd_status(const struct ctl *ctl, int argc, char **argv);
int cmd_clients(const struct ctl *ctl, int argc, char **argv);
int cmd_instances(const struct ctl *ctl, int argc, char **argv);
int cmd_groups(const struct ctl *ctl, int argc, char **argv);
int cmd_ping(const struct ctl *ctl, int argc, char **argv);
int cmd_version(const struct ctl *ctl, int argc, char **argv);
int cmd_set_mode(const struct ctl *ctl, int argc, char **argv);
int cmd_set_proportion(const struct ctl *ctl, int argc, char **argv);
int cmd_set_limit(const struct ctl *ctl, int argc, char **argv);
int cmd_evict(const struct ctl *ctl, int argc, char **argv);
int cmd_kick(const struct ctl *ctl, int argc, char **argv);
int cmd_drain(const struct ctl *ctl, int argc, char **argv);

#endif
