/* table - rows of text in aligned columns, safe to show whatever the cells hold */
#ifndef CTL_TABLE_H
#define CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct table_column {
    const char *title;
    bool right;  /* numbers */
    bool shrink; /* may be cut when the line is too long */
};

struct table_style {
    size_t width; /* of a line; 0: as long as it takes */
    bool colour;
};

struct table;

/* The columns are borrowed. Memory that cannot be had ends the program. */
struct table *table_create(const struct table_column *columns, size_t n_columns);
void table_destroy(struct table *table);

/* The next cell, from left to right and row by row; copied, made printable. */
void table_add(struct table *table, const char *text);
__attribute__((format(printf, 2, 3))) void table_addf(struct table *table, const char *format, ...);

size_t table_rows(const struct table *table);
void table_print(const struct table *table, const struct table_style *style, FILE *out);

/*
 * A copy in which nothing can steer a terminal: control characters, marks that
 * turn the direction of writing and bytes that are no UTF-8 come out as \x1b,
 * \u202e and the like. To be freed.
 */
char *text_printable(const char *text);

/* Columns that a printable text takes. */
size_t text_width(const char *text);

#endif
