/*
 * table - numbers for objects that programs name by opaque handles
 *
 * A number is an index and the place's generation, so that what a hostile or
 * confused caller passes is looked up, never followed as a pointer.
 */
#include "table.h"

#include <stdlib.h>

struct table_place {
    void *object; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};

static int table_grow(struct table *table)
{
    uint32_t n = table->n ? 2 * table->n : 16;
    struct table_place *places = NULL;

    if (n > table->n) {
        places = realloc(table->places, n * sizeof(*places));
    }
    if (!places) {
        return -1;
    }
    for (uint32_t i = table->n; i < n; i++) {
        places[i] = (struct table_place){.generation = 1, .next_free = i + 1 < n ? i + 2 : 0};
    }
    table->first_free = table->n + 1;
    table->places = places;
    table->n = n;
    return 0;
}

uint64_t table_add(struct table *table, void *object)
{
    struct table_place *place;
    uint32_t index;

    if (!table->first_free && table_grow(table) < 0) {
        return 0;
    }
    index = table->first_free - 1;
    place = &table->places[index];
    table->first_free = place->next_free;
    place->object = object;
    return (uint64_t)place->generation << 32 | index;
}

static struct table_place *place_of(const struct table *table, uint64_t number)
{
    uint32_t index = (uint32_t)number;
    struct table_place *place = index < table->n ? &table->places[index] : NULL;

    return place && place->object && place->generation == number >> 32 ? place : NULL;
}

void *table_find(const struct table *table, uint64_t number)
{
    const struct table_place *place = place_of(table, number);

    return place ? place->object : NULL;
}

void *table_remove(struct table *table, uint64_t number)
{
    const struct table_place *place = place_of(table, number);
    void *object = place ? place->object : NULL;

    if (place) {
        table_remove_at(table, (uint32_t)number);
    }
    return object;
}

void table_remove_at(struct table *table, uint32_t index)
{
    struct table_place *place = &table->places[index];

    place->object = NULL;
    place->generation = place->generation == INT32_MAX ? 1 : place->generation + 1;
    place->next_free = table->first_free;
    table->first_free = index + 1;
}

void *table_next(const struct table *table, uint32_t *at)
{
    while (*at < table->n) {
        void *object = table->places[(*at)++].object;

        if (object) {
            return object;
        }
    }
    return NULL;
}
