/* listing - rows of text in aligned columns, safe to show whatever the cells hold */
#ifndef CTL_LISTING_H
#define CTL_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct listing_column {
    const char *title;
    bool right;  /* numbers */
    bool shrink; /* may be cut when the line is too long */
};

struct listing_style {
    size_t width; /* of a line; 0: as long as it takes */
    bool colour;
};

struct listing;

/* The columns are borrowed. Memory that cannot be had ends the program. */
struct listing *listing_create(const struct listing_column *columns, size_t n_columns);
void listing_destroy(struct listing *listing);

/* The next cell, from left to right and row by row; copied, made printable. */
void listing_add(struct listing *listing, const char *text);
__attribute__((format(printf, 2, 3))) void listing_addf(struct listing *listing, const char *format,
                                                        ...);

size_t listing_rows(const struct listing *listing);
void listing_print(const struct listing *listing, const struct listing_style *style, FILE *out);

/*
 * A copy in which nothing can steer a terminal: control characters, marks that
 * turn the direction of writing and bytes that are no UTF-8 come out as \x1b,
 * \u202e and the like. To be freed.
 */
char *text_printable(const char *text);

/* Columns that a printable text takes. */
size_t text_width(const char *text);

#endif
