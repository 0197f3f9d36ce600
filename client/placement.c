/*
 * placement - where the arrays of an instance lie
 *
 * Sorted lists: a merge of two is one walk, whatever the batch's size.
 */
#include "placement.h"

#include <stdlib.h>
#include <string.h>

bool placements_init(struct placements *list, size_t n)
{
    struct placement *items = calloc(n + 1, sizeof *items);
    *list = (struct placements){.items = items, .n = items != NULL ? n : 0};
    return items != NULL;
}

void placements_finish(struct placements *list, struct context *context)
{
    for (size_t i = 0; i < list->n; i++) {
        struct pinned *pinned = list->items[i].pinned;
        if (pinned != NULL && --pinned->refs == 0) {
            pinned_destroy(pinned, context);
        }
        if (!list->described) {
            free(list->items[i].label);
        }
    }
    free(list->items);
    *list = (struct placements){0};
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct placement *)a)->label, ((const struct placement *)b)->label);
}

void placements_sort(struct placements *list)
{
    size_t in_order = 1;
    while (in_order < list->n &&
           compare(&list->items[in_order - 1], &list->items[in_order]) <= 0) {
        in_order++;
    }
    if (in_order < list->n) {
        qsort(list->items, list->n, sizeof *list->items, compare);
    }
}

bool placements_have_twins(const struct placements *list)
{
    for (size_t i = 1; i < list->n; i++) {
        if (compare(&list->items[i - 1], &list->items[i]) == 0) {
            return true;
        }
    }
    return false;
}

struct placement *placements_find(const struct placements *list, const char *label)
{
    const struct placement key = {.label = (char *)(uintptr_t)label};
    return list->n == 0 ? NULL : bsearch(&key, list->items, list->n, sizeof key, compare);
}

bool placements_describe(const struct placements *from, struct placements *copy_p)
{
    size_t size = (from->n + 1) * sizeof *from->items;
    for (size_t i = 0; i < from->n; i++) {
        size += strlen(from->items[i].label) + 1;
    }
    struct placements copy = {.items = malloc(size), .n = from->n, .described = true};
    if (copy.items == NULL) {
        return false;
    }
    char *labels = (char *)(copy.items + from->n + 1);
    for (size_t i = 0; i < from->n; i++) {
        copy.items[i] = (struct placement){.label = labels, .array = from->items[i].array};
        labels = stpcpy(labels, from->items[i].label) + 1;
    }
    *copy_p = copy;
    return true;
}

bool placements_add_described(struct placements *described, const struct placements *more)
{
    struct placements both, sum;
    if (!placements_init(&both, described->n + more->n)) {
        return false;
    }
    size_t i = 0, j = 0;
    both.n = 0;
    while (i < described->n || j < more->n) {
        int order = i == described->n ? 1
                    : j == more->n    ? -1
                                      : compare(&described->items[i], &more->items[j]);
        j += order == 0;
        both.items[both.n++] = order <= 0 ? described->items[i++] : more->items[j++];
    }
    bool done = placements_describe(&both, &sum);
    free(both.items);
    if (done) {
        placements_finish(described, NULL);
        *described = sum;
    }
    return done;
}

void placements_keep_held(struct placements *described, const struct placements *held)
{
    size_t kept = 0;
    for (size_t i = 0; i < described->n; i++) {
        const struct placement *now = placements_find(held, described->items[i].label);
        if (now != NULL && now->array.grant == described->items[i].array.grant) {
            described->items[kept++] = described->items[i];
        }
    }
    described->n = kept;
}

bool placements_merge(struct placements *held, struct placements *fresh,
                      struct placements *replaced)
{
    struct placements merged, old;
    if (!placements_init(&merged, held->n + fresh->n)) {
        return false;
    }
    if (!placements_init(&old, held->n)) {
        free(merged.items);
        return false;
    }
    merged.n = old.n = 0;
    size_t i = 0, j = 0;
    while (i < held->n || j < fresh->n) {
        int order = i == held->n    ? 1
                    : j == fresh->n ? -1
                                    : compare(&held->items[i], &fresh->items[j]);
        if (order < 0) {
            merged.items[merged.n++] = held->items[i++];
            continue;
        }
        if (order == 0) {
            old.items[old.n++] = held->items[i++];
        }
        merged.items[merged.n++] = fresh->items[j++];
    }
    free(held->items);
    free(fresh->items);
    *held = merged;
    *fresh = (struct placements){0};
    *replaced = old;
    return true;
}

bool placements_remove(struct placements *held, const char *const *labels, size_t n_labels,
                       struct placements *removed)
{
    struct placements out;
    bool *goes = calloc(held->n + 1, sizeof *goes);
    if (goes == NULL || !placements_init(&out, held->n)) {
        free(goes);
        return false;
    }
    for (size_t i = 0; labels != NULL && i < n_labels; i++) {
        const struct placement *found = placements_find(held, labels[i]);
        if (found != NULL) {
            goes[found - held->items] = true;
        }
    }
    out.n = 0;
    size_t kept = 0;
    for (size_t i = 0; i < held->n; i++) {
        if (labels == NULL || goes[i]) {
            out.items[out.n++] = held->items[i];
        } else {
            held->items[kept++] = held->items[i];
        }
    }
    held->n = kept;
    free(goes);
    *removed = out;
    return true;
}
