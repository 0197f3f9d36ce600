/*
 * role - a part of a test that runs in a process of its own
 *
 * A CUDA context does not survive fork, so the process that leads a test touches no
 * driver and gives each part that does to a forked role. They tell each other things
 * of agreed sizes over a socket pair. A role ends with the process that started it.
 */
#ifndef SUPPORT_ROLE_H
#define SUPPORT_ROLE_H

#include <stddef.h>
#include <sys/types.h>

struct role {
    const char *name;
    pid_t pid;
    int fd; /* the leader's end */
};

/* fd: the role's end. The process ends with status 0 when fn returns. */
typedef void role_fn(int fd, const void *argument);

void role_start(struct role *role_p, const char *name, role_fn *fn, const void *argument);
/* A program in the stage instead: fd is its standard output. */
void role_start_program(struct role *role_p, const char *path, const char *const *arguments);

/* Both sides. Waits at most this long; then the process fails. */
#define ROLE_PATIENCE_MS 60000
void role_tell(int fd, const void *data, size_t size);
void role_hear(int fd, void *data_p, size_t size);

/* Wait for the end; fails unless the status is 0. Passes a skip on. */
void role_finish(struct role *role);
/* SIGKILL, and wait. */
void role_kill(struct role *role);

#endif
