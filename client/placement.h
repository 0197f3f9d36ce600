/*
 * placement - where the arrays of an instance lie
 *
 * A list sorted by label. An instance has one of everything it holds; a
 * response has a copy of what one grant placed.
 */
#ifndef CLIENT_PLACEMENT_H
#define CLIENT_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "blocks.h"
#include "cubiemem.h"
#include "pinned.h"

struct placement {
    char *label;
    struct cubiemem_array array;
    struct block_view *block; /* NULL: pinned or empty; only in an instance's list */
    struct pinned *pinned;    /* only in an instance's list */
};

struct placements {
    struct placement *items;
    size_t n;
    bool described; /* by placements_describe(): the labels lie behind the items */
};

bool placements_init(struct placements *list, size_t n); /* n zeroed items */
/* Frees the labels and items; pinned memory of nobody else is destroyed. */
void placements_finish(struct placements *list, struct context *context);
void placements_sort(struct placements *list);
/* Two of the same label in a sorted list? */
bool placements_have_twins(const struct placements *list);
struct placement *placements_find(const struct placements *list, const char *label);
/* The descriptions alone. False when host memory is short. */
bool placements_describe(const struct placements *from, struct placements *copy_p);
/* Add the descriptions of `more` whose labels `described` has not. False as above, with
 * nothing changed. */
bool placements_add_described(struct placements *described, const struct placements *more);
/* Leave out the descriptions that are not, of the same grant, in `held`. */
void placements_keep_held(struct placements *described, const struct placements *held);

/*
 * Make `fresh` part of `held`: it replaces what has the same label. Takes
 * fresh's items over; `replaced` gets the old ones. False when host memory is
 * short, with nothing changed.
 */
bool placements_merge(struct placements *held, struct placements *fresh,
                      struct placements *replaced);
/* Move what has one of the labels (NULL: everything) out of `held`. False as above. */
bool placements_remove(struct placements *held, const char *const *labels, size_t n_labels,
                       struct placements *removed);

#endif
