/*
 * card - see card.h
 */
#include "card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checked.h"
#include "outcome.h"
#include "role.h"

#define PIECE_SIZE (32u << 20) /* bytes that are looked at in one go */

void card_must(const struct card *card, CUresult result, const char *what)
{
    char text[128];

    if (result != CUDA_SUCCESS) {
        fail("%s: %s", what, driver_error(&card->driver, result, text));
    }
}

/* "sim[:SIZE][,NAME]", as the daemon takes it. */
static CUdevice find_simulated(struct card *card, const struct harness *harness)
{
    char spec[sizeof(harness->device)], why[256];
    uint64_t size = 1ull << 30;
    int ordinal;

    snprintf(spec, sizeof(spec), "%s", harness->device);
    char *name = strchr(spec, ',');
    if (name != NULL) {
        *name++ = '\0';
    }
    expect(spec[3] == '\0' || (spec[3] == ':' && size_parse(&spec[4], &size)),
           "%s is no simulated device", harness->device);
    expect(driver_sim_add(&card->driver, harness->dir, name != NULL ? name : "sim0", size, &ordinal,
                          why, sizeof(why)) == 0,
           "%s", why);
    CUdevice device = 0;
    card_must(card, card->driver.cuInit(0), "cuInit"); /* it exists now */
    card_must(card, card->driver.cuDeviceGet(&device, ordinal), "cuDeviceGet");
    return device;
}

/* "cuda:ORDINAL" or a UUID. */
static CUdevice find_real(const struct card *card, const struct harness *harness)
{
    CUdevice device = 0;
    int n = 0;

    card_must(card, card->driver.cuInit(0), "cuInit");
    if (strncmp(harness->device, "cuda:", 5) == 0) {
        card_must(card, card->driver.cuDeviceGet(&device, atoi(&harness->device[5])),
                  harness->device);
        return device;
    }
    card_must(card, card->driver.cuDeviceGetCount(&n), "cuDeviceGetCount");
    for (int i = 0; i < n; i++) {
        char text[UUID_TEXT_SIZE];
        CUuuid uuid;
        card_must(card, card->driver.cuDeviceGet(&device, i), "cuDeviceGet");
        card_must(card, card->driver.cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid");
        uuid_format(&uuid, text);
        if (strcmp(text, harness->device) == 0) {
            return device;
        }
    }
    fail("there is no GPU %s", harness->device);
}

static void load(const struct harness *harness, enum driver_parts parts, struct card *card_p)
{
    struct card card = {.simulated = harness_device_is_simulated(harness->device)};
    char why[256];

    if (driver_load(card.simulated ? DRIVER_SIM : DRIVER_CUDA, parts,
                    card.simulated ? harness->dir : NULL, &card.driver, why, sizeof(why)) < 0) {
        skip("%s", why);
    }
    *card_p = card;
}

static void find(const struct harness *harness, struct card *card)
{
    CUuuid uuid;

    card->device = card->simulated ? find_simulated(card, harness) : find_real(card, harness);
    card_must(card, card->driver.cuDeviceGetUuid(&uuid, card->device), "cuDeviceGetUuid");
    uuid_format(&uuid, card->uuid);
}

static void open_nvml(struct card *card)
{
    int answer = card->driver.nvmlInit();

    if (answer == 0) {
        answer = card->driver.nvmlDeviceGetHandleByUUID(card->uuid, &card->nvml);
    }
    expect(answer == 0, "NVML does not know %s (%d)", card->uuid, answer);
}

void card_open(const struct harness *harness, struct card *card_p)
{
    struct card card;

    load(harness, DRIVER_PART_CUDA | DRIVER_PART_NVML, &card);
    find(harness, &card);
    open_nvml(&card);
    *card_p = card;
}

/* Its UUID is all that NVML has to be told. */
static void tell_uuid(int fd, const void *argument)
{
    struct card card;

    load(argument, DRIVER_PART_CUDA, &card);
    find(argument, &card);
    role_tell(fd, card.uuid, sizeof(card.uuid));
    driver_unload(&card.driver);
}

void card_watch(const struct harness *harness, struct card *card_p)
{
    char uuid[UUID_TEXT_SIZE];
    struct role teller;
    struct card card;

    role_start(&teller, "teller", tell_uuid, harness);
    role_hear(teller.fd, uuid, sizeof(uuid));
    role_finish(&teller);
    load(harness, DRIVER_PART_NVML, &card);
    memcpy(card.uuid, uuid, sizeof(card.uuid));
    open_nvml(&card);
    *card_p = card;
}

void card_close(struct card *card)
{
    if (card->context != NULL) {
        card->driver.cuDevicePrimaryCtxRelease(card->device);
    }
    card->driver.nvmlShutdown();
    driver_unload(&card->driver);
    memset(card, 0, sizeof(*card));
}

void card_use(struct card *card)
{
    card_must(card, card->driver.cuDevicePrimaryCtxRetain(&card->context, card->device),
              "cuDevicePrimaryCtxRetain");
    card_must(card, card->driver.cuCtxSetCurrent(card->context), "cuCtxSetCurrent");
}

uint64_t card_used(const struct card *card)
{
    struct nvml_memory memory = {.version = NVML_MEMORY_VERSION};
    int answer = card->driver.nvmlDeviceGetMemoryInfo(card->nvml, &memory);

    expect(answer == 0, "NVML does not say what is used on %s (%d)", card->uuid, answer);
    return memory.total - memory.free;
}

uint64_t card_wait_used(const struct card *card, uint64_t most, int timeout_ms)
{
    uint64_t used = card_used(card);

    for (int waited_ms = 0; used > most && waited_ms < timeout_ms; waited_ms += 20) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        used = card_used(card);
    }
    return used;
}

void card_fill(const struct card *card, CUdeviceptr address, uint64_t size, uint32_t word)
{
    card_must(card, card->driver.cuMemsetD32Async(address, word, size / sizeof(word), NULL),
              "cuMemsetD32Async");
    card_must(card, card->driver.cuStreamSynchronize(NULL), "cuStreamSynchronize");
}

uint64_t card_count_foreign(const struct card *card, CUdeviceptr address, uint64_t size,
                            uint32_t word, uint32_t *foreign_p)
{
    static _Thread_local uint32_t *piece;
    uint64_t n_foreign = 0;

    if (piece == NULL) {
        piece = malloc(PIECE_SIZE);
        expect(piece != NULL, "no host memory");
        /* Faster; it works without. */
        card->driver.cuMemHostRegister(piece, PIECE_SIZE, 0);
    }
    for (uint64_t at = 0; at < size; at += PIECE_SIZE) {
        uint64_t n_bytes = size - at < PIECE_SIZE ? size - at : PIECE_SIZE;
        card_must(card, card->driver.cuMemcpyDtoH(piece, address + at, n_bytes), "cuMemcpyDtoH");
        for (uint64_t i = 0; i < n_bytes / sizeof(word); i++) {
            if (piece[i] != word) {
                if (n_foreign++ == 0 && foreign_p != NULL) {
                    *foreign_p = piece[i];
                }
            }
        }
    }
    return n_foreign;
}
