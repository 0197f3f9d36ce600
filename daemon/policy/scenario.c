/*
 * scenario - the steps of a scenario, carried out on a policy of its own
 *
 * Translates each step into calls of policy.h and what comes of them into events.
 * A process of the scenario is a scope and a process key, both the number of its
 * name in order of appearance; all are of one user, so that a shared group is
 * shared by all. Steps that fail are part of a scenario; a step that is none is
 * an error of the file. Reading arrays and comparing results stand in
 * scenario_array.c and scenario_compare.c.
 */
#include "scenario.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "scenario_array.h"
#include "status.h"

struct scenario {
    struct policy *policy;
    uint64_t free_bytes;
    json_t *processes; /* name -> number */
};

/* A step on its way. */
struct step {
    struct scenario *scenario;
    const json_t *json;
    int status;
    uint32_t warnings;
    json_t *events;
    bool has_result;
    uint64_t result;
    char *error;
    bool is_bad;
};

static void step_complain(struct step *step, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void step_complain(struct step *step, const char *format, ...)
{
    va_list args;

    if (step->is_bad) {
        return; /* the first complaint stands */
    }
    step->is_bad = true;
    va_start(args, format);
    vsnprintf(step->error, SCENARIO_ERROR_MAX, format, args);
    va_end(args);
}

/* --------------------------------------------------------------- arguments */

/* fallback NULL: the argument must be there. */
static const char *step_string(struct step *step, const char *key, const char *fallback)
{
    const json_t *value = json_object_get(step->json, key);

    if (value == NULL && fallback != NULL) {
        return fallback;
    }
    if (!json_is_string(value)) {
        step_complain(step, "\"%s\" must be a string", key);
        return fallback != NULL ? fallback : "";
    }
    return json_string_value(value);
}

static bool step_bool(struct step *step, const char *key, bool fallback)
{
    const json_t *value = json_object_get(step->json, key);

    if (value == NULL) {
        return fallback;
    }
    if (!json_is_boolean(value)) {
        step_complain(step, "\"%s\" must be true or false", key);
    }
    return json_is_true(value);
}

/* A number, or "nan", "inf", "-inf". */
static double step_proportion(struct step *step)
{
    const json_t *value = json_object_get(step->json, "proportion");
    const char *text = json_string_value(value);

    if (json_is_number(value)) {
        return json_number_value(value);
    }
    if (text != NULL && strcmp(text, "nan") == 0) {
        return __builtin_nan("");
    }
    if (text != NULL && strcmp(text, "inf") == 0) {
        return __builtin_inf();
    }
    if (text != NULL && strcmp(text, "-inf") == 0) {
        return -__builtin_inf();
    }
    step_complain(step, "\"proportion\" must be a number, \"nan\", \"inf\" or \"-inf\"");
    return 0;
}

/* The number of a process; a new one if the name is new. */
static uint64_t step_process(struct step *step)
{
    const char *name = step_string(step, "process", "p0");
    json_t *processes = step->scenario->processes;
    const json_t *number = json_object_get(processes, name);

    if (number != NULL) {
        return (uint64_t)json_integer_value(number);
    }
    if (json_object_set_new(processes, name,
                            json_integer((json_int_t)json_object_size(processes) + 1)) != 0) {
        step_complain(step, "not enough host memory");
    }
    return json_object_size(processes);
}

/* The names of instances are unique in a scenario. NULL: NOT_REGISTERED. */
static struct policy_instance *step_instance(struct step *step)
{
    const char *name = step_string(step, "instance", NULL);
    struct policy *policy = step->scenario->policy;
    size_t n_processes = json_object_size(step->scenario->processes);

    for (uint64_t scope = 1; scope <= n_processes; scope++) {
        struct policy_instance *instance = policy_find(policy, scope, name);

        if (instance != NULL) {
            return instance;
        }
    }
    step->status = CUBIEMEM_NOT_REGISTERED;
    return NULL;
}

/* ------------------------------------------------------------------ events */

static void step_event(struct step *step, json_t *event)
{
    if (event == NULL || json_array_append_new(step->events, event) != 0) {
        step_complain(step, "not enough host memory");
    }
}

static void step_event_invalidate(struct step *step, const struct policy_instance *instance)
{
    struct policy_instance_view view;

    policy_instance_read(instance, &view);
    step_event(step, json_pack("{s:s, s:s}", "event", "invalidate", "instance", view.name));
}

static json_t *json_of_array(const struct policy_array *array)
{
    json_t *shape = json_array();

    for (uint32_t i = 0; i < array->rank; i++) {
        json_array_append_new(shape, json_integer(array->shape[i]));
    }
    return json_pack("{s:o, s:I}", "shape", shape, "nbytes", (json_int_t)array->nbytes);
}

static void step_event_ready(struct step *step, const struct policy_plan *plan,
                             const struct policy_plan_member *member)
{
    struct policy_instance_view view;
    json_t *arrays = json_object();

    policy_instance_read(member->instance, &view);
    for (size_t i = 0; i < member->n_arrays; i++) {
        json_object_set_new(arrays, member->arrays[i].label, json_of_array(&member->arrays[i]));
    }
    step_event(step, json_pack("{s:s, s:s, s:I, s:I, s:I, s:o}", "event", "ready", "instance",
                               view.name, "chunks", (json_int_t)plan->partition.chunks,
                               "chunk_length", (json_int_t)plan->partition.chunk_length,
                               "tail_length", (json_int_t)plan->partition.tail_length, "arrays",
                               arrays));
}

/* -------------------------------------------------------------- operations */

static void step_register(struct step *step)
{
    struct policy_registration registration = {
        .name = step_string(step, "instance", NULL),
        .group = step_string(step, "group", "default"),
        .shared = step_bool(step, "shared", false),
        .owner = step_string(step, "owner", step_string(step, "instance", NULL)),
        .manual = json_object_get(step->json, "proportion") != NULL,
        .evictable = step_bool(step, "evictable", true),
    };
    struct policy_instance *instance;

    if (step_instance(step) != NULL) {
        step->status = CUBIEMEM_ALREADY_REGISTERED;
        return;
    }
    registration.identity.scope = step_process(step);
    registration.identity.process = registration.identity.scope;
    registration.proportion = registration.manual ? step_proportion(step) : 0;
    if (!step->is_bad) {
        step->status = policy_register(step->scenario->policy, &registration, &instance,
                                       &step->warnings);
    }
}

static void step_set_proportion(struct step *step)
{
    double proportion = step_proportion(step);
    struct policy_instance *instance = step_instance(step);

    if (instance != NULL) {
        step->status = policy_set_proportion(step->scenario->policy, instance, proportion,
                                             &step->warnings);
    }
}

static void step_set_auto(struct step *step)
{
    struct policy_instance *instance = step_instance(step);

    if (instance != NULL) {
        step->status = policy_set_auto(step->scenario->policy, instance);
    }
}

static bool mode_from_name(const char *name, enum policy_mode *mode_p)
{
    if (strcmp(name, "active") == 0) {
        *mode_p = POLICY_ACTIVE;
    } else if (strcmp(name, "passive") == 0) {
        *mode_p = POLICY_PASSIVE;
    } else {
        return false;
    }
    return true;
}

static void step_set_mode(struct step *step)
{
    enum policy_mode mode;

    if (!mode_from_name(step_string(step, "mode", NULL), &mode)) {
        step->status = CUBIEMEM_BAD_MODE;
    } else if (!step->is_bad) {
        policy_set_mode(step->scenario->policy, mode);
    }
}

static void step_release(struct step *step)
{
    struct policy_instance *instance = step_instance(step);

    if (instance != NULL) {
        policy_unregister(step->scenario->policy, instance);
    }
}

static void step_queue(struct step *step)
{
    const json_t *json = json_object_get(step->json, "arrays");
    struct policy_instance *instance = step_instance(step);
    struct array *arrays;
    size_t n, culprit;
    const char *why;

    if (!scenario_arrays_read(json, &arrays, &n, step->error)) {
        step->is_bad = true;
        return;
    }
    if (instance != NULL) {
        step->status =
            policy_queue(step->scenario->policy, instance, arrays, n, &culprit, &why);
    }
    arrays_free(arrays, n);
}

static void step_allocate(struct step *step)
{
    struct policy *policy = step->scenario->policy;
    struct policy_instance *trigger = step_instance(step);
    struct policy_refusal refusal;
    struct policy_plan *plan;

    if (trigger == NULL) {
        return;
    }
    step->status = policy_plan(policy, trigger, step->scenario->free_bytes, true, &plan, &refusal);
    if (step->status != CUBIEMEM_OK) {
        step->warnings = refusal.warnings;
        return;
    }
    step->warnings = plan->warnings;
    policy_reserve(policy, plan);
    for (size_t i = 0; i < plan->n_victims; i++) {
        policy_evict(policy, plan->victims[i]);
        step_event_invalidate(step, plan->victims[i]);
    }
    policy_commit(policy, plan);
    for (size_t i = 0; i < plan->n_members; i++) {
        step_event_ready(step, plan, &plan->members[i]);
    }
    policy_plan_destroy(plan);
}

/* The first instance of the owner, or NULL: an unknown owner is fine. */
static struct policy_instance *step_owner(struct step *step)
{
    const char *owner = step_string(step, "owner", NULL);
    uint64_t scope = step_process(step);
    struct policy_instance *i = NULL;
    struct policy_instance_view view;

    while ((i = policy_next_instance(step->scenario->policy, i)) != NULL) {
        policy_instance_read(i, &view);
        if (view.identity.scope == scope && strcmp(view.owner, owner) == 0) {
            break;
        }
    }
    return i;
}

static void step_begin_work(struct step *step)
{
    struct policy_instance *instance = step_owner(step);

    if (instance != NULL) {
        policy_begin_work(step->scenario->policy, instance);
    }
}

static void step_end_work(struct step *step)
{
    struct policy_instance *instance = step_owner(step);

    if (instance != NULL) {
        policy_end_work(step->scenario->policy, instance);
    }
}

/* What a step does to each instance of a process. */
typedef void step_visit_fn(struct step *step, struct policy_instance *instance);

static void step_each_of_process(struct step *step, step_visit_fn *visit)
{
    uint64_t scope = step_process(step);
    struct policy_instance *i = NULL;
    struct policy_instance_view view;

    while ((i = policy_next_instance(step->scenario->policy, i)) != NULL) {
        policy_instance_read(i, &view);
        if (view.identity.scope == scope) {
            visit(step, i);
        }
    }
}

static void visit_free_label(struct step *step, struct policy_instance *instance)
{
    policy_release_label(step->scenario->policy, instance, step_string(step, "label", NULL));
}

static void visit_free_all(struct step *step, struct policy_instance *instance)
{
    policy_release_all(step->scenario->policy, instance);
}

static void visit_invalidate(struct step *step, struct policy_instance *instance)
{
    step_event_invalidate(step, instance);
}

static void step_free(struct step *step)
{
    struct policy_instance *instance;

    if (json_object_get(step->json, "instance") == NULL) {
        step_each_of_process(step, visit_free_label);
        return;
    }
    instance = step_instance(step);
    if (instance != NULL) {
        visit_free_label(step, instance);
    }
}

static void step_free_all(struct step *step)
{
    step_each_of_process(step, visit_free_all);
}

static void step_invalidate_all(struct step *step)
{
    step_each_of_process(step, visit_free_all);
    step_each_of_process(step, visit_invalidate);
}

static void step_set_memory(struct step *step)
{
    const json_t *value = json_object_get(step->json, "free_bytes");

    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        step_complain(step, "\"free_bytes\" must be an integer of at least 0");
        return;
    }
    step->scenario->free_bytes = (uint64_t)json_integer_value(value);
}

static void step_change_group(struct step *step)
{
    struct policy_instance *instance = step_instance(step);
    const char *group = step_string(step, "group", NULL);
    bool shared = step_bool(step, "shared", false);

    if (instance != NULL && !step->is_bad) {
        step->status = policy_change_group(step->scenario->policy, instance, group, shared);
    }
}

static void step_available(struct step *step)
{
    const char *group = step_string(step, "group", NULL);
    bool shared = step_bool(step, "shared", false);

    step->has_result = true;
    step->result = policy_available_in(step->scenario->policy, step_process(step), 0, group,
                                       shared, step->scenario->free_bytes, &step->warnings);
}

static const struct {
    const char *name;
    void (*run)(struct step *step);
} operations[] = {
    { "register", step_register },
    { "set_proportion", step_set_proportion },
    { "set_auto", step_set_auto },
    { "set_mode", step_set_mode },
    { "release", step_release },
    { "queue", step_queue },
    { "allocate", step_allocate },
    { "begin_work", step_begin_work },
    { "end_work", step_end_work },
    { "free", step_free },
    { "free_all", step_free_all },
    { "invalidate_all", step_invalidate_all },
    { "set_memory", step_set_memory },
    { "change_group", step_change_group },
    { "available", step_available },
};

/* ------------------------------------------------------------------- steps */

static json_t *step_outcome(const struct step *step)
{
    json_t *warnings = json_array();
    json_t *outcome;

    for (uint32_t bit = 1; bit <= CUBIEMEM_WARN_OVERSUBSCRIBED_20X; bit <<= 1) {
        if ((step->warnings & bit) != 0) {
            json_array_append_new(warnings, json_string(warning_name(bit)));
        }
    }
    outcome = json_pack("{s:s, s:o, s:O}", "status", status_name(step->status), "warnings",
                        warnings, "events", step->events);
    if (step->has_result) {
        json_object_set_new(outcome, "result", json_integer((json_int_t)step->result));
    }
    return outcome;
}

json_t *scenario_step(struct scenario *scenario, const json_t *json,
                      char error[SCENARIO_ERROR_MAX])
{
    struct step step = { .scenario = scenario, .json = json, .error = error };
    const char *op = json_string_value(json_object_get(json, "op"));
    json_t *outcome = NULL;
    size_t i;

    if (op == NULL) {
        step_complain(&step, "a step must be an object with \"op\"");
        return NULL;
    }
    step.events = json_array();
    for (i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
        if (strcmp(op, operations[i].name) == 0) {
            operations[i].run(&step);
            break;
        }
    }
    if (i == sizeof(operations) / sizeof(operations[0])) {
        step_complain(&step, "\"%s\" is no operation", op);
    }
    if (!step.is_bad) {
        outcome = step_outcome(&step);
    }
    json_decref(step.events);
    return outcome;
}

/* ---------------------------------------------------------------- scenario */

/* A positive integer of the device, or a complaint. */
static bool device_read(const json_t *device, const char *key, uint64_t least, uint64_t *value_p,
                        char *error)
{
    const json_t *value = json_object_get(device, key);

    if (!json_is_integer(value) || json_integer_value(value) < (json_int_t)least) {
        snprintf(error, SCENARIO_ERROR_MAX,
                 "\"device\" needs \"%s\", an integer of at least %d", key, (int)least);
        return false;
    }
    *value_p = (uint64_t)json_integer_value(value);
    return true;
}

struct scenario *scenario_create(const json_t *description, char error[SCENARIO_ERROR_MAX])
{
    const json_t *device = json_object_get(description, "device");
    const char *mode = json_string_value(json_object_get(description, "mode"));
    struct policy_config config = { .auto_share = POLICY_SHARE_PROCESS };
    struct scenario *scenario;
    uint64_t free_bytes;

    if (!device_read(device, "total_bytes", 0, &config.total, error) ||
        !device_read(device, "free_bytes", 0, &free_bytes, error) ||
        !device_read(device, "granularity", 1, &config.granularity, error) ||
        !device_read(device, "alignment", 1, &config.alignment, error)) {
        return NULL;
    }
    if (config.granularity != 1 && config.granularity % config.alignment != 0) {
        snprintf(error, SCENARIO_ERROR_MAX, "the alignment must divide the granularity");
        return NULL;
    }
    if (mode == NULL || !mode_from_name(mode, &config.mode)) {
        snprintf(error, SCENARIO_ERROR_MAX, "\"mode\" must be \"active\" or \"passive\"");
        return NULL;
    }
    scenario = calloc(1, sizeof(*scenario));
    if (scenario != NULL) {
        scenario->free_bytes = free_bytes;
        scenario->processes = json_object();
        scenario->policy = policy_create(&config);
    }
    if (scenario == NULL || scenario->processes == NULL || scenario->policy == NULL) {
        scenario_destroy(scenario);
        snprintf(error, SCENARIO_ERROR_MAX, "not enough host memory");
        return NULL;
    }
    return scenario;
}

void scenario_destroy(struct scenario *scenario)
{
    if (scenario == NULL) {
        return;
    }
    policy_destroy(scenario->policy);
    json_decref(scenario->processes);
    free(scenario);
}

json_t *scenario_final(const struct scenario *scenario)
{
    json_t *final = json_object();
    const struct policy_instance *i = NULL;
    struct policy_instance_view view;

    while ((i = policy_next_instance(scenario->policy, i)) != NULL) {
        policy_instance_read(i, &view);
        json_object_set_new(final, view.name,
                            json_pack("{s:f, s:I, s:I, s:s}", "proportion", view.proportion,
                                      "cap_bytes", (json_int_t)view.cap, "allocated_bytes",
                                      (json_int_t)view.allocated, "pool",
                                      view.manual ? "manual" : "auto"));
    }
    return final;
}

const char *scenario_check(const struct scenario *scenario)
{
    return policy_check(scenario->policy);
}
