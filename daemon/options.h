/*
 * options - the daemon's command line
 *
 * One table feeds getopt_long, --help and the man page, so they cannot disagree.
 * Whatever is wrong gets one line that names the option. What depends on the device (a
 * percentage, the default reserve) is resolved once its size is known.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "log.h"
#include "policy.h"

#define OPTIONS_EVICT_TIMEOUT_NS 2000000000ull
#define OPTIONS_RESERVE_GPU (512ull << 20) /* bytes kept back on a GPU by default */

struct options {
    /* texts are of argv */
    const char *device;
    const char *socket;       /* NULL: by the rule (endpoint.h) */
    const char *socket_group; /* NULL: mode 0600 */
    const char *admin_group;  /* NULL: root and the daemon's user only */
    const char *budget;       /* SIZE or PERCENT, checked; NULL: total - reserve */
    const char *reserve;      /* SIZE, checked; NULL: the default */
    enum policy_mode mode;
    enum policy_auto_share auto_share;
    enum log_level log_level;
    uint64_t evict_timeout_ns;
    bool help, version; /* nothing else counts then */
};

/*
 * Return: EXIT_STATUS_OK, or EXIT_STATUS_USAGE with one line in why that names the
 * option.
 */
int options_parse(int argc, char *const *argv, struct options *options_p, char *why,
                  size_t why_size);

/* The text of --help; malloc'ed, NULL when host memory is short. */
char *options_help(void);

/*
 * options_resolve() - the figures that depend on the device
 * @total: bytes of the device
 *
 * budget = as configured, else total - reserve; reserve = as configured, else 512 MiB on
 * a GPU and 0 on the simulated device. A budget above the device is refused.
 *
 * Return: EXIT_STATUS_OK, or EXIT_STATUS_USAGE with one line in why.
 */
int options_resolve(const struct options *options, uint64_t total, bool simulated,
                    uint64_t *budget_p, uint64_t *reserve_p, char *why, size_t why_size);

#endif
