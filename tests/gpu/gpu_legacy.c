/*
 * gpu_legacy - a program that knows only cudaIpcOpenMemHandle uses lent arrays
 *
 * A client that asked for legacy handles exports three arrays of one block and one of
 * another. A program without our library opens them with the handle and the offset
 * alone, finds in each what the client wrote, and writes back. Two such programs: one
 * calls cuIpcOpenMemHandle of the driver's table, on either device; the other,
 * legacy_reader, is linked with cudart alone and runs on a GPU where it was built.
 * case_01 to case_03: one block's arrays have one handle and differ by their offsets, two
 * blocks' handles differ, and no offset is lost.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card.h"
#include "harness.h"
#include "outcome.h"
#include "role.h"
#include "tenant.h"

#define N_ARRAYS     4
#define WRITTEN_BACK 0x5a5a5a5au

/* What is smaller than 2 MiB shares a block; the last has one of its own. */
static const uint64_t sizes[N_ARRAYS] = {(1u << 20) + 4096, 65536, 1024, 3u << 20};

static uint32_t word_of(size_t array, unsigned int round)
{
    return 0xa0000000u + (round << 16) + (uint32_t)array;
}

/* ------------------------------------------------------------- the exporter */

static void case_01_02_one_block_one_handle(const struct cubiemem_array *arrays,
                                            const struct cubiemem_ipc_handle *handles)
{
    for (size_t i = 0; i < N_ARRAYS; i++) {
        expect(handles[i].offset == arrays[i].offset && handles[i].nbytes == sizes[i],
               "array %zu: exported as %" PRIu64 " bytes at %" PRIu64 ", granted %" PRIu64
               " at %" PRIu64,
               i, handles[i].nbytes, handles[i].offset, sizes[i], arrays[i].offset);
        for (size_t j = 0; j < i; j++) {
            bool same_block = arrays[i].block_id == arrays[j].block_id;
            bool same_handle = memcmp(handles[i].handle, handles[j].handle, 64) == 0;
            expect(same_block == same_handle, "arrays %zu and %zu: %s block, %s handle", j, i,
                   same_block ? "one" : "another", same_handle ? "one" : "another");
            expect(!same_block || handles[i].offset != handles[j].offset,
                   "arrays %zu and %zu lie at the same place", j, i);
        }
    }
    expect(arrays[0].block_id == arrays[1].block_id && arrays[1].block_id == arrays[2].block_id &&
               arrays[3].block_id != arrays[0].block_id,
           "the arrays do not lie in the blocks that this test wants");
}

static void exporter_run(int fd, const void *argument)
{
    const struct harness *harness = argument;
    static const char *const labels[N_ARRAYS] = {"a", "b", "c", "d"};
    struct cubiemem_ipc_handle handles[N_ARRAYS];
    struct cubiemem_array arrays[N_ARRAYS];
    struct tenant tenant;
    struct card card;
    unsigned int n_rounds;

    tenant_open(harness, "exporter", CUBIEMEM_HANDLE_LEGACY, &tenant);
    card_open(harness, &card);
    card_use(&card);
    tenant_take(&tenant, sizes, N_ARRAYS, arrays);
    for (size_t i = 0; i < N_ARRAYS; i++) {
        handles[i].size = sizeof(handles[i]);
        must(cubiemem_export_legacy(tenant.instance, labels[i], &handles[i]), "export_legacy");
    }
    case_01_02_one_block_one_handle(arrays, handles);
    role_hear(fd, &n_rounds, sizeof(n_rounds));
    for (unsigned int round = 0; round < n_rounds; round++) {
        char done;
        for (size_t i = 0; i < N_ARRAYS; i++) {
            card_fill(&card, (CUdeviceptr)arrays[i].pointer, sizes[i], word_of(i, round));
        }
        role_tell(fd, handles, sizeof(handles));
        role_hear(fd, &done, 1);
        for (size_t i = 0; i < N_ARRAYS; i++) {
            uint64_t n_foreign = card_count_foreign(&card, (CUdeviceptr)arrays[i].pointer, sizes[i],
                                                    WRITTEN_BACK, NULL);
            expect(n_foreign == 0, "array %zu: %" PRIu64 " words were not written back", i,
                   n_foreign);
        }
    }
    tenant_close(&tenant);
    card_close(&card);
}

/* -------------------------------------------------------- the two importers */

struct import {
    const struct harness *harness;
    unsigned int round;
    struct cubiemem_ipc_handle handles[N_ARRAYS];
};

static void case_03_importer_run(int fd, const void *argument)
{
    const struct import *import = argument;
    struct card card;

    (void)fd;
    card_open(import->harness, &card);
    card_use(&card);
    for (size_t i = 0; i < N_ARRAYS; i++) {
        const struct cubiemem_ipc_handle *handle = &import->handles[i];
        CUipcMemHandle legacy;
        CUdeviceptr base;
        memcpy(legacy.reserved, handle->handle, sizeof(legacy.reserved));
        card_must(&card,
                  card.driver.cuIpcOpenMemHandle(&base, legacy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                  "cuIpcOpenMemHandle");
        uint32_t foreign = 0;
        uint64_t n_foreign = card_count_foreign(&card, base + handle->offset, handle->nbytes,
                                                word_of(i, import->round), &foreign);
        expect(n_foreign == 0,
               "array %zu: %" PRIu64 " words are not the client's, the first is %08x", i, n_foreign,
               foreign);
        card_fill(&card, base + handle->offset, handle->nbytes, WRITTEN_BACK);
        card_must(&card, card.driver.cuIpcCloseMemHandle(base), "cuIpcCloseMemHandle");
    }
    card_close(&card);
}

/* legacy_reader HANDLE OFFSET NBYTES ...; it prints each array's first word and how
 * many of its words are others, and overwrites all bytes with 0x5a. */
static void cudart_importer_start(struct role *role_p, const char *path,
                                  const struct import *import)
{
    char text[N_ARRAYS][3][2 * 64 + 1];
    const char *arguments[2 + 3 * N_ARRAYS] = {path};

    for (size_t i = 0; i < N_ARRAYS; i++) {
        for (size_t j = 0; j < 64; j++) {
            snprintf(&text[i][0][2 * j], 3, "%02x", import->handles[i].handle[j]);
        }
        snprintf(text[i][1], sizeof(text[i][1]), "%" PRIu64, import->handles[i].offset);
        snprintf(text[i][2], sizeof(text[i][2]), "%" PRIu64, import->handles[i].nbytes);
        for (size_t j = 0; j < 3; j++) {
            arguments[1 + 3 * i + j] = text[i][j];
        }
    }
    role_start_program(role_p, path, arguments);
}

static void case_03_cudart_importer_check(struct role *role)
{
    for (size_t i = 0; i < N_ARRAYS; i++) {
        char line[18] = "", wanted[18]; /* "%08x %08x" */
        role_hear(role->fd, line, sizeof(line));
        line[17] = '\0';
        snprintf(wanted, sizeof(wanted), "%08x %08x", word_of(i, 1), 0);
        expect(strcmp(line, wanted) == 0, "legacy_reader, array %zu: '%s', not '%s'", i, line,
               wanted);
    }
}

int main(void)
{
    const char *device = harness_device("sim:64MiB");
    char reader_path[4096];
    bool has_reader = !harness_device_is_simulated(device) &&
                      harness_stage_path("legacy_reader", reader_path, sizeof(reader_path));
    unsigned int n_rounds = has_reader ? 2 : 1;
    struct role exporter, importer;
    struct harness harness;
    struct import import = {.harness = &harness};

    harness_start(device, NULL, &harness);
    role_start(&exporter, "exporter", exporter_run, &harness);
    role_tell(exporter.fd, &n_rounds, sizeof(n_rounds));
    role_hear(exporter.fd, import.handles, sizeof(import.handles));
    role_start(&importer, "importer", case_03_importer_run, &import);
    role_finish(&importer);
    role_tell(exporter.fd, "d", 1);
    printf("the driver's table: %d arrays read and written\n", N_ARRAYS);
    if (has_reader) {
        import.round = 1;
        role_hear(exporter.fd, import.handles, sizeof(import.handles));
        cudart_importer_start(&importer, reader_path, &import);
        case_03_cudart_importer_check(&importer);
        role_finish(&importer);
        role_tell(exporter.fd, "d", 1);
        printf("cudart: %d arrays read and written\n", N_ARRAYS);
    } else {
        printf("cudart: left out (%s)\n", harness_device_is_simulated(device)
                                              ? "cudart does not know the simulated device"
                                              : "no legacy_reader beside this program");
    }
    role_finish(&exporter);
    harness_stop(&harness);
    return 0;
}
