/*
 * request - what an instance has queued and not yet been given (rule 4)
 *
 * A new request replaces the earlier one whole and keeps its place in the queue
 * of the group; an empty one counts as one too. Checked when it is queued, for
 * what one request alone can show; run counts are compared when the batch is
 * planned.
 */
#include <stdlib.h>

#include "model.h"

void request_free(struct request *request)
{
    free(request->arrays);
    free(request->hashes);
    *request = (struct request){ 0 };
}

int policy_queue(struct policy *policy, struct policy_instance *instance,
                 const struct array *arrays, size_t n, size_t *culprit_p, const char **why_p)
{
    struct stream_group *group = instance->group;
    struct request request = { .n = n };
    int status = arrays_check(arrays, n, culprit_p, why_p);

    (void)policy;
    if (status != CUBIEMEM_OK) {
        return status;
    }
    if (instance->in_plan) {
        *culprit_p = 0;
        *why_p = "a batch with the earlier request is being granted";
        return CUBIEMEM_BUSY;
    }
    request.arrays = arrays_copy(arrays, n);
    request.hashes = malloc((n > 0 ? n : 1) * sizeof(*request.hashes));
    if (request.arrays == NULL || request.hashes == NULL) {
        request_free(&request);
        *culprit_p = 0;
        *why_p = "not enough host memory";
        return CUBIEMEM_HOST_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        request.hashes[i] = hash_name(request.arrays[i].label);
    }
    request_free(&instance->request);
    instance->request = request;
    if (!instance->has_request) {
        instance->has_request = true;
        list_append(group->first_queued, group->last_queued, instance, previous_queued,
                    next_queued);
    }
    return CUBIEMEM_OK;
}

void request_remove(struct policy_instance *instance)
{
    struct stream_group *group = instance->group;

    if (!instance->has_request) {
        return;
    }
    instance->has_request = false;
    list_remove(group->first_queued, group->last_queued, instance, previous_queued, next_queued);
    request_free(&instance->request);
}

void policy_unqueue(struct policy *policy, struct policy_instance *instance)
{
    (void)policy;
    if (!instance->in_plan) {
        request_remove(instance);
    }
}
