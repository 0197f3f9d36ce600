/*
 * test_cases - rows of the list of what goes wrong in programs of this kind
 *
 * Each story is named after its row. Those that are about protocol, sizes, tools and
 * death are in the tests of these.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "card.h"
#include "measure.h"
#include "outcome.h"
#include "player.h"
#include "tenant.h"
#include "watch.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define GRANULE (2 * MIB)
#define N_CYCLES 5000
#define N_ROUNDS 1000

static struct harness harness;
static struct watch watch;

static void open_daemon(const char *device)
{
    const struct harness_options options = {
        .arguments = (const char *const[]){"--mode", "passive", NULL}};

    harness_start(device, &options, &harness);
    watch_open(&harness, &watch);
}

static void close_daemon(void)
{
    watch_until_n_clients(&watch, 0, 5000);
    watch_until(&watch, "draining_bytes", 0, 5000);
    watch_until(&watch, "lent_bytes", 0, 5000);
    watch_balance_at_rest(&watch);
    watch_close(&watch);
    harness_stop(&harness);
}

static void open_player(struct player *player_p, const char *name)
{
    player_start(player_p, &harness, name);
    player_register(player_p, PLAYER_COUNTS);
}

static struct player_answer release_all(struct player *player)
{
    return player_do(player, &(struct player_order){.what = PLAYER_RELEASE});
}

/* ------------------------------------------------------------ CUDA IPC */

struct lender {
    struct role role;
    struct cubiemem_ipc_handle handle;
};

/* Lends one array of 8 MiB by a legacy handle and gives it back when told. */
static void lend_and_release(int fd, const void *argument)
{
    const uint64_t size = 8 * MIB;
    struct cubiemem_ipc_handle handle = {.size = sizeof(handle)};
    struct cubiemem_array array;
    struct tenant tenant;
    char go;

    (void)argument;
    tenant_open(&harness, "lender", CUBIEMEM_HANDLE_LEGACY, &tenant);
    tenant_take(&tenant, &size, 1, &array);
    must(cubiemem_export_legacy(tenant.instance, "a", &handle), "export_legacy");
    role_tell(fd, &handle, sizeof(handle));
    role_hear(fd, &go, 1);
    tenant_release(&tenant);
    role_tell(fd, "r", 1);
    role_hear(fd, &go, 1);
    tenant_close(&tenant);
}

/* Holds the handle of another process open, and finds its own words in it at the end. */
static void hold_open(int fd, const void *argument)
{
    const struct cubiemem_ipc_handle *handle = argument;
    struct card card;
    CUipcMemHandle legacy;
    CUdeviceptr base;
    char go;

    card_open(&harness, &card);
    card_use(&card);
    memcpy(legacy.reserved, handle->handle, sizeof(legacy.reserved));
    card_must(&card, card.driver.cuIpcOpenMemHandle(&base, legacy, 1), "cuIpcOpenMemHandle");
    card_fill(&card, base + handle->offset, handle->nbytes, 0x0badcafe);
    role_tell(fd, "o", 1);
    role_hear(fd, &go, 1);
    uint64_t n = card_count_foreign(&card, base + handle->offset, handle->nbytes, 0x0badcafe, NULL);
    expect(n == 0, "%" PRIu64 " words were another's before the importer had closed", n);
    card_must(&card, card.driver.cuIpcCloseMemHandle(base), "cuIpcCloseMemHandle");
    role_tell(fd, "c", 1);
    role_hear(fd, &go, 1);
    card_close(&card);
}

/* Its owner has given it back, another still has it open: nobody gets it before. */
static void case_06_not_before_the_importer_has_closed(void)
{
    struct lender lender;
    struct role importer;
    struct player next;
    char heard;

    open_daemon("sim:64MiB");
    role_start(&lender.role, "lender", lend_and_release, NULL);
    role_hear(lender.role.fd, &lender.handle, sizeof(lender.handle));
    role_start(&importer, "importer", hold_open, &lender.handle);
    role_hear(importer.fd, &heard, 1);
    role_tell(lender.role.fd, "g", 1);
    role_hear(lender.role.fd, &heard, 1);
    watch_until(&watch, "lent_bytes", 0, 5000);
    watch_until(&watch, "free_bytes", 56 * MIB, 5000);
    watch_until(&watch, "draining_bytes", 8 * MIB, 5000);
    open_player(&next, "next");
    expect(player_take(&next, 58 * MIB) != CUBIEMEM_OK, "what an importer holds was lent again");
    expect(player_take(&next, 56 * MIB) == CUBIEMEM_OK, "the rest of the device");
    player_do(&next, &(struct player_order){.what = PLAYER_WRITE, .size = 0x77777777});
    role_tell(importer.fd, "c", 1);
    role_hear(importer.fd, &heard, 1);
    watch_until(&watch, "draining_bytes", 0, 5000);
    release_all(&next);
    expect(player_take(&next, 64 * MIB) == CUBIEMEM_OK, "the whole device");
    role_tell(importer.fd, "e", 1);
    role_finish(&importer);
    role_tell(lender.role.fd, "e", 1);
    role_finish(&lender.role);
    player_close(&next);
    close_daemon();
}

static void tell_09(int fd, const void *argument)
{
    const uint64_t size = 3 * MIB;
    struct cubiemem_ipc_handle handle = {.size = sizeof(handle)};
    struct cubiemem_array array;
    struct tenant tenant;

    (void)fd;
    (void)argument;
    tenant_open(&harness, "vmm", 0, &tenant);
    tenant_take(&tenant, &size, 1, &array);
    expect(cubiemem_export_legacy(tenant.instance, "a", &handle) == CUBIEMEM_HANDLE_KIND,
           "a VMM block has a legacy handle");
    expect(strstr(cubiemem_last_error()->text, "CUBIEMEM_HANDLE_LEGACY") != NULL,
           "it is not said how to have one: %s", cubiemem_last_error()->text);
    tenant_close(&tenant);
}

static void case_09_no_legacy_handle_of_vmm_memory(void)
{
    struct role role;

    open_daemon("sim:64MiB");
    role_start(&role, "vmm", tell_09, NULL);
    role_finish(&role);
    close_daemon();
}

/* In a child of the process that connected. */
static int use_in_child(struct tenant *tenant)
{
    struct cubiemem_instance *other;
    struct cubiemem_response *response;
    const uint64_t start_ns = measure_now_ns();
    const int statuses[] = {
        cubiemem_ping(tenant->client, 1000000000),
        cubiemem_register(tenant->client, "child", NULL, &other),
        cubiemem_allocate(tenant->instance, NULL, &response),
        cubiemem_begin_work(tenant->instance),
        cubiemem_release(tenant->instance, NULL, 0),
    };

    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        if (statuses[i] != CUBIEMEM_FORKED) {
            return 1 + (int)i;
        }
    }
    return measure_now_ns() - start_ns < 500000000 ? 0 : 90;
}

static void tell_11(int fd, const void *argument)
{
    const uint64_t size = 6 * MIB;
    struct cubiemem_array array;
    struct tenant tenant;
    int status = -1;

    (void)fd;
    (void)argument;
    tenant_open(&harness, "parent", 0, &tenant);
    tenant_take(&tenant, &size, 1, &array);
    pid_t child = fork();
    if (child == 0) {
        int result = use_in_child(&tenant);
        tenant_close(&tenant);
        _exit(result);
    }
    expect(waitpid(child, &status, 0) == child && status == 0,
           "the child's call was not answered FORKED at once: status %d", status);
    expect(tenant_figure(&tenant, "lent_bytes") == size, "the child took its parent's memory");
    must(cubiemem_begin_work(tenant.instance), "begin_work after the child's end");
    must(cubiemem_end_work(tenant.instance, NULL), "end_work after the child's end");
    tenant_close(&tenant);
}

static void case_11_a_forked_child_has_nothing(void)
{
    struct role role;

    open_daemon("sim:64MiB");
    role_start(&role, "parent", tell_11, NULL);
    role_finish(&role);
    close_daemon();
}

static void case_12_cycles_leave_nothing(void)
{
    struct player a;
    uint64_t rss_kib = 0;
    int fds = 0;

    open_daemon("sim:64MiB");
    open_player(&a, "a");
    for (int i = 0; i < N_CYCLES; i++) {
        expect(player_take(&a, (uint64_t)(1 + i % 7) * MIB) == CUBIEMEM_OK, "cycle %d", i);
        release_all(&a);
        if (i == N_CYCLES / 10) {
            rss_kib = watch_daemon_rss_kib(&watch);
            fds = watch_daemon_fds(&watch);
        }
    }
    watch_until(&watch, "lent_bytes", 0, 2000);
    expect(watch_daemon_fds(&watch) <= fds + 16, "%d descriptors, then %d", fds,
           watch_daemon_fds(&watch));
    expect(watch_daemon_rss_kib(&watch) <= rss_kib + RSS_SLACK_KIB, "the daemon grew");
    player_close(&a);
    close_daemon();
}

/* Two ask at once for more than half: exactly one is granted. */
static void case_13_two_do_not_pass_one_limit(void)
{
    struct player sides[2];
    const struct player_order take = {.what = PLAYER_TAKE, .size = 600 * MIB};

    open_daemon("sim:1GiB");
    open_player(&sides[0], "first");
    open_player(&sides[1], "second");
    for (int i = 0; i < N_ROUNDS; i++) {
        player_tell(&sides[i % 2], &take);
        player_tell(&sides[(i + 1) % 2], &take);
        int n = 0;
        for (int k = 0; k < 2; k++) {
            n += player_hear(&sides[k]).status == CUBIEMEM_OK;
        }
        expect(n == 1, "%d were granted in round %d", n, i);
        release_all(&sides[0]);
        release_all(&sides[1]);
        watch_until(&watch, "lent_bytes", 0, 2000);
    }
    player_close(&sides[0]);
    player_close(&sides[1]);
    close_daemon();
}

static void case_22_all_or_nothing(void)
{
    struct tenant tenant;
    struct cubiemem_array_request requests[3] = {0};
    struct cubiemem_response *response;
    const int64_t shapes[3] = {20 * MIB, 20 * MIB, 40 * MIB};
    const char *labels[3] = {"a", "b", "c"};

    tenant_open(&harness, "three", 0, &tenant);
    for (int i = 0; i < 3; i++) {
        requests[i] = (struct cubiemem_array_request){
            .size = sizeof(requests[i]), .label = labels[i], .shape = &shapes[i], .rank = 1,
            .dtype = CUBIEMEM_UINT8, .chunk_axis_index = CUBIEMEM_AXIS_NONE, .unchunkable = 1};
    }
    must(cubiemem_queue(tenant.instance, requests, 3), "queue");
    expect(cubiemem_allocate(tenant.instance, NULL, &response) == CUBIEMEM_UNCHUNKABLE_TOO_LARGE,
           "three arrays fit");
    expect(tenant_figure(&tenant, "lent_bytes") == 0, "some of them were granted");
    must(cubiemem_queue(tenant.instance, requests, 2), "queue");
    must(cubiemem_allocate(tenant.instance, NULL, &response), "two arrays");
    cubiemem_response_free(response);
    tenant_close(&tenant);
}

static void take_exactly(struct tenant *tenant, uint64_t size, uint64_t charged)
{
    struct cubiemem_array array;

    must(tenant_try(tenant, size, &array), "allocate");
    expect(array.nbytes == size, "%" PRIu64 " bytes of %" PRIu64, array.nbytes, size);
    uint64_t lent = tenant_figure(tenant, "lent_bytes");
    expect(lent == charged, "%" PRIu64 " bytes are charged %" PRIu64, size, lent);
    tenant_release(tenant);
}

static void case_23_the_last_byte_can_be_had(void)
{
    struct tenant tenant;
    struct cubiemem_array array;

    tenant_open(&harness, "edge", 0, &tenant);
    take_exactly(&tenant, GRANULE - 1, GRANULE);
    take_exactly(&tenant, GRANULE, GRANULE);
    take_exactly(&tenant, GRANULE + 1, 2 * GRANULE);
    take_exactly(&tenant, 64 * MIB, 64 * MIB);
    take_exactly(&tenant, 64 * MIB - 1, 64 * MIB);
    expect(tenant_try(&tenant, 64 * MIB + 1, &array) != CUBIEMEM_OK, "more than there is");
    tenant_close(&tenant);
}

static void tell_22_and_23(int fd, const void *argument)
{
    (void)fd;
    (void)argument;
    case_22_all_or_nothing();
    case_23_the_last_byte_can_be_had();
}

static void case_22_23_edges(void)
{
    struct role role;

    open_daemon("sim:64MiB");
    role_start(&role, "edges", tell_22_and_23, NULL);
    role_finish(&role);
    close_daemon();
}

static void case_28_no_rounding_to_powers_of_two(void)
{
    struct player a;

    open_daemon("sim:12GiB");
    open_player(&a, "a");
    expect(player_take(&a, 10 * GIB + 1000) == CUBIEMEM_OK, "10 GiB");
    uint64_t charged = watch_client(&watch, "a", "held_bytes");
    expect(charged == 10 * GIB + GRANULE, "10 GiB are charged %" PRIu64, charged);
    player_close(&a);
    close_daemon();
}

/* A replaces while its stream works in the old array: nobody has that before. */
static void case_29_not_before_the_stream_is_through(void)
{
    struct player a, b;

    open_daemon("sim:64MiB");
    open_player(&a, "a");
    open_player(&b, "b");
    expect(player_take(&a, 60 * MIB) == CUBIEMEM_OK, "a");
    expect(player_begin(&a) == CUBIEMEM_OK, "begin");
    player_do(&a, &(struct player_order){.what = PLAYER_DELAY, .size = 400000000});
    player_end(&a);
    uint64_t start_ns = measure_now_ns();
    player_tell(&a, &(struct player_order){.what = PLAYER_TAKE, .size = 2 * MIB});
    while (player_take(&b, 60 * MIB) != CUBIEMEM_OK) {
        expect(measure_now_ns() - start_ns < 5000000000u, "b gets nothing");
    }
    expect(measure_now_ns() - start_ns > 300000000u, "b has what a still works in");
    expect(player_hear(&a).status == CUBIEMEM_OK, "a");
    player_close(&a);
    player_close(&b);
    close_daemon();
}

/* --------------------------------------------------------- pinned memory */

static int take_pinned(struct tenant *tenant, const char *label)
{
    const int64_t shape = MIB;
    struct cubiemem_array_request request = CUBIEMEM_ARRAY_REQUEST_INIT;
    struct cubiemem_response *response;

    request.label = label;
    request.shape = &shape;
    request.rank = 1;
    request.dtype = CUBIEMEM_UINT8;
    request.memory = CUBIEMEM_PINNED;
    must(cubiemem_queue(tenant->instance, &request, 1), "queue");
    int status = cubiemem_allocate(tenant->instance, NULL, &response);
    if (status == CUBIEMEM_OK) {
        cubiemem_response_free(response);
    }
    return status;
}

/* The n-th registration of host memory fails, of a device that has plenty. */
static void tell_45(int fd, const void *argument)
{
    struct tenant tenant;
    char label[2] = "a";
    int n_failed = 0;

    (void)fd;
    setenv("CUBIEMEM_SIM_FAULTS", argument, 1);
    tenant_open(&harness, "pinned", 0, &tenant);
    for (; label[0] <= 'f'; label[0]++) {
        int status = take_pinned(&tenant, label);
        if (status == CUBIEMEM_OK) {
            continue;
        }
        const struct cubiemem_error *error = cubiemem_last_error();
        n_failed++;
        expect(status == CUBIEMEM_HOST_MEMORY, "%s, not HOST_MEMORY", cubiemem_status_name(status));
        expect(strstr(error->text, "host memory") != NULL && strstr(error->text, "limits") != NULL,
               "it is not said whose memory it is, and what limits it: %s", error->text);
    }
    expect(n_failed == 1, "%s: %d of 6 failed", (const char *)argument, n_failed);
    tenant_close(&tenant);
}

static void case_45_host_memory_is_not_the_gpus(void)
{
    static const char *const faults[] = {"cuMemHostRegister:3=2", "cuMemHostRegister:5=1"};
    struct role role;

    open_daemon("sim:64MiB");
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        role_start(&role, "pinned", tell_45, faults[i]);
        role_finish(&role);
        watch_until_n_clients(&watch, 0, 5000);
    }
    close_daemon();
}

static const struct {
    const char *name;
    void (*tell)(void);
} stories[] = {
    {"case_06: not before the importer has closed", case_06_not_before_the_importer_has_closed},
    {"case_09: no legacy handle of VMM memory", case_09_no_legacy_handle_of_vmm_memory},
    {"case_11: a forked child has nothing", case_11_a_forked_child_has_nothing},
    {"case_12: cycles leave nothing", case_12_cycles_leave_nothing},
    {"case_13: two do not pass one limit", case_13_two_do_not_pass_one_limit},
    {"case_22, case_23: all or nothing; the last byte", case_22_23_edges},
    {"case_28: no rounding to powers of two", case_28_no_rounding_to_powers_of_two},
    {"case_29: not before the stream is through", case_29_not_before_the_stream_is_through},
    {"case_45: host memory is not the GPU's", case_45_host_memory_is_not_the_gpus},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++) {
        if (argc > 1 && strstr(stories[i].name, argv[1]) == NULL) {
            continue;
        }
        printf("%s\n", stories[i].name);
        fflush(stdout);
        stories[i].tell();
    }
    return 0;
}
