/*
 * table - numbers for objects that programs name by opaque handles
 *
 * A number is never given again before 2^31 others, so that a stale handle is
 * recognised. Number 0 is none.
 */
#ifndef DAEMON_SIM_TABLE_H
#define DAEMON_SIM_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct table {
    struct table_place *places;
    uint32_t n, first_free; /* index + 1; 0: none */
};

/* 0: no memory */
uint64_t table_add(struct table *table, void *object);
void *table_find(const struct table *table, uint64_t number);
/* Take it out; NULL: no such number. */
void *table_remove(struct table *table, uint64_t number);
/* The object behind *at, which moves on from 0; NULL at the end. */
void *table_next(const struct table *table, uint32_t *at);
/* Take out the object that table_next() has just returned, at *at - 1. */
void table_remove_at(struct table *table, uint32_t index);

#endif
