/*
 * table - an intrusive chained hash table whose insertion cannot fail
 *
 * A commit must not fail, and it puts arrays under their labels: so the nodes
 * belong to the things themselves, a few buckets lie in the table, and more are
 * had only if there is memory for them (the chains are longer otherwise). That
 * is why this is not uthash, whose insertion allocates. What a key is, and when
 * two are equal, is the user's business: a lookup gives the nodes of one hash.
 * Tables do not move in memory while they are in use.
 */
#ifndef POLICY_TABLE_H
#define POLICY_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define TABLE_FEW 8u

struct table_node {
    struct table_node *next; /* of the bucket */
    uint64_t hash;
};

struct table {
    struct table_node **buckets;
    size_t n_buckets; /* a power of two */
    size_t n;
    struct table_node *few[TABLE_FEW];
};

/* The struct that a member lies in. */
#define container_of(pointer, type, member)                                                        \
    ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

void table_init(struct table *table);
void table_finish(struct table *table); /* must be empty */
void table_add(struct table *table, struct table_node *node, uint64_t hash);
void table_remove(struct table *table, struct table_node *node);
/* The nodes of this hash, one after the other; NULL at the end. */
struct table_node *table_first(const struct table *table, uint64_t hash);
struct table_node *table_next(const struct table_node *node);

/* FNV-1a over a name, and a stir of whole numbers into a hash. */
uint64_t hash_name(const char *name);
uint64_t hash_mix(uint64_t hash, uint64_t value);

#endif
