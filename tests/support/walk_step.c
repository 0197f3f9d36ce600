/*
 * walk_step - one operation of a walk, as eight bytes say it
 *
 * Values come from small palettes, so that steps meet: the same few names, run
 * lengths that mostly agree, sizes about the granularity, proportions about the
 * limits. Here and there one that must be refused.
 */
#include "walk_step.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "status.h"

static const struct {
    uint64_t granularity, alignment, scale;
} granules[] = { { 1, 1, 1 },     { 4, 2, 1 },   { 16, 4, 1 },   { 64, 64, 1 },
                 { 12, 4, 1 },    { 128, 8, 1 }, { 256, 32, 1 }, { 2u << 20, 512, 1u << 14 } };

static const double proportions[] = { 0,    0.05, 0.1,  0.2, 0.25, 0.3,         0.5,       0.9,
                                      0.95, 1.0,  1e-9, 0.7, -0.1, 1.0000000001, 0.3333333, 1e-300 };

static const int64_t runs[] = { 24, 24, 24, 24, 24, 24, 7, 40 };

static const struct {
    enum walk_kind kind;
    unsigned int weight;
    const char *name;
} kinds[] = {
#define WALK_KIND_ROW(kind, weight, name) { WALK_##kind, weight, name },
    WALK_KIND_MAP(WALK_KIND_ROW)
#undef WALK_KIND_ROW
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

void walk_device_read(const uint8_t bytes[4], struct walk_device *device_p)
{
    size_t granule = bytes[0] % (sizeof(granules) / sizeof(granules[0]));

    *device_p = (struct walk_device){
        .granularity = granules[granule].granularity,
        .alignment = granules[granule].alignment,
        .scale = granules[granule].scale,
        .total = (uint64_t)(1000 + 64 * bytes[1]) * granules[granule].scale,
        .mode = (bytes[2] & 1) != 0 ? POLICY_ACTIVE : POLICY_PASSIVE,
        .only_scenario = (bytes[2] & 2) != 0,
    };
    device_p->free = device_p->total * bytes[3] / 1024;
}

static uint32_t stir(const uint8_t bytes[8], unsigned int k)
{
    uint32_t hash = 2166136261u ^ k;

    for (int i = 0; i < 8; i++) {
        hash = (hash ^ bytes[i]) * 16777619u;
    }
    hash ^= hash >> 15;
    hash *= 0x2c1b3c6du;
    return hash ^ (hash >> 13);
}

static void read_array(struct walk_step *step, size_t k, uint32_t bits, int64_t length,
                       uint64_t scale)
{
    static const int dtypes[] = { CUBIEMEM_FLOAT64, CUBIEMEM_FLOAT32, CUBIEMEM_UINT8,
                                  CUBIEMEM_INT16 };
    struct array *array = &step->arrays[k];
    int64_t *shape = step->shapes[k];

    shape[0] = 1 + (bits >> 3) % 3;
    shape[1] = (int64_t)((1 + (bits >> 5) % 4) * scale);
    shape[2] = length;
    *array = (struct array){ .label = step->labels[k], .shape = shape, .rank = 3,
                             .dtype = dtypes[(bits >> 7) & 3], .memory = CUBIEMEM_DEVICE,
                             .axis = 2, .total_runs = 1 };
    switch (bits & 7) {
    case 5:
        array->unchunkable = true;
        shape[2] = 1 + (int64_t)(bits >> 9) % 8;
        break;
    case 6:
        array->memory = CUBIEMEM_PINNED;
        break;
    case 7:
        array->rank = 2;
        break;
    default:
        break;
    }
    switch ((bits >> 16) % 61) {
    case 0:
        shape[0] = -1;
        break;
    case 1:
        shape[0] = INT64_MAX / 3;
        break;
    case 2:
        array->dtype = 99;
        break;
    case 3:
        array->total_runs = 7;
        break;
    case 4:
    case 5:
        shape[1] = 0;
        break;
    case 6:
    case 7:
        array->total_runs = length;
        break;
    case 8:
        array->axis = 0;
        break;
    default:
        break;
    }
}

void walk_step_read(const uint8_t bytes[8], const struct walk_device *device,
                    struct walk_step *step_p)
{
    static const char *const owners[] = { NULL, "o", "o", "o", "o", "P", "P", "a" };
    unsigned int sum = 0, dice, n_kinds = N_KINDS;

    n_kinds -= device->only_scenario ? 3 : 0;
    for (unsigned int i = 0; i < n_kinds; i++) {
        sum += kinds[i].weight;
    }
    dice = bytes[0] % sum;
    memset(step_p, 0, sizeof(*step_p));
    for (unsigned int i = 0; i < n_kinds; i++) {
        if (dice < kinds[i].weight) {
            step_p->kind = kinds[i].kind;
            break;
        }
        dice -= kinds[i].weight;
    }
    step_p->instance[0] = (char)('a' + bytes[1] % WALK_INSTANCES);
    step_p->process = bytes[2] % 8 < 5 ? 0 : bytes[2] % 8 < 7 ? 1 : 2;
    strcpy(step_p->group, (bytes[3] & 1) != 0 ? "g" : "default");
    step_p->shared = (bytes[3] & 6) == 6;
    step_p->owner = owners[(bytes[3] >> 3) & 7];
    step_p->label[0] = (char)('u' + bytes[4] % 5);
    step_p->manual = bytes[4] % 3 == 0;
    step_p->evictable = bytes[5] % 8 != 0;
    step_p->proportion = bytes[6] == 255 ? NAN : proportions[bytes[6] & 15];
    step_p->mode = bytes[4] % 4 != 0 ? POLICY_ACTIVE : POLICY_PASSIVE;
    /* Often short, so that somebody has to go. */
    step_p->free = device->total * bytes[5] / (bytes[6] % 3 != 0 ? 2048 : 256);
    step_p->pick = bytes[7];
    step_p->ceiling = (struct policy_ceiling){
        .kind = (enum policy_ceiling_kind)(bytes[4] % 3),
        .name = bytes[5] % 2 != 0 ? "solver" : "other",
        .id = bytes[5] % 2,
        .limit = bytes[6] < 64 ? UINT64_MAX : device->total * bytes[6] / 256,
        .percent = bytes[7] % 3 == 0 && bytes[6] >= 64 ? bytes[6] / 2.56 : -1,
    };
    step_p->n_arrays = bytes[4] % (WALK_ARRAYS + 1);
    for (size_t k = 0; k < step_p->n_arrays; k++) {
        step_p->labels[k][0] = (char)('u' + (bytes[5] + k) % 5);
        read_array(step_p, k, stir(bytes, (unsigned int)k), runs[bytes[6] & 7], device->scale);
    }
}

void walk_device_print(const struct walk_device *device, FILE *out)
{
    fprintf(out,
            "\"device\":{\"total_bytes\":%" PRIu64 ",\"free_bytes\":%" PRIu64
            ",\"granularity\":%" PRIu64 ",\"alignment\":%" PRIu64 "},\"mode\":\"%s\"",
            device->total, device->free, device->granularity, device->alignment,
            device->mode == POLICY_ACTIVE ? "active" : "passive");
}

static void print_arrays(const struct walk_step *step, FILE *out)
{
    fputs(",\"arrays\":{", out);
    for (size_t k = 0; k < step->n_arrays; k++) {
        const struct array *a = &step->arrays[k];

        fprintf(out, "%s\"%s\":{\"shape\":[", k > 0 ? "," : "", a->label);
        for (uint32_t d = 0; d < a->rank; d++) {
            fprintf(out, "%s%" PRId64, d > 0 ? "," : "", a->shape[d]);
        }
        fprintf(out,
                "],\"dtype\":\"%s\",\"memory\":\"%s\",\"chunk_axis_index\":%d,"
                "\"unchunkable\":%s,\"total_runs\":%" PRId64 "}",
                dtype_name(a->dtype) != NULL ? dtype_name(a->dtype) : "unknown",
                a->memory == CUBIEMEM_DEVICE ? "device" : "pinned", a->axis,
                a->unchunkable ? "true" : "false", a->total_runs);
    }
    fputs("}", out);
}

static void print_proportion(double proportion, FILE *out)
{
    if (isnan(proportion)) {
        fputs(",\"proportion\":\"nan\"", out);
    } else {
        fprintf(out, ",\"proportion\":%.17g", proportion);
    }
}

static void print_arguments(const struct walk_step *step, FILE *out)
{
    const char *shared = step->shared ? "true" : "false";

    switch (step->kind) {
    case WALK_REGISTER:
        fprintf(out,
                ",\"instance\":\"%s\",\"group\":\"%s\",\"shared\":%s,\"owner\":\"%s\","
                "\"process\":\"p%u\",\"evictable\":%s",
                step->instance, step->group, shared,
                step->owner != NULL ? step->owner : step->instance, step->process,
                step->evictable ? "true" : "false");
        if (step->manual) {
            print_proportion(step->proportion, out);
        }
        break;
    case WALK_SET_MODE:
        fprintf(out, ",\"mode\":\"%s\"", step->mode == POLICY_ACTIVE ? "active" : "passive");
        break;
    case WALK_BEGIN_WORK:
    case WALK_END_WORK:
        fprintf(out, ",\"owner\":\"%s\",\"process\":\"p%u\"",
                step->owner != NULL ? step->owner : step->instance, step->process);
        break;
    case WALK_FREE:
        fprintf(out, ",\"label\":\"%s\"", step->label);
        if (step->manual) {
            fprintf(out, ",\"process\":\"p%u\"", step->process);
        } else {
            fprintf(out, ",\"instance\":\"%s\"", step->instance);
        }
        break;
    case WALK_FREE_ALL:
    case WALK_INVALIDATE_ALL:
        fprintf(out, ",\"process\":\"p%u\"", step->process);
        break;
    case WALK_SET_MEMORY:
        fprintf(out, ",\"free_bytes\":%" PRIu64, step->free);
        break;
    case WALK_AVAILABLE:
        fprintf(out, ",\"group\":\"%s\",\"shared\":%s,\"process\":\"p%u\"", step->group, shared,
                step->process);
        break;
    case WALK_SET_CEILING:
        fprintf(out, ",\"kind\":%d,\"name\":\"%s\",\"id\":%u,\"limit\":%" PRIu64 ",\"percent\":%g",
                (int)step->ceiling.kind, step->ceiling.name, step->ceiling.id, step->ceiling.limit,
                step->ceiling.percent);
        break;
    default:
        fprintf(out, ",\"instance\":\"%s\"", step->instance);
        if (step->kind == WALK_CHANGE_GROUP) {
            fprintf(out, ",\"group\":\"%s\",\"shared\":%s", step->group, shared);
        } else if (step->kind == WALK_SET_PROPORTION) {
            print_proportion(step->proportion, out);
        } else if (step->kind == WALK_QUEUE) {
            print_arrays(step, out);
        } else if (step->kind == WALK_FORGET) {
            fprintf(out, ",\"pick\":%u", step->pick);
        }
        break;
    }
}

void walk_step_print(const struct walk_step *step, FILE *out)
{
    fprintf(out, "{\"op\":\"%s\"", kinds[step->kind].name);
    print_arguments(step, out);
    fputs("}", out);
}
