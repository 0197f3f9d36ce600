/* The simulated device's memory: who holds it, when it is free, who may touch
 * it. Each story ends with nothing used. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim_world.h"
#include "stories.h"

#define PEER_OK(call)                                                                              \
    do {                                                                                           \
        if ((call) != CUDA_SUCCESS) {                                                              \
            return 98;                                                                             \
        }                                                                                          \
    } while (0)

static int setup(void **state)
{
    (void)state;
    sim_world_open("sim0", 64 * MIB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_true(sim_used_becomes(0));
    sim_world_close();
    return 0;
}

static CUresult try_create(uint64_t size, CUmemGenericAllocationHandle *handle_p)
{
    const CUmemAllocationProp prop = segment_prop(0);

    return sim.cuMemCreate(handle_p, size, &prop, 0);
}

static void test_the_last_granule_fits_and_no_more(void **state)
{
    CUmemGenericAllocationHandle large = sim_create(62 * MIB);
    CUmemGenericAllocationHandle last, none;

    (void)state;
    assert_int_equal(try_create(4 * MIB, &none), CUDA_ERROR_OUT_OF_MEMORY);
    last = sim_create(2 * MIB);
    assert_int_equal(sim_used(), 64);
    assert_int_equal(try_create(2 * MIB, &none), CUDA_ERROR_OUT_OF_MEMORY);
    CU_OK(sim.cuMemRelease(last));
    last = sim_create(2 * MIB);
    CU_OK(sim.cuMemRelease(large));
    assert_int_equal(sim_used(), 2);
    CU_OK(sim.cuMemRelease(last));
    assert_int_equal(sim.cuMemRelease(last), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(try_create(128 * MIB, &none), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(try_create(MIB, &none), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(try_create(0, &none), CUDA_ERROR_INVALID_VALUE);
}

static void test_cycles_leave_nothing(void **state)
{
    int before;

    (void)state;
    CU_OK(sim.cuMemRelease(sim_create(2 * MIB)));
    before = n_open_fds();
    for (int i = 0; i < 200; i++) {
        CUmemGenericAllocationHandle handle = sim_create(32 * MIB);
        int fd = sim_export(handle);

        CU_OK(sim.cuMemRelease(handle));
        close(fd);
    }
    assert_int_equal(sim_used(), 0);
    assert_int_equal(n_open_fds(), before);
}

static void test_without_a_context_segments_but_no_allocations(void **state)
{
    CUdeviceptr address;
    size_t free_size, total;

    (void)state;
    assert_int_equal(sim.cuMemAlloc(&address, 1000), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(sim.cuMemGetInfo(&free_size, &total), CUDA_ERROR_INVALID_CONTEXT);
    CU_OK(sim.cuMemRelease(sim_create(2 * MIB)));
    sim_context();
    CU_OK(sim.cuMemAlloc(&address, 1000));
    CU_OK(sim.cuMemGetInfo(&free_size, &total));
    assert_int_equal(free_size, 62 * MIB);
    assert_int_equal(total, 64 * MIB);
    CU_OK(sim.cuMemFree(address));
    assert_int_equal(sim.cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    CU_OK(sim.cuMemAlloc(&address, 1000));
    /* goes with its context */
    sim_context_end();
}

static void test_an_fd_alone_keeps_memory(void **state)
{
    CUmemGenericAllocationHandle handle = sim_create(4 * MIB);
    int fd = sim_export(handle);
    int ends[2];
    int arrived;

    (void)state;
    CU_OK(sim.cuMemRelease(handle));
    assert_int_equal(sim_used(), 4);
    /* also while it is on its way */
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    peer_say(ends[0], 'x', fd);
    close(fd);
    assert_int_equal(sim_used(), 4);
    assert_int_equal(peer_hear(ends[1], &arrived), 'x');
    assert_int_equal(sim_used(), 4);
    handle = sim_import(arrived);
    close(arrived);
    assert_int_equal(sim_used(), 4);
    CU_OK(sim.cuMemRelease(handle));
    assert_int_equal(sim_used(), 0);
    close(ends[0]);
    close(ends[1]);
}

/* Makes a segment, writes into it and sends its fd. */
static int run_maker(int fd)
{
    CUmemGenericAllocationHandle handle = sim_create(4 * MIB);
    CUdeviceptr address = sim_map(handle, 4 * MIB);

    memset((void *)(uintptr_t)address, 7, 4 * MIB);
    peer_say(fd, 'm', sim_export(handle));
    pause();
    return 0;
}

static void test_memory_outlives_its_killed_maker(void **state)
{
    struct peer maker = peer_start("maker", NULL);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    int fd;

    (void)state;
    assert_int_equal(peer_hear(maker.fd, &fd), 'm');
    assert_int_equal(sim_used(), 4);
    peer_kill(&maker);
    assert_int_equal(sim_used(), 4);
    handle = sim_import(fd);
    address = sim_map(handle, 4 * MIB);
    CU_OK(sim.cuMemRelease(handle));
    close(fd);
    /* a mapping alone keeps it as well */
    assert_int_equal(sim_used(), 4);
    assert_int_equal(((const char *)(uintptr_t)address)[4 * MIB - 1], 7);
    sim_unmap(address, 4 * MIB);
    assert_int_equal(sim_used(), 0);
    /* and nothing is left for the next one to see */
    handle = sim_create(4 * MIB);
    address = sim_map(handle, 4 * MIB);
    for (size_t i = 0; i < 4 * MIB; i += 4096) {
        assert_int_equal(((const char *)(uintptr_t)address)[i], 0);
    }
    sim_unmap(address, 4 * MIB);
    CU_OK(sim.cuMemRelease(handle));
}

static int run_keeper(int fd)
{
    int passed;

    if (peer_hear(fd, &passed) != 'k') {
        return 1;
    }
    peer_say(fd, 'k', -1);
    pause();
    return 0;
}

static void test_memory_is_free_when_the_last_fd_elsewhere_is_gone(void **state)
{
    struct peer keeper = peer_start("keeper", NULL);
    CUmemGenericAllocationHandle handle = sim_create(6 * MIB);
    int fd = sim_export(handle);

    (void)state;
    peer_say(keeper.fd, 'k', fd);
    assert_int_equal(peer_hear(keeper.fd, NULL), 'k');
    close(fd);
    CU_OK(sim.cuMemRelease(handle));
    assert_int_equal(sim_used(), 6);
    peer_kill(&keeper);
    assert_int_equal(sim_used(), 0);
}

static void test_access_is_what_was_set(void **state)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
    CUmemGenericAllocationHandle handle = sim_create(2 * MIB);
    CUdeviceptr address;

    (void)state;
    sim_context();
    CU_OK(sim.cuMemAddressReserve(&address, 4 * MIB, 0, 0, 0));
    assert_false(sim_readable(address));
    CU_OK(sim.cuMemMap(address, 2 * MIB, 0, handle, 0));
    assert_int_equal(sim.cuMemMap(address, 2 * MIB, 0, handle, 0), CUDA_ERROR_ALREADY_MAPPED);
    assert_false(sim_readable(address));
    assert_int_equal(sim.cuMemsetD8(address, 1, 8), CUDA_ERROR_INVALID_VALUE);
    CU_OK(sim.cuMemSetAccess(address, 2 * MIB, &access, 1));
    assert_true(sim_readable(address));
    assert_false(sim_writable(address));
    assert_int_equal(sim.cuMemsetD8(address, 1, 8), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sim.cuMemcpyHtoD(address, "x", 1), CUDA_ERROR_INVALID_VALUE);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU_OK(sim.cuMemSetAccess(address, 2 * MIB, &access, 1));
    assert_true(sim_writable(address));
    CU_OK(sim.cuMemsetD8(address, 1, 8));
    /* a range that runs over the mapping */
    assert_int_equal(sim.cuMemsetD8(address, 1, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sim.cuMemAddressFree(address, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
    CU_OK(sim.cuMemUnmap(address, 2 * MIB));
    assert_false(sim_readable(address));
    CU_OK(sim.cuMemAddressFree(address, 4 * MIB));
    CU_OK(sim.cuMemRelease(handle));
    sim_context_end();
}

static void test_an_imported_handle_is_not_exported_again(void **state)
{
    CUmemGenericAllocationHandle handle = sim_create(2 * MIB);
    int fd = sim_export(handle);
    CUmemGenericAllocationHandle imported = sim_import(fd);
    int again;

    (void)state;
    assert_int_equal(sim.cuMemExportToShareableHandle(
                         &again, imported, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     CUDA_ERROR_INVALID_VALUE);
    CU_OK(sim.cuMemRelease(imported));
    CU_OK(sim.cuMemRelease(handle));
    close(fd);
}

static void test_a_foreign_fd_is_no_segment(void **state)
{
    CUmemGenericAllocationHandle handle;
    int fds[] = {memfd_create("foreign", MFD_CLOEXEC), 0, -1};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(sim.cuMemImportFromShareableHandle(
                             &handle, (void *)(intptr_t)fds[i],
                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                         CUDA_ERROR_INVALID_VALUE);
    }
    close(fds[0]);
}

static void test_segments_are_sealed(void **state)
{
    CUmemGenericAllocationHandle handle = sim_create(2 * MIB);
    int fd = sim_export(handle);

    (void)state;
    assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_int_equal(ftruncate(fd, 0), -1);
    close(fd);
    CU_OK(sim.cuMemRelease(handle));
}

static void test_segments_are_stitched(void **state)
{
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handles[3];
    CUdeviceptr address;
    const unsigned char *bytes;

    (void)state;
    sim_context();
    CU_OK(sim.cuMemAddressReserve(&address, 6 * MIB, 0, 0, 0));
    for (size_t i = 0; i < 3; i++) {
        handles[i] = sim_create(2 * MIB);
        CU_OK(sim.cuMemMap(address + i * 2 * MIB, 2 * MIB, 0, handles[i], 0));
        CU_OK(sim.cuMemRelease(handles[i]));
    }
    CU_OK(sim.cuMemSetAccess(address, 6 * MIB, &access, 1));
    CU_OK(sim.cuMemsetD8(address + 1, 9, 6 * MIB - 2));
    bytes = (const unsigned char *)(uintptr_t)address;
    assert_int_equal(bytes[0], 0);
    assert_int_equal(bytes[1], 9);
    assert_int_equal(bytes[4 * MIB], 9);
    assert_int_equal(bytes[6 * MIB - 1], 0);
    assert_int_equal(sim_used(), 6);
    CU_OK(sim.cuMemUnmap(address, 6 * MIB));
    CU_OK(sim.cuMemAddressFree(address, 6 * MIB));
    sim_context_end();
}

/* Holds memory of all kinds and has a child that only lives. */
static int run_parent(int fd)
{
    CUmemGenericAllocationHandle handle, imported;
    CUdeviceptr address;
    pid_t child;
    int passed;

    sim_context();
    PEER_OK(sim.cuMemAlloc(&address, 2 * MIB));
    handle = sim_create(4 * MIB);
    sim_map(handle, 4 * MIB);
    if (peer_hear(fd, &passed) != 'p') {
        return 1;
    }
    imported = sim_import(passed);
    close(passed);
    sim_map(imported, 8 * MIB);
    child = fork();
    if (child == 0) {
        alarm(PEER_LIFE_S);
        if (sim.cuMemAlloc(&address, 2 * MIB) != CUDA_ERROR_NOT_INITIALIZED) {
            _exit(1);
        }
        peer_say(fd, 'c', -1);
        peer_hear(fd, NULL);
        _exit(0);
    }
    pause();
    return 0;
}

static void test_a_killed_holders_child_keeps_its_memory(void **state)
{
    struct peer parent = peer_start("parent", NULL);
    CUmemGenericAllocationHandle handle = sim_create(8 * MIB);
    int fd = sim_export(handle);
    int talk;

    (void)state;
    peer_say(parent.fd, 'p', fd);
    close(fd);
    assert_int_equal(peer_hear(parent.fd, NULL), 'c');
    /* the child hears on the same socket, which outlives the parent */
    talk = dup(parent.fd);
    peer_kill(&parent);
    CU_OK(sim.cuMemRelease(handle));
    sleep_ms(100);
    assert_int_equal(sim_used(), 14);
    peer_say(talk, 'e', -1);
    assert_true(sim_used_becomes(0));
    close(talk);
}

static void test_a_live_holder_gives_back_in_spite_of_its_child(void **state)
{
    CUmemGenericAllocationHandle handle = sim_create(8 * MIB);
    int fd = sim_export(handle);
    CUdeviceptr address;
    pid_t child;
    int status;
    int ends[2];

    (void)state;
    sim_context();
    address = sim_map(handle, 8 * MIB);
    close(fd);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    child = fork();
    if (child == 0) {
        alarm(PEER_LIFE_S);
        peer_say(ends[1], 'c', -1);
        pause();
        _exit(0);
    }
    /* Until it runs, it holds what it is about to close. */
    assert_int_equal(peer_hear(ends[0], NULL), 'c');
    sim_unmap(address, 8 * MIB);
    CU_OK(sim.cuMemRelease(handle));
    assert_true(sim_used_becomes(0)); /* the child has to come to run, and lets go */
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(ends[0]);
    close(ends[1]);
    sim_context_end();
}

static void test_a_childs_exit_disturbs_nothing(void **state)
{
    CUmemGenericAllocationHandle handle = sim_create(2 * MIB);
    CUdeviceptr address;
    pid_t child;
    int status;

    (void)state;
    sim_context();
    address = sim_map(handle, 2 * MIB);
    child = fork();
    if (child == 0) {
        exit(sim.cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                     sim.cuMemRelease(handle) == CUDA_ERROR_NOT_INITIALIZED
                 ? 0
                 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    CU_OK(sim.cuMemsetD8(address, 5, 2 * MIB));
    assert_int_equal(*(const char *)(uintptr_t)address, 5);
    assert_int_equal(sim_used(), 2);
    sim_unmap(address, 2 * MIB);
    CU_OK(sim.cuMemRelease(handle));
    sim_context_end();
}

static int run_visible(int fd)
{
    CUuuid uuid;
    char names[8] = "";
    int count;

    PEER_OK(sim.cuDeviceGetCount(&count));
    for (int i = 0; i < count; i++) {
        char name[64];

        PEER_OK(sim.cuDeviceGetName(name, sizeof(name), i));
        PEER_OK(sim.cuDeviceGetUuid(&uuid, i));
        names[i] = name[strlen(name) - 1];
    }
    for (int i = 0; i < count; i++) {
        peer_say(fd, names[i], -1);
    }
    peer_say(fd, '.', -1);
    return 0;
}

static void check_visible(const char *setting, const char *expected)
{
    struct peer peer = peer_start("visible", setting);

    for (const char *c = expected; *c; c++) {
        assert_int_equal(peer_hear(peer.fd, NULL), *c);
    }
    assert_int_equal(peer_end(&peer), 0);
}

static void test_visible_devices_filter_and_reorder(void **state)
{
    char setting[128], uuid_text[UUID_TEXT_SIZE];
    CUuuid uuid;

    (void)state;
    sim_world_add("sim1", 16 * MIB);
    CU_OK(sim.cuDeviceGetUuid(&uuid, sim_world_add("sim2", 32 * MIB)));
    uuid_format(&uuid, uuid_text);
    check_visible(NULL, "012.");
    check_visible("CUDA_VISIBLE_DEVICES=2,0", "20.");
    check_visible("CUDA_VISIBLE_DEVICES=1,7,0", "1.");
    snprintf(setting, sizeof(setting), "CUDA_VISIBLE_DEVICES=%.12s,1", uuid_text);
    check_visible(setting, "21.");
}

static void test_a_used_gpu_keeps_its_size(void **state)
{
    struct peer maker = peer_start("maker", NULL);
    char why[256] = "";
    int ordinal = -1;
    int fd;

    (void)state;
    assert_int_equal(peer_hear(maker.fd, &fd), 'm');
    assert_int_equal(
        driver_sim_add(&sim, sim_world_dir(), "sim0", 32 * MIB, &ordinal, why, sizeof(why)), -1);
    assert_non_null(strstr(why, "in use"));
    assert_int_equal(ordinal, -1);
    peer_kill(&maker);
    close(fd);
    ordinal = sim_world_add("sim0", 32 * MIB);
    CU_OK(sim.cuInit(0));
    assert_int_equal(ordinal, 0);
}

/* Opens the handle that comes as 64 bytes. */
static int run_importer(int fd)
{
    CUipcMemHandle handle;
    CUdeviceptr address, again;

    sim_context();
    if (read(fd, &handle, sizeof(handle)) != sizeof(handle)) {
        return 1;
    }
    if (sim.cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) {
        return 2;
    }
    PEER_OK(sim.cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (address != again || *(const char *)(uintptr_t)address != 3) {
        return 3;
    }
    PEER_OK(sim.cuIpcCloseMemHandle(again));
    PEER_OK(sim.cuMemsetD8(address + 1, 4, 1));
    peer_say(fd, 'i', -1);
    peer_hear(fd, NULL);
    PEER_OK(sim.cuIpcCloseMemHandle(address));
    if (sim.cuIpcCloseMemHandle(address) != CUDA_ERROR_INVALID_VALUE) {
        return 4;
    }
    peer_say(fd, 'j', -1);
    peer_hear(fd, NULL);
    return 0;
}

static void test_legacy_handles_cross_processes(void **state)
{
    struct peer importer;
    CUipcMemHandle handle, interior;
    CUdeviceptr address, none;

    (void)state;
    sim_context();
    CU_OK(sim.cuMemAlloc(&address, 5 * MIB));
    CU_OK(sim.cuMemsetD8(address, 3, 5 * MIB));
    CU_OK(sim.cuIpcGetMemHandle(&handle, address));
    CU_OK(sim.cuIpcGetMemHandle(&interior, address + 4096));
    assert_memory_equal(&handle, &interior, sizeof(handle));
    assert_int_equal(
        sim.cuIpcOpenMemHandle(&none, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        CUDA_ERROR_INVALID_CONTEXT);
    importer = peer_start("importer", NULL);
    assert_int_equal(write(importer.fd, &handle, sizeof(handle)), sizeof(handle));
    assert_int_equal(peer_hear(importer.fd, NULL), 'i');
    assert_int_equal(((const char *)(uintptr_t)address)[1], 4);
    /* freed here, in use there */
    CU_OK(sim.cuMemFree(address));
    assert_int_equal(sim_used(), 6);
    peer_say(importer.fd, 'x', -1);
    assert_int_equal(peer_hear(importer.fd, NULL), 'j');
    assert_int_equal(sim_used(), 0);
    peer_say(importer.fd, 'x', -1);
    assert_int_equal(peer_end(&importer), 0);
    /* what is gone cannot be opened */
    importer = peer_start("importer", NULL);
    assert_int_equal(write(importer.fd, &handle, sizeof(handle)), sizeof(handle));
    assert_int_equal(peer_end(&importer), 2);
    sim_context_end();
}

static void test_an_importer_killed_frees_its_part(void **state)
{
    struct peer importer;
    CUipcMemHandle handle;
    CUdeviceptr address;

    (void)state;
    sim_context();
    CU_OK(sim.cuMemAlloc(&address, 2 * MIB));
    CU_OK(sim.cuMemsetD8(address, 3, 2 * MIB));
    CU_OK(sim.cuIpcGetMemHandle(&handle, address));
    importer = peer_start("importer", NULL);
    assert_int_equal(write(importer.fd, &handle, sizeof(handle)), sizeof(handle));
    assert_int_equal(peer_hear(importer.fd, NULL), 'i');
    CU_OK(sim.cuMemFree(address));
    assert_int_equal(sim_used(), 2);
    peer_kill(&importer);
    assert_true(sim_used_becomes(0));
    sim_context_end();
}

int main(int argc, char **argv)
{
    static const struct peer_role roles[] = {
        {"maker", run_maker},     {"keeper", run_keeper},     {"parent", run_parent},
        {"visible", run_visible}, {"importer", run_importer},
    };
    const struct CMUnitTest tests[] = {
#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        STORY(test_the_last_granule_fits_and_no_more),
        STORY(test_cycles_leave_nothing),
        STORY(test_without_a_context_segments_but_no_allocations),
        STORY(test_an_fd_alone_keeps_memory),
        STORY(test_memory_outlives_its_killed_maker),
        STORY(test_memory_is_free_when_the_last_fd_elsewhere_is_gone),
        STORY(test_access_is_what_was_set),
        STORY(test_an_imported_handle_is_not_exported_again),
        STORY(test_a_foreign_fd_is_no_segment),
        STORY(test_segments_are_sealed),
        STORY(test_segments_are_stitched),
        STORY(test_a_killed_holders_child_keeps_its_memory),
        STORY(test_a_live_holder_gives_back_in_spite_of_its_child),
        STORY(test_a_childs_exit_disturbs_nothing),
        STORY(test_visible_devices_filter_and_reorder),
        STORY(test_a_used_gpu_keeps_its_size),
        STORY(test_legacy_handles_cross_processes),
        STORY(test_an_importer_killed_frees_its_part),
#undef STORY
    };
    int status = peer_main(argc, argv, roles, sizeof(roles) / sizeof(roles[0]));

    return status >= 0 ? status
                       : stories_run(tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
