/* document - fields of a status document as cells of a listing */
#ifndef CTL_DOCUMENT_H
#define CTL_DOCUMENT_H

#include <jansson.h>

#include "listing.h"

/* The text of a field, or `otherwise` where there is none. */
const char *document_text(const json_t *object, const char *key, const char *otherwise);
/* A count or a size; 0 where there is none. */
json_int_t document_integer(const json_t *object, const char *key);

/* Each adds one cell, "-" where the field is absent and "?" where it is null. */
void document_add_text(struct listing *listing, const json_t *object, const char *key);
void document_add_integer(struct listing *listing, const json_t *object, const char *key);
void document_add_size(struct listing *listing, const json_t *object, const char *key);

/* NULL (an empty list to json_array_foreach) unless it is a list. */
const json_t *document_array(const json_t *object, const char *key);

#endif
