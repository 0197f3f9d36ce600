/*
 * notify - what the daemon tells systemd about itself
 *
 * Nothing happens where nobody listens (no NOTIFY_SOCKET).
 */
#ifndef NOTIFY_H
#define NOTIFY_H

#include <stdint.h>

void notify_ready(const char *status);
void notify_status(const char *status);
void notify_reloading(void); /* notify_ready() ends it */
void notify_stopping(const char *status);
void notify_watchdog(void);

/* How often notify_watchdog() is wanted: half of the unit's WatchdogSec; 0: never. */
uint64_t notify_watchdog_interval_ns(void);

#endif
