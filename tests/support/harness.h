/*
 * harness - a daemon of one's own: private directory and socket, ready when asked
 *
 * The daemon is cubiememd of the same build, in a process that ends with the one
 * that started it. It says itself when it is ready (sd_notify), so nothing here
 * polls or guesses. Its log goes to a file in the directory and is shown when the
 * test fails.
 *
 * Functions that can fail print one line and end the program (outcome.h): there is
 * nothing left to test without a daemon.
 */
#ifndef SUPPORT_HARNESS_H
#define SUPPORT_HARNESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "cubiemem.h"

#define HARNESS_PATH_SIZE 96 /* so that what is in the directory fits in sun_path */

struct harness {
    char device[64];
    char dir[HARNESS_PATH_SIZE]; /* the run directory; the simulated GPU's file is in it */
    char socket[HARNESS_PATH_SIZE + 8];
    char log[HARNESS_PATH_SIZE + 8];
    pid_t pid; /* of the daemon; 0: none runs */
    pid_t starter;
};

struct harness_options {
    const char *program;          /* in the stage; NULL: cubiememd */
    const char *const *arguments; /* more of them, ended by NULL; or NULL */
    const char *const *variables; /* "NAME=value" for the daemon alone, ended by NULL; or NULL */
    bool open_to_all;             /* other users may connect */
};

/* $DEVICE, or what it is unset. "sim..." is the simulated device. */
const char *harness_device(const char *otherwise);
bool harness_device_is_simulated(const char *device);

/* The path of something in the stage (cubiememd, pkfit), checked to be there; false:
 * it is not. The stage is $CUBIEMEM_STAGE, else where this program is, else beside it. */
bool harness_stage_path(const char *name, char *path_p, size_t path_size);

/* Only the directory: what has to be looked at before the daemon runs. */
void harness_prepare(const char *device, struct harness *harness_p);
/* Start the daemon in it and wait until it serves. options may be NULL. */
void harness_launch(struct harness *harness, const struct harness_options *options);
/* Both. */
void harness_start(const char *device, const struct harness_options *options,
                   struct harness *harness_p);
/* Ask it to end; fails if it does not end with status 0. The directory stays. */
void harness_end_daemon(struct harness *harness);
/* The same where one runs, and removes the directory. */
void harness_stop(struct harness *harness);

/* options may be NULL; their socket is replaced by the harness's. */
struct cubiemem_client *harness_connect(const struct harness *harness,
                                        const struct cubiemem_options *options);

#endif
