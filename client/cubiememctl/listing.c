/*
 * listing - rows of text in aligned columns, safe to show whatever the cells hold
 *
 * Cells may come from strangers (a client names itself), so every one is made
 * printable when it is added; a listing is the only way to the screen for such
 * text, next to text_printable(). Columns are as wide as their widest cell. When
 * a line would be longer than the terminal, the columns that may shrink are cut,
 * the widest first. A character counts as one column.
 */
#include "listing.h"

#include <err.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define GAP        2 /* columns between columns */
#define SHRINK_MIN 8 /* no column is cut below it */
#define ELLIPSIS   "..."

struct listing {
    const struct listing_column *columns;
    size_t n_columns;
    char **cells; /* row by row */
    size_t n_cells;
    size_t capacity;
};

static void *memory_or_end(void *memory)
{
    if (!memory) {
        err(1, "cannot show the listing");
    }
    return memory;
}

struct listing *listing_create(const struct listing_column *columns, size_t n_columns)
{
    struct listing *listing = memory_or_end(calloc(1, sizeof(*listing)));

    listing->columns = columns;
    listing->n_columns = n_columns;
    return listing;
}

void listing_destroy(struct listing *listing)
{
    if (!listing) {
        return;
    }
    for (size_t i = 0; i < listing->n_cells; i++) {
        free(listing->cells[i]);
    }
    free(listing->cells);
    free(listing);
}

void listing_add(struct listing *listing, const char *text)
{
    if (listing->n_cells == listing->capacity) {
        listing->capacity = listing->capacity ? 2 * listing->capacity : 64;
        listing->cells =
            memory_or_end(reallocarray(listing->cells, listing->capacity, sizeof(*listing->cells)));
    }
    listing->cells[listing->n_cells++] = text_printable(text);
}

void listing_addf(struct listing *listing, const char *format, ...)
{
    va_list arguments;
    char *text;

    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) {
        err(1, "cannot show the listing");
    }
    va_end(arguments);
    listing_add(listing, text);
    free(text);
}

size_t listing_rows(const struct listing *listing)
{
    return listing->n_cells / listing->n_columns;
}

/*
 * Decode one UTF-8 character of at most 4 bytes. Returns its bytes, or 0 for a
 * byte that begins none (overlong forms, surrogates and what lies above U+10FFFF
 * included).
 */
static size_t utf8_decode(const char *text, uint32_t *character_p)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char lead = (unsigned char)*text;
    size_t size = lead < 0x80 ? 1 : 0;

    if (lead >> 5 == 6) {
        size = 2;
    } else if (lead >> 4 == 14) {
        size = 3;
    } else if (lead >> 3 == 30) {
        size = 4;
    }
    if (size < 2) {
        *character_p = lead;
        return size;
    }
    uint32_t character = lead & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        unsigned char next = (unsigned char)text[i];
        if (next >> 6 != 2) {
            return 0;
        }
        character = character << 6 | (next & 0x3f);
    }
    if (character < least[size] || character > 0x10ffff || character >> 11 == 0x1b) {
        return 0;
    }
    *character_p = character;
    return size;
}

static bool is_harmless(uint32_t character)
{
    return character >= 0x20 && !(character >= 0x7f && character <= 0x9f) && character != 0xad &&
           character != 0x61c && !(character >= 0x200b && character <= 0x200f) &&
           !(character >= 0x2028 && character <= 0x202e) &&
           !(character >= 0x2060 && character <= 0x206f) && character != 0xfeff;
}

char *text_printable(const char *text)
{
    /* at most 6 bytes for one: \u202e has 3, \x1b one */
    size_t capacity = 6 * strlen(text) + 1;
    char *printable = memory_or_end(malloc(capacity));
    char *end = printable;

    while (*text) {
        uint32_t character;
        size_t size = utf8_decode(text, &character);
        if (size == 0) {
            end += snprintf(end, 7, "\\x%02x", (unsigned char)*text);
            size = 1;
        } else if (is_harmless(character)) {
            memcpy(end, text, size);
            end += size;
        } else {
            end += snprintf(end, 7, character < 0x80 ? "\\x%02x" : "\\u%04x", character);
        }
        text += size;
    }
    *end = '\0';
    return printable;
}

size_t text_width(const char *text)
{
    size_t width = 0;

    for (; *text; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

/* Bytes of the first `width` characters. */
static size_t prefix_size(const char *text, size_t width)
{
    size_t size = 0;

    while (text[size] && (width > 0 || ((unsigned char)text[size] & 0xc0) == 0x80)) {
        width -= ((unsigned char)text[size] & 0xc0) != 0x80;
        size++;
    }
    return size;
}

static void cell_print(const char *text, size_t width, bool right, bool last, FILE *out)
{
    size_t taken = text_width(text);
    const char *ellipsis = "";
    size_t size = strlen(text);

    if (taken > width) {
        size = prefix_size(text, width - strlen(ELLIPSIS));
        ellipsis = ELLIPSIS;
        taken = width;
    }
    int padding = (int)(width - taken);
    if (right) {
        fprintf(out, "%*s", padding, "");
    }
    fwrite(text, 1, size, out);
    fputs(ellipsis, out);
    if (!right && !last) {
        fprintf(out, "%*s", padding, "");
    }
    if (!last) {
        fprintf(out, "%*s", GAP, "");
    }
}

static size_t *widths_natural(const struct listing *listing, size_t *total_p)
{
    size_t *widths = memory_or_end(calloc(listing->n_columns, sizeof(*widths)));

    *total_p = GAP * (listing->n_columns - 1);
    for (size_t c = 0; c < listing->n_columns; c++) {
        widths[c] = text_width(listing->columns[c].title);
        for (size_t i = c; i < listing->n_cells; i += listing->n_columns) {
            size_t width = text_width(listing->cells[i]);
            widths[c] = width > widths[c] ? width : widths[c];
        }
        *total_p += widths[c];
    }
    return widths;
}

static void widths_shrink(const struct listing *listing, size_t *widths, size_t total,
                          size_t wanted)
{
    while (total > wanted) {
        size_t widest = SIZE_MAX;
        for (size_t c = 0; c < listing->n_columns; c++) {
            if (listing->columns[c].shrink && widths[c] > SHRINK_MIN &&
                (widest == SIZE_MAX || widths[c] > widths[widest])) {
                widest = c;
            }
        }
        if (widest == SIZE_MAX) {
            return;
        }
        widths[widest]--;
        total--;
    }
}

/* Row 0 is the titles. */
static const char *cell_at(const struct listing *listing, size_t row, size_t column)
{
    return row == 0 ? listing->columns[column].title
                    : listing->cells[(row - 1) * listing->n_columns + column];
}

static void row_print(const struct listing *listing, size_t row, const size_t *widths, FILE *out)
{
    size_t n = listing->n_columns;

    while (n > 1 && *cell_at(listing, row, n - 1) == '\0') {
        n--; /* no blanks at the end of a line */
    }
    for (size_t c = 0; c < n; c++) {
        cell_print(cell_at(listing, row, c), widths[c], listing->columns[c].right, c + 1 == n, out);
    }
}

void listing_print(const struct listing *listing, const struct listing_style *style, FILE *out)
{
    size_t total;
    size_t *widths = widths_natural(listing, &total);

    if (style->width > 0) {
        widths_shrink(listing, widths, total, style->width);
    }
    fputs(style->colour ? "\033[1m" : "", out);
    row_print(listing, 0, widths, out);
    fputs(style->colour ? "\033[0m\n" : "\n", out);
    for (size_t row = 1; row <= listing_rows(listing); row++) {
        row_print(listing, row, widths, out);
        fputc('\n', out);
    }
    free(widths);
}
