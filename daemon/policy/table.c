/*
 * table - an intrusive chained hash table whose insertion cannot fail
 *
 * Grows when there is one node a bucket. Shrinks never: a table that was large
 * will be large again, or is about to go.
 */
#include "table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void table_init(struct table *table)
{
    memset(table, 0, sizeof(*table));
    table->buckets = table->few;
    table->n_buckets = TABLE_FEW;
}

void table_finish(struct table *table)
{
    assert(table->n == 0);
    if (table->buckets != table->few) {
        free(table->buckets);
    }
    table->buckets = NULL;
}

static void table_grow(struct table *table)
{
    size_t n_buckets = table->n_buckets * 4;
    struct table_node **buckets = calloc(n_buckets, sizeof(struct table_node *));

    if (buckets == NULL) {
        return; /* longer chains, still right */
    }
    for (size_t i = 0; i < table->n_buckets; i++) {
        struct table_node *node = table->buckets[i];

        while (node != NULL) {
            struct table_node *next = node->next;
            struct table_node **bucket = &buckets[node->hash & (n_buckets - 1)];

            node->next = *bucket;
            *bucket = node;
            node = next;
        }
    }
    if (table->buckets != table->few) {
        free(table->buckets);
    }
    table->buckets = buckets;
    table->n_buckets = n_buckets;
}

void table_add(struct table *table, struct table_node *node, uint64_t hash)
{
    struct table_node **bucket;

    if (table->n >= table->n_buckets) {
        table_grow(table);
    }
    bucket = &table->buckets[hash & (table->n_buckets - 1)];
    node->hash = hash;
    node->next = *bucket;
    *bucket = node;
    table->n++;
}

void table_remove(struct table *table, struct table_node *node)
{
    struct table_node **link = &table->buckets[node->hash & (table->n_buckets - 1)];

    while (*link != node) {
        link = &(*link)->next;
    }
    *link = node->next;
    node->next = NULL;
    table->n--;
}

static struct table_node *chain_find(struct table_node *node, uint64_t hash)
{
    while (node != NULL && node->hash != hash) {
        node = node->next;
    }
    return node;
}

struct table_node *table_first(const struct table *table, uint64_t hash)
{
    return chain_find(table->buckets[hash & (table->n_buckets - 1)], hash);
}

struct table_node *table_next(const struct table_node *node)
{
    return chain_find(node->next, node->hash);
}

uint64_t hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325ull;

    for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++) {
        hash = (hash ^ *c) * 0x100000001b3ull;
    }
    return hash_mix(hash, 0);
}

uint64_t hash_mix(uint64_t hash, uint64_t value)
{
    hash ^= value * 0x9e3779b97f4a7c15ull;
    hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93ull;
    return hash ^ (hash >> 32);
}
