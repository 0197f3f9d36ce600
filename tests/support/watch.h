/*
 * watch - the daemon's status as a test looks at it, and whether its books balance
 *
 * Uses a tool's connection: no instance, no driver, so the process may fork.
 */
#ifndef SUPPORT_WATCH_H
#define SUPPORT_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness.h"

/* By how much the daemon may have grown. A sanitizer keeps what is freed for a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RSS_SLACK_KIB ((uint64_t)1 << 20)
#else
#define RSS_SLACK_KIB 2048
#endif

struct watch {
    struct cubiemem_client *client;
    pid_t daemon;
};

void watch_open(const struct harness *harness, struct watch *watch_p);
void watch_close(struct watch *watch);

/* A figure of the whole, such as "lent_bytes". */
uint64_t watch_figure(struct watch *watch, const char *name);
/* A figure of the client of this name; 0 if there is none. */
uint64_t watch_client(struct watch *watch, const char *client, const char *name);
bool watch_state_is(struct watch *watch, const char *client, const char *state);
size_t watch_n_clients(struct watch *watch);

/* Wait until the figure is this, timeout_ms at most; fails then. */
void watch_until(struct watch *watch, const char *name, uint64_t value, int timeout_ms);
void watch_until_client(struct watch *watch, const char *client, const char *name, uint64_t value,
                        int timeout_ms);
void watch_until_n_clients(struct watch *watch, size_t n, int timeout_ms);

/* At any time: what clients hold is what is lent, and nothing is handed out twice.
 * Fails with the whole status otherwise. */
void watch_balance(struct watch *watch);
/* The same when nobody asks for anything: also nothing is promised, and each client
 * holds what its instances are charged. */
void watch_balance_at_rest(struct watch *watch);

int watch_daemon_fds(const struct watch *watch);
/* 0 in a sanitizer's build, whose own memory grows. */
uint64_t watch_daemon_rss_kib(const struct watch *watch);

#endif
