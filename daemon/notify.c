/*
 * notify - what the daemon tells systemd about itself
 *
 * sd_notify(3) by name; its failures are ignored, because a daemon serves its clients
 * whether its supervisor listens or not.
 */
#include "notify.h"

#include <systemd/sd-daemon.h>

void notify_ready(const char *status)
{
    sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_status(const char *status)
{
    sd_notifyf(0, "STATUS=%s", status);
}

void notify_reloading(void)
{
    sd_notify(0, "RELOADING=1");
}

void notify_stopping(const char *status)
{
    sd_notifyf(0, "STOPPING=1\nSTATUS=%s", status);
}

void notify_watchdog(void)
{
    sd_notify(0, "WATCHDOG=1");
}

uint64_t notify_watchdog_interval_ns(void)
{
    uint64_t interval_us = 0;

    if (sd_watchdog_enabled(0, &interval_us) <= 0 || interval_us > UINT64_MAX / 1000u) {
        return 0;
    }
    return interval_us * 1000u / 2;
}
