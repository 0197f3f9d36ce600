/*
 * document - fields of a status document as cells of a listing
 *
 * The document comes from a daemon that may be older or newer than the tool, so a
 * field that is absent, or of another type, is shown as such and never trusted.
 */
#include "document.h"

#include "checked.h"

const char *document_text(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : otherwise;
}

json_int_t document_integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static const char *stand_in(const json_t *field)
{
    return json_is_null(field) ? "?" : "-";
}

void document_add_text(struct listing *listing, const json_t *object, const char *key)
{
    const json_t *field = json_object_get(object, key);

    listing_add(listing, json_is_string(field) ? json_string_value(field) : stand_in(field));
}

void document_add_integer(struct listing *listing, const json_t *object, const char *key)
{
    const json_t *field = json_object_get(object, key);

    if (json_is_integer(field)) {
        listing_addf(listing, "%" JSON_INTEGER_FORMAT, json_integer_value(field));
    } else {
        listing_add(listing, stand_in(field));
    }
}

void document_add_size(struct listing *listing, const json_t *object, const char *key)
{
    const json_t *field = json_object_get(object, key);
    char buffer[SIZE_TEXT_MAX];

    if (json_is_integer(field) && json_integer_value(field) >= 0) {
        listing_add(listing, size_format((uint64_t)json_integer_value(field), buffer));
    } else {
        document_add_integer(listing, object, key);
    }
}

const json_t *document_array(const json_t *object, const char *key)
{
    const json_t *array = json_object_get(object, key);

    return json_is_array(array) ? array : NULL;
}
