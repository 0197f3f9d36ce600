/*
 * exit_status - what the daemon's exit says; cubiememd@.service relies on it
 *
 * Statuses above 1 will not get better by starting again.
 */
#ifndef EXIT_STATUS_H
#define EXIT_STATUS_H

enum exit_status {
    EXIT_STATUS_OK = 0,
    EXIT_STATUS_SYSTEM = 1,    /* everything else */
    EXIT_STATUS_USAGE = 2,     /* bad option, bad value, socket path too long */
    EXIT_STATUS_NO_DEVICE = 5, /* no driver, no such GPU */
    EXIT_STATUS_CONFIG = 6,    /* configuration, also of socket activation */
    EXIT_STATUS_IN_USE = 7,    /* a live daemon, or no socket, on the path */
};

#endif
