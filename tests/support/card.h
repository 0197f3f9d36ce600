/*
 * card - the device under test, as a program without our library sees it
 *
 * The tables of proto/driver.h for the device of a harness, real or simulated: NVML
 * for what is used on it, the driver for copies and foreign memory. Functions that
 * can fail print one line and end the program.
 */
#ifndef SUPPORT_CARD_H
#define SUPPORT_CARD_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "harness.h"

struct card {
    struct driver driver;
    bool simulated;
    CUdevice device;
    char uuid[UUID_TEXT_SIZE];
    void *nvml;
    CUcontext context; /* NULL until card_use() */
};

/* No context is made. */
void card_open(const struct harness *harness, struct card *card_p);
/* NVML alone: only card_used() and its like work. This process does not open the
 * driver, which costs the card a few MiB, and may fork others that do. */
void card_watch(const struct harness *harness, struct card *card_p);
void card_close(struct card *card);

/* The primary context becomes this thread's. */
void card_use(struct card *card);

/* Bytes in use on the whole device (NVML). */
uint64_t card_used(const struct card *card);
/* Waits until that is at most `most` bytes, for timeout_ms at most; returns the last
 * reading. What processes held takes a moment to go when they have ended. */
uint64_t card_wait_used(const struct card *card, uint64_t most, int timeout_ms);

/* Fails unless the driver answered CUDA_SUCCESS. */
void card_must(const struct card *card, CUresult result, const char *what);

/* Every 32-bit word of a range becomes `word`; waits until it is done. */
void card_fill(const struct card *card, CUdeviceptr address, uint64_t size, uint32_t word);
/* How many 32-bit words of the range are not `word`; the first of them in
 * *foreign_p (may be NULL) if there is one. */
uint64_t card_count_foreign(const struct card *card, CUdeviceptr address, uint64_t size,
                            uint32_t word, uint32_t *foreign_p);

#endif
