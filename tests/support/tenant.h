/*
 * tenant - a client that holds plain arrays of bytes, for tests and benchmarks
 *
 * Shortens the long way from a connection to an array: one instance, arrays of one
 * dimension that are never cut. Failures end the program, but for tenant_try().
 */
#ifndef SUPPORT_TENANT_H
#define SUPPORT_TENANT_H

#include <stddef.h>
#include <stdint.h>

#include "cubiemem.h"
#include "harness.h"

#define TENANT_MAX_ARRAYS 8

struct tenant {
    struct cubiemem_client *client;
    struct cubiemem_instance *instance;
};

/* handle_kind 0: the default. */
void tenant_open(const struct harness *harness, const char *name, int handle_kind,
                 struct tenant *tenant_p);
void tenant_close(struct tenant *tenant);

/* Ask for n arrays of these sizes at once, labels "a", "b", ... in the place of
 * those of the same names. */
void tenant_take(struct tenant *tenant, const uint64_t *sizes, size_t n,
                 struct cubiemem_array *arrays_p);
/* One array "a". Return: the library's status. */
int tenant_try(struct tenant *tenant, uint64_t size, struct cubiemem_array *array_p);
/* The same, again and again until it is granted, for timeout_ms at most; fails then. */
void tenant_take_when_free(struct tenant *tenant, uint64_t size, int timeout_ms,
                           struct cubiemem_array *array_p);
/* All arrays back. */
void tenant_release(struct tenant *tenant);

/* A figure of the daemon's status, such as "lent_bytes". */
uint64_t tenant_figure(struct tenant *tenant, const char *name);

#endif
