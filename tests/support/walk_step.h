/*
 * walk_step - one operation of a walk, as eight bytes say it
 */
#ifndef SUPPORT_WALK_STEP_H
#define SUPPORT_WALK_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "array.h"
#include "policy.h"

#define WALK_INSTANCES 8u
#define WALK_ARRAYS 4u

/* X(kind, weight, name in scenarios) */
#define WALK_KIND_MAP(X)                                                                           \
    X(REGISTER, 8, "register")                                                                     \
    X(SET_PROPORTION, 2, "set_proportion")                                                         \
    X(SET_AUTO, 1, "set_auto")                                                                     \
    X(SET_MODE, 1, "set_mode")                                                                     \
    X(RELEASE, 2, "release")                                                                       \
    X(QUEUE, 14, "queue")                                                                          \
    X(ALLOCATE, 14, "allocate")                                                                    \
    X(BEGIN_WORK, 2, "begin_work")                                                                 \
    X(END_WORK, 12, "end_work")                                                                     \
    X(FREE, 3, "free")                                                                             \
    X(FREE_ALL, 1, "free_all")                                                                     \
    X(INVALIDATE_ALL, 1, "invalidate_all")                                                         \
    X(SET_MEMORY, 5, "set_memory")                                                                 \
    X(CHANGE_GROUP, 3, "change_group")                                                             \
    X(AVAILABLE, 2, "available")                                                                   \
    X(SET_CEILING, 3, "(set_ceiling)")                                                             \
    X(ABORT, 2, "(allocate_and_abort)")                                                            \
    X(FORGET, 2, "(allocate_while_a_member_dies)")

enum walk_kind {
#define WALK_KIND_ENUM(kind, weight, name) WALK_##kind,
    WALK_KIND_MAP(WALK_KIND_ENUM)
#undef WALK_KIND_ENUM
};

struct walk_device {
    uint64_t total, free, granularity, alignment;
    enum policy_mode mode;
    uint64_t scale;   /* of the arrays' second dimension */
    bool only_scenario; /* all of one user; no steps that scenarios do not have */
};

struct walk_step {
    enum walk_kind kind;
    unsigned int process; /* 0 to 2 */
    char instance[2], group[8], label[2];
    const char *owner; /* NULL: the instance */
    bool shared, manual, evictable;
    double proportion;
    enum policy_mode mode;
    uint64_t free;
    struct policy_ceiling ceiling;
    unsigned int pick; /* which member dies */
    size_t n_arrays;
    struct array arrays[WALK_ARRAYS];
    char labels[WALK_ARRAYS][2];
    int64_t shapes[WALK_ARRAYS][3];
};

void walk_device_read(const uint8_t bytes[4], struct walk_device *device_p);
/* The step's arrays point into it: it is not to be copied. */
void walk_step_read(const uint8_t bytes[8], const struct walk_device *device,
                    struct walk_step *step_p);
void walk_device_print(const struct walk_device *device, FILE *out);
void walk_step_print(const struct walk_step *step, FILE *out);

#endif
