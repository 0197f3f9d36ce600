/* Grant and reclaim thread: order, all or none, slow drivers, and who is told when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cubiemem.h"
#include "grant_thread.h"
#include "reclaim_thread.h"
#include "fake_driver.h"
#include "stories.h"

#define MIB (1ull << 20)
#define MAX_SEGMENTS 64

static struct device device;
static uv_loop_t loop;
static struct grant_thread *grants;
static struct reclaim_thread *reclaim;

/* What the loop was told; asserts are for after uv_run(). */
static int n_done;
static struct grant_job *done_order[16];
static int n_reported;
static uint64_t reported_ids[MAX_SEGMENTS];
static uint64_t reported_bytes;

static void on_done(struct grant_job *job)
{
    done_order[n_done++] = job;
}

static void on_released(struct segment *segment, void *data)
{
    reported_ids[n_reported++] = segment->id;
    reported_bytes += segment->size;
    *(int *)data += segment->fd == -1;
}

static int let_go_before_report;

static int n_fds(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");

    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int setup(void **state)
{
    (void)state;
    fake_device_init(&device);
    n_done = n_reported = let_go_before_report = 0;
    reported_bytes = 0;
    if (uv_loop_init(&loop) != 0 ||
        grant_thread_create(&loop, &device, &grants) != CUBIEMEM_OK ||
        reclaim_thread_create(&loop, &device, grants, on_released, &let_go_before_report,
                              &reclaim) != CUBIEMEM_OK) {
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_gate(false);
    reclaim_thread_destroy(reclaim);
    grant_thread_destroy(grants);
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static struct segment *segment_make(uint64_t size)
{
    struct segment *segment = NULL;
    CUresult result;

    assert_int_equal(device_segment_create(&device, size, &segment, &result), CUBIEMEM_OK);
    return segment;
}

/* A chain for the reclaim thread. */
static struct segment *segment_chain(int n, uint64_t size)
{
    struct segment *first = NULL;

    for (int i = 0; i < n; i++) {
        struct segment *segment = segment_make(size);
        segment->next = first;
        first = segment;
    }
    return first;
}

/* ------------------------------------------------------------------ grant */

static void test_a_job_creates_all_and_reads_the_memory(void **state)
{
    const uint64_t sizes[] = {2 * MIB, 4 * MIB, 6 * MIB};
    struct segment *created[3] = {NULL};
    struct grant_job job = {.sizes = sizes, .n_sizes = 3, .created = created, .done = on_done};

    (void)state;
    grant_thread_submit(grants, &job);
    uv_run(&loop, UV_RUN_DEFAULT); /* ends by itself: only outstanding jobs keep it */
    assert_int_equal(n_done, 1);
    assert_int_equal(job.status, CUBIEMEM_OK);
    assert_int_equal(job.n_created, 3);
    assert_true(job.memory_known);
    assert_int_equal(job.device_total, FAKE_TOTAL);
    assert_int_equal(job.device_free, FAKE_TOTAL - 12 * MIB);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(created[i]->size, sizes[i]);
        assert_int_equal(created[i]->id, i + 1);
        device_segment_destroy(&device, created[i]);
    }
    assert_int_equal(fake.n_live, 0);
}

/* For every k: the k-th creation, then the k-th export, fails. */
static void test_all_or_none(void **state)
{
    const uint64_t sizes[] = {2 * MIB, 2 * MIB, 2 * MIB, 2 * MIB};
    struct segment *created[4];

    (void)state;
    const int fds = n_fds();
    for (int k = 1; k <= 8; k++) {
        struct grant_job job = {.sizes = sizes, .n_sizes = 4, .created = created, .done = on_done};
        fake.n_create = fake.n_export = 0;
        fake.fail_create_at = k <= 4 ? k : 0;
        fake.fail_export_at = k > 4 ? k - 4 : 0;
        grant_thread_submit(grants, &job);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(job.n_created, 0);
        assert_int_equal(job.status, k <= 4 ? CUBIEMEM_NO_MEMORY : CUBIEMEM_CUDA);
        assert_int_equal(job.cu_result,
                         k <= 4 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM);
        assert_true(job.memory_known); /* read after the failure as well */
        assert_int_equal(job.device_free, FAKE_TOTAL);
        assert_int_equal(fake.n_live, 0);
        assert_int_equal(n_fds(), fds);
    }
    assert_int_equal(n_done, 8);
}

static void test_what_is_released_first_makes_room(void **state)
{
    struct segment *cached[2] = {segment_make(32 * MIB), segment_make(32 * MIB)};
    struct segment *created[1];
    const uint64_t size = 64 * MIB;
    struct grant_job job = {.release = cached,
                            .n_release = 2,
                            .sizes = &size,
                            .n_sizes = 1,
                            .created = created,
                            .done = on_done};

    (void)state;
    grant_thread_submit(grants, &job);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(job.status, CUBIEMEM_OK);
    assert_null(cached[0]);
    assert_null(cached[1]);
    device_segment_destroy(&device, created[0]);
}

static void test_jobs_are_done_in_order(void **state)
{
    struct grant_job jobs[8];

    (void)state;
    assert_int_equal(grant_thread_busy(grants), 0);
    for (int i = 0; i < 8; i++) {
        jobs[i] = (struct grant_job){.done = on_done};
        grant_thread_submit(grants, &jobs[i]);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_done, 8);
    assert_int_equal(grant_thread_busy(grants), 0);
    for (int i = 0; i < 8; i++) {
        assert_ptr_equal(done_order[i], &jobs[i]);
        assert_true(jobs[i].memory_known);
    }
}

/* Destroyed with one job in a slow release and two behind it. */
static void *open_gate_soon(void *unused)
{
    usleep(500000); /* the destroying has begun by then */
    fake_gate(false);
    return unused;
}

static void test_destroy_cancels_what_is_not_done(void **state)
{
    struct segment *cached[2] = {segment_make(2 * MIB), segment_make(2 * MIB)};
    struct segment *created[1] = {NULL};
    const uint64_t size = 2 * MIB;
    struct grant_job slow = {.release = cached,
                             .n_release = 2,
                             .sizes = &size,
                             .n_sizes = 1,
                             .created = created,
                             .done = on_done};
    struct grant_job behind = {.done = on_done};
    pthread_t opener;

    (void)state;
    fake_gate(true);
    grant_thread_submit(grants, &slow);
    grant_thread_submit(grants, &behind);
    while (fake.n_at_gate == 0) {
        usleep(1000);
    }
    pthread_create(&opener, NULL, open_gate_soon, NULL);
    reclaim_thread_destroy(reclaim);
    reclaim = NULL;
    grant_thread_destroy(grants);
    grants = NULL;
    pthread_join(opener, NULL);
    assert_int_equal(n_done, 2);
    assert_int_equal(slow.status, CUBIEMEM_CANCELLED);
    assert_int_equal(slow.n_created, 0);
    assert_int_equal(behind.status, CUBIEMEM_CANCELLED);
    assert_null(cached[0]);
    assert_non_null(cached[1]); /* not reached: ours again */
    device_segment_destroy(&device, cached[1]);
    assert_int_equal(fake.n_live, 0);
}

/* ---------------------------------------------------------------- reclaim */

static void test_each_segment_is_reported_once(void **state)
{
    uint64_t bytes;
    bool seen[32] = {false};

    (void)state;
    const int fds = n_fds();
    reclaim_thread_submit(reclaim, NULL);
    reclaim_thread_submit(reclaim, segment_chain(10, 2 * MIB));
    reclaim_thread_submit(reclaim, segment_chain(6, 2 * MIB));
    assert_int_equal(reclaim_thread_pending(reclaim, &bytes), 16);
    assert_int_equal(bytes, 32 * MIB);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_reported, 16);
    assert_int_equal(let_go_before_report, 16);
    assert_int_equal(reported_bytes, 32 * MIB);
    for (int i = 0; i < n_reported; i++) {
        assert_in_range(reported_ids[i], 1, 16);
        assert_false(seen[reported_ids[i]]);
        seen[reported_ids[i]] = true;
    }
    assert_int_equal(reclaim_thread_pending(reclaim, &bytes), 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(fake.n_live, 0);
    assert_int_equal(n_fds(), fds);
}

/* CASES 17: while a release hangs in the driver, a grant is served at once. */
static void test_a_slow_release_delays_nobody(void **state)
{
    const uint64_t size = 2 * MIB;
    struct segment *created[1];
    struct grant_job job = {.sizes = &size, .n_sizes = 1, .created = created, .done = on_done};

    (void)state;
    fake_gate(true);
    reclaim_thread_submit(reclaim, segment_chain(8, 2 * MIB));
    while (fake.n_at_gate == 0) {
        usleep(100);
    }
    grant_thread_submit(grants, &job);
    while (n_done == 0) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    assert_int_equal(fake.n_at_gate, 1); /* it hangs there yet */
    assert_int_equal(job.status, CUBIEMEM_OK);
    assert_int_equal(n_reported, 0);
    fake_gate(false);
    device_segment_destroy(&device, created[0]);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_reported, 8);
}

/* While grants are busy, reclaim pauses before each segment; but it goes on. */
static void test_reclaim_is_paced_and_not_starved(void **state)
{
    struct segment *cached[1] = {segment_make(2 * MIB)};
    struct grant_job blocked = {.release = cached, .n_release = 1, .done = on_done};
    struct segment *chain = segment_chain(5, 2 * MIB);

    (void)state;
    fake_gate(true);
    grant_thread_submit(grants, &blocked);
    while (fake.n_at_gate == 0) {
        usleep(100);
    }
    const double start = seconds();
    reclaim_thread_submit(reclaim, chain);
    while (fake.n_at_gate < 2) {
        usleep(100);
    }
    const double pause = seconds() - start;
    fake_gate(false);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(pause > 0.015);
    assert_int_equal(n_reported, 5);
    assert_int_equal(n_done, 1);
}

static void test_destroy_reports_what_was_let_go_and_drops_the_rest(void **state)
{
    pthread_t opener;

    (void)state;
    const int fds = n_fds();
    fake_gate(true);
    reclaim_thread_submit(reclaim, segment_chain(4, 2 * MIB));
    while (fake.n_at_gate == 0) {
        usleep(100);
    }
    pthread_create(&opener, NULL, open_gate_soon, NULL);
    reclaim_thread_destroy(reclaim);
    reclaim = NULL;
    pthread_join(opener, NULL);
    assert_int_equal(n_reported, 1);
    assert_int_equal(n_fds(), fds); /* descriptors of the rest are closed */
}

/* A loop with both threads and nothing to do has nothing to wait for. */
static void test_idle_threads_keep_no_loop_alive(void **state)
{
    (void)state;
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_job_creates_all_and_reads_the_memory),
        TEST(test_all_or_none),
        TEST(test_what_is_released_first_makes_room),
        TEST(test_jobs_are_done_in_order),
        TEST(test_destroy_cancels_what_is_not_done),
        TEST(test_each_segment_is_reported_once),
        TEST(test_a_slow_release_delays_nobody),
        TEST(test_reclaim_is_paced_and_not_starved),
        TEST(test_destroy_reports_what_was_let_go_and_drops_the_rest),
        TEST(test_idle_threads_keep_no_loop_alive),
    };
    return stories_run(tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
