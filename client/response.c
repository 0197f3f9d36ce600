/*
 * response - what one grant placed, as the program is told
 *
 * A description of its own: freeing it gives no memory back, and releasing
 * memory does not change it.
 */
#include "response.h"

#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "output.h"

struct cubiemem_response *response_create(const Cubiemem__ArrayResponse *message,
                                          const struct placements *arrays)
{
    struct cubiemem_response *response = calloc(1, sizeof *response);
    if (response == NULL) {
        return NULL;
    }
    if (!placements_describe(arrays, &response->arrays)) {
        free(response);
        return NULL;
    }
    response->grant = message->grant;
    response->partition = (struct cubiemem_partition){
        .size = sizeof response->partition,
        .runs = message->runs,
        .chunks = message->chunks,
        .chunk_length = message->chunk_length,
        .tail_length = message->tail_length,
        .warnings = message->warnings,
    };
    return response;
}

void cubiemem_response_free(struct cubiemem_response *response)
{
    if (response != NULL) {
        placements_finish(&response->arrays, NULL);
        free(response);
    }
}

int cubiemem_response_partition(const struct cubiemem_response *response,
                                struct cubiemem_partition *partition_p)
{
    if (response == NULL) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "no response");
    }
    return copy_out(partition_p, &response->partition, sizeof response->partition);
}

int cubiemem_response_array(const struct cubiemem_response *response, const char *label,
                            struct cubiemem_array *array_p)
{
    if (response == NULL || label == NULL) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "no response, or no label");
    }
    const struct placement *place = placements_find(&response->arrays, label);
    if (place == NULL) {
        return failure_set(CUBIEMEM_NOT_FOUND, "the grant has no array %.255s", label);
    }
    return copy_out(array_p, &place->array, sizeof place->array);
}

int cubiemem_response_chunk(const struct cubiemem_response *response, uint64_t index,
                            uint64_t *first_p, uint64_t *n_p)
{
    if (response == NULL || first_p == NULL || n_p == NULL) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "no response, or nowhere to put it");
    }
    const struct cubiemem_partition *partition = &response->partition;
    uint64_t first;
    if (index >= partition->chunks ||
        __builtin_mul_overflow(index, partition->chunk_length, &first)) {
        return failure_set(CUBIEMEM_NOT_FOUND, "chunk %llu of %llu does not exist",
                           (unsigned long long)index, (unsigned long long)partition->chunks);
    }
    *first_p = first;
    *n_p = index + 1 == partition->chunks ? partition->tail_length : partition->chunk_length;
    return CUBIEMEM_OK;
}
