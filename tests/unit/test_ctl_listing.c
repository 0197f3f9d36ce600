/*
 * Tables for people: aligned, cut to the terminal, and harmless whatever the cells
 * hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "../../client/cubiememctl/listing.h"

static const struct listing_column columns[] = {
    {"NAME", .shrink = true},
    {"SIZE", .right = true},
    {"STATE"},
};

static struct listing *listing_of(const char *const *cells, size_t n)
{
    struct listing *listing = listing_create(columns, 3);

    for (size_t i = 0; i < n; i++) {
        listing_add(listing, cells[i]);
    }
    return listing;
}

static void assert_printed(const char *const *cells, size_t n, struct listing_style style,
                           const char *wanted)
{
    struct listing *listing = listing_of(cells, n);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    listing_print(listing, &style, out);
    fclose(out);
    assert_string_equal(text, wanted);
    free(text);
    listing_destroy(listing);
}

static void columns_are_as_wide_as_their_widest_cell(void **state)
{
    static const char *const cells[] = {"a", "1 B", "idle", "long-name", "1023.9 MiB", "x"};

    (void)state;
    assert_printed(cells, 6, (struct listing_style){0},
                   "NAME             SIZE  STATE\n"
                   "a                 1 B  idle\n"
                   "long-name  1023.9 MiB  x\n");
    assert_printed(NULL, 0, (struct listing_style){0}, "NAME  SIZE  STATE\n");
}

/* A line of 21 fits into 21; into 20 the name is cut; no column below 8. */
static void long_names_are_cut_to_the_terminal(void **state)
{
    static const char *const cells[] = {"0123456789", "12", "idle"};

    (void)state;
    assert_printed(cells, 3, (struct listing_style){.width = 23},
                   "NAME        SIZE  STATE\n"
                   "0123456789    12  idle\n");
    assert_printed(cells, 3, (struct listing_style){.width = 22},
                   "NAME       SIZE  STATE\n"
                   "012345...    12  idle\n");
    assert_printed(cells, 3, (struct listing_style){.width = 1},
                   "NAME      SIZE  STATE\n"
                   "01234...    12  idle\n");
}

static void characters_are_never_cut_in_two(void **state)
{
    static const char *const cells[] = {"äöüäöüäöüäöü", "1", "x"};

    (void)state;
    assert_printed(cells, 3, (struct listing_style){.width = 21},
                   "NAME      SIZE  STATE\n"
                   "äöüäö...     1  x\n");
    assert_int_equal(text_width("äöü€😀"), 5);
}

static void colour_is_the_title_s_alone(void **state)
{
    static const char *const cells[] = {"a", "b", "c"};

    (void)state;
    assert_printed(cells, 3, (struct listing_style){.colour = true},
                   "\033[1mNAME  SIZE  STATE\033[0m\n"
                   "a        b  c\n");
}

static void assert_printable(const char *text, const char *wanted)
{
    char *printable = text_printable(text);

    assert_string_equal(printable, wanted);
    free(printable);
}

static void nothing_steers_the_terminal(void **state)
{
    static const char *const cells[] = {"\033[2J\nroot", "\r", "\t"};
    char all[256];

    (void)state;
    assert_printable("", "");
    assert_printable("plain äöü€😀 \\x", "plain äöü€😀 \\x");
    assert_printable("\033[31mred\a\177", "\\x1b[31mred\\x07\\x7f");
    assert_printable("\302\233"
                     "31m",
                     "\\u009b31m");                      /* C1: one-byte CSI */
    assert_printable("\342\200\256evil", "\\u202eevil"); /* right to left */
    assert_printable("\342\201\246\357\273\277", "\\u2066\\ufeff");
    assert_printable("\300\212", "\\xc0\\x8a");                   /* overlong newline */
    assert_printable("\355\240\200", "\\xed\\xa0\\x80");          /* surrogate */
    assert_printable("\364\220\200\200", "\\xf4\\x90\\x80\\x80"); /* above U+10FFFF */
    assert_printable("a\303", "a\\xc3");                          /* cut off */
    assert_printable("\200\377", "\\x80\\xff");
    assert_printed(cells, 3, (struct listing_style){0},
                   "NAME             SIZE  STATE\n"
                   "\\x1b[2J\\x0aroot  \\x0d  \\x09\n");
    for (int i = 0; i < 255; i++) {
        all[i] = (char)(i + 1);
    }
    all[255] = '\0';
    char *printable = text_printable(all);
    for (const char *at = printable; *at; at++) {
        assert_true(*at >= 0x20 && *at < 0x7f);
    }
    free(printable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
        cmocka_unit_test(long_names_are_cut_to_the_terminal),
        cmocka_unit_test(characters_are_never_cut_in_two),
        cmocka_unit_test(colour_is_the_title_s_alone),
        cmocka_unit_test(nothing_steers_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
