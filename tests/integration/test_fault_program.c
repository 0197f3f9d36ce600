/*
 * test_fault_program - the k-th driver call, allocation or system call of a program fails
 *
 * A program does one of everything with the library: connects, registers, allocates,
 * works, replaces, releases, leaves. It is run again and again, and each time one more
 * thing goes wrong in it: of each kind of call the first, then the second, until there
 * are no more. Whatever fails, the program gets a status that is documented, can do it
 * all once more when nothing fails, and leaves nothing behind in the daemon, nor open in
 * itself. The daemon's own calls fail in test_faults.py.
 *
 * Every attempt is a process of its own, so that none inherits the damage of another.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "card.h"
#include "harness.h"
#include "outcome.h"
#include "role.h"
#include "tenant.h"

#define MIB        ((uint64_t)1 << 20)
#define MOST_CALLS 400 /* of a kind that one attempt makes */
#define CLEAN_MS   10000
#define INTERPOSED __attribute__((visibility("default")))

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWNS_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWNS_MALLOC 0
#endif
#endif
#ifndef OWNS_MALLOC
#define OWNS_MALLOC 1
#endif

/* -------------------------------------------------------- what is made to fail here */

enum kind { ALLOCATION, SENDMSG, RECVMSG, SOCKET, MMAP, MEMFD, THREAD, N_KINDS };

static const char *const kind_names[N_KINDS] = {
    "allocation", "sendmsg", "recvmsg", "socket", "mmap", "memfd_create", "pthread_create"};

static atomic_size_t until_failure[N_KINDS]; /* 0: none */

#if OWNS_MALLOC
static bool fails(enum kind kind)
{
    size_t left = atomic_load(&until_failure[kind]);

    while (left > 0 && !atomic_compare_exchange_weak(&until_failure[kind], &left, left - 1)) {
    }
    return left == 1;
}

/* NULL, as malloc(3) says it. */
static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}
#endif

#if OWNS_MALLOC
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);

INTERPOSED void *malloc(size_t size)
{
    return fails(ALLOCATION) ? no_memory() : __libc_malloc(size);
}

INTERPOSED void *calloc(size_t n, size_t size)
{
    return fails(ALLOCATION) ? no_memory() : __libc_calloc(n, size);
}

INTERPOSED void *realloc(void *old, size_t size)
{
    return fails(ALLOCATION) ? no_memory() : __libc_realloc(old, size);
}

/* The function of that name behind ours. */
#define REAL(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

INTERPOSED ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (fails(SENDMSG)) {
        errno = ENOMEM;
        return -1;
    }
    return REAL(sendmsg)(fd, message, flags);
}

INTERPOSED ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    if (fails(RECVMSG)) {
        errno = ENOMEM;
        return -1;
    }
    return REAL(recvmsg)(fd, message, flags);
}

INTERPOSED int socket(int domain, int type, int protocol)
{
    if (fails(SOCKET)) {
        errno = EMFILE;
        return -1;
    }
    return REAL(socket)(domain, type, protocol);
}

INTERPOSED void *mmap(void *at, size_t size, int access, int flags, int fd, off_t offset)
{
    if (fails(MMAP)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return REAL(mmap)(at, size, access, flags, fd, offset);
}

INTERPOSED int memfd_create(const char *name, unsigned int flags)
{
    if (fails(MEMFD)) {
        errno = EMFILE;
        return -1;
    }
    return REAL(memfd_create)(name, flags);
}

INTERPOSED int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                              void *(*fn)(void *), void *argument)
{
    return fails(THREAD) ? EAGAIN : REAL(pthread_create)(thread, attributes, fn, argument);
}
#endif

/* ------------------------------------------------------------------------- the story */

static int n_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    expect(dir != NULL, "cannot count descriptors: %s", strerror(errno));
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

static void count(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

/* Two device arrays, the first as large as told, and a pinned one. */
static int batch(struct cubiemem_instance *instance, uint64_t size)
{
    const int64_t large = (int64_t)size, small = 1000;
    struct cubiemem_array_request requests[3];
    struct cubiemem_response *response;

    for (int i = 0; i < 3; i++) {
        requests[i] = (struct cubiemem_array_request)CUBIEMEM_ARRAY_REQUEST_INIT;
        requests[i].label = (const char *const[]){"large", "small", "pinned"}[i];
        requests[i].shape = i == 0 ? &large : &small;
        requests[i].rank = 1;
        requests[i].dtype = CUBIEMEM_UINT8;
        requests[i].memory = i == 2 ? CUBIEMEM_PINNED : CUBIEMEM_DEVICE;
        requests[i].chunk_axis_index = CUBIEMEM_AXIS_NONE;
    }
    int status = cubiemem_queue(instance, requests, 3);
    if (status == CUBIEMEM_OK) {
        status = cubiemem_allocate(instance, NULL, &response);
    }
    if (status == CUBIEMEM_OK) {
        cubiemem_response_free(response);
    }
    return status;
}

static int work(struct cubiemem_instance *instance)
{
    atomic_int n_done = 0;
    cubiemem_stream stream;
    int status = cubiemem_begin_work(instance);

    if (status != CUBIEMEM_OK) {
        return status;
    }
    status = cubiemem_group_stream(instance, &stream);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    int launched = cubiemem_stream_host_fn(stream, count, &n_done);
    status = cubiemem_end_work(instance, stream);
    if (status == CUBIEMEM_OK) {
        status = cubiemem_sync(instance);
    }
    if (launched == CUBIEMEM_OK) {
        /* n_done has to outlive the stream's work, whatever failed. */
        for (int i = 0; i < 2000 && atomic_load(&n_done) == 0; i++) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
    return status != CUBIEMEM_OK ? status : launched;
}

static int with_instance(struct cubiemem_instance *instance)
{
    static const char *const labels[] = {"small"};
    int status = batch(instance, 3 * MIB);

    if (status == CUBIEMEM_OK) {
        status = work(instance);
    }
    if (status == CUBIEMEM_OK) {
        status = batch(instance, 9 * MIB);
    }
    if (status == CUBIEMEM_OK) {
        status = cubiemem_release(instance, labels, 1);
    }
    return status == CUBIEMEM_OK ? batch(instance, 9 * MIB) : status;
}

static int story(const struct harness *harness)
{
    const struct cubiemem_options options = {.size = sizeof(options),
                                             .socket = harness->socket,
                                             .name = "story",
                                             .timeout_ns = 5000000000};
    struct cubiemem_instance *instance;
    struct cubiemem_client *client;
    int status = cubiemem_connect(&options, &client);

    if (status != CUBIEMEM_OK) {
        return status;
    }
    status = cubiemem_register(client, "story", NULL, &instance);
    if (status == CUBIEMEM_OK) {
        status = with_instance(instance);
        cubiemem_unregister(instance);
    }
    cubiemem_close(client);
    return status;
}

/* -------------------------------------------------------------------------- attempts */

struct attempt {
    const struct harness *harness;
    const char *symbol; /* of the driver; NULL: `kind` */
    enum kind kind;
    size_t k;  /* 0: nothing fails */
    int n_fds; /* descriptors that are open at the end of an attempt in which nothing fails */
};

struct verdict {
    bool reached; /* there was a k-th call */
    int status;
    int n_fds;
};

static void simulated(const struct harness *harness, struct driver *driver_p)
{
    char why[256];

    expect(driver_load(DRIVER_SIM, DRIVER_PART_CUDA, harness->dir, driver_p, why, sizeof(why)) == 0,
           "%s", why);
}

static void faults_set(const struct driver *driver, const char *faults)
{
    char why[256];
    int (*set)(const char *, char *, size_t) = (int (*)(const char *, char *, size_t))dlsym(
        driver->cuda_library, "cubiemem_sim_set_faults");

    expect(set != NULL && set(faults, why, sizeof(why)) == 0, "no faults: %s", why);
}

static uint64_t calls_of(const struct driver *driver, const char *symbol)
{
    uint64_t (*calls)(const char *) =
        (uint64_t(*)(const char *))dlsym(driver->cuda_library, "cubiemem_sim_calls");
    return calls(symbol);
}

static void attempt_run(int fd, const void *argument)
{
    const struct attempt *attempt = argument;
    struct verdict verdict = {0};
    struct driver driver;
    char faults[128];

    simulated(attempt->harness, &driver);
    if (attempt->k == 0) {
        verdict.status = story(attempt->harness);
    } else if (attempt->symbol != NULL) {
        snprintf(faults, sizeof(faults), "%s:%zu=999", attempt->symbol, attempt->k);
        uint64_t before = calls_of(&driver, attempt->symbol);
        faults_set(&driver, faults);
        verdict.status = story(attempt->harness);
        verdict.reached = calls_of(&driver, attempt->symbol) - before >= attempt->k;
        faults_set(&driver, NULL);
    } else {
        atomic_store(&until_failure[attempt->kind], attempt->k);
        verdict.status = story(attempt->harness);
        verdict.reached = atomic_exchange(&until_failure[attempt->kind], 0) == 0;
    }
    must(story(attempt->harness), "the story when nothing fails");
    verdict.n_fds = n_fds();
    for (int waited_ms = 0; verdict.n_fds > attempt->n_fds && waited_ms < 500; waited_ms += 5) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* threads close theirs */
        verdict.n_fds = n_fds();
    }
    role_tell(fd, &verdict, sizeof(verdict));
}

/* Looks at the daemon from a process in which nothing fails. */
static void witness_run(int fd, const void *argument)
{
    struct tenant tenant = {.client = harness_connect(argument, NULL)};
    char byte;

    while (recv(fd, &byte, 1, 0) == 1) {
        uint64_t left = UINT64_MAX;
        for (int waited_ms = 0; left > 0 && waited_ms < CLEAN_MS; waited_ms += 5) {
            left = tenant_figure(&tenant, "lent_bytes") + tenant_figure(&tenant, "draining_bytes") +
                   tenant_figure(&tenant, "promised_bytes");
            if (left > 0) {
                nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
            }
        }
        expect(left == 0, "%ju bytes are still lent, promised or draining", (uintmax_t)left);
        role_tell(fd, &byte, 1);
    }
    cubiemem_close(tenant.client);
}

static void check_clean(const struct role *witness)
{
    char byte = 0;

    role_tell(witness->fd, &byte, 1);
    role_hear(witness->fd, &byte, 1);
}

static const char *attempt_name(const struct attempt *attempt)
{
    return attempt->symbol != NULL ? attempt->symbol : kind_names[attempt->kind];
}

/* What the driver refuses to take back it keeps open. */
static bool takes_back(const char *symbol)
{
    static const char *const symbols[] = {"cuMemUnmap", "cuMemRelease", "cuDevicePrimaryCtxRelease",
                                          /* without which the library cannot call these */
                                          "cuCtxPushCurrent", "cuThreadExchangeStreamCaptureMode"};

    for (size_t i = 0; symbol != NULL && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        if (strcmp(symbol, symbols[i]) == 0) {
            return true;
        }
    }
    return false;
}

static struct verdict attempt_judge(const struct attempt *attempt, const struct role *witness)
{
    const char *name = attempt_name(attempt);
    struct verdict verdict;
    struct role role;
    char title[96];

    snprintf(title, sizeof(title), "story with %s %zu failing", name, attempt->k);
    role_start(&role, title, attempt_run, attempt);
    role_hear(role.fd, &verdict, sizeof(verdict));
    role_finish(&role);
    check_clean(witness);
    expect(strcmp(cubiemem_status_name(verdict.status), "UNKNOWN") != 0,
           "%s %zu: status %d is not documented", name, attempt->k, verdict.status);
    expect(verdict.reached || verdict.status == CUBIEMEM_OK, "%s without a fault: %s", name,
           cubiemem_status_name(verdict.status));
    expect(attempt->k == 0 || verdict.n_fds <= attempt->n_fds || takes_back(attempt->symbol),
           "%s %zu: %d descriptors are open, not %d", name, attempt->k, verdict.n_fds,
           attempt->n_fds);
    return verdict;
}

/* All k of one kind of call. */
static void try_all(struct attempt attempt, const struct role *witness)
{
    struct verdict verdict;
    size_t n_refused = 0;

    for (attempt.k = 1; attempt.k <= MOST_CALLS; attempt.k++) {
        verdict = attempt_judge(&attempt, witness);
        if (!verdict.reached) {
            break;
        }
        n_refused += verdict.status != CUBIEMEM_OK;
    }
    expect(attempt.k <= MOST_CALLS, "more than %d calls of %s", MOST_CALLS, attempt_name(&attempt));
    if (attempt.k > 1) {
        printf("%-36s %zu calls, %zu of their failures end the story\n", attempt_name(&attempt),
               attempt.k - 1, n_refused);
        fflush(stdout);
    }
}

/* ------------------------------------------------------------------------- all of it */

int main(void)
{
    static const char *const symbols[] = {
#define SYMBOL(member, symbol, parameters) #member,
        DRIVER_CUDA_MAP(SYMBOL)
#undef SYMBOL
    };
    struct harness harness;
    struct role witness;
    char sim[4096];

    expect(harness_stage_path("libcubiemem-sim.so", sim, sizeof(sim)), "no simulated driver");
    setenv("CUBIEMEM_SIM", sim, 1);
    harness_start("sim:64MiB", NULL, &harness);
    role_start(&witness, "witness", witness_run, &harness);
    struct attempt attempt = {.harness = &harness, .symbol = "nothing"}; /* n_fds 0: waits */
    attempt.n_fds = attempt_judge(&attempt, &witness).n_fds;
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        attempt.symbol = symbols[i];
        try_all(attempt, &witness);
    }
    attempt.symbol = NULL;
    for (int kind = 0; OWNS_MALLOC && kind < N_KINDS; kind++) {
        attempt.kind = (enum kind)kind;
        try_all(attempt, &witness);
    }
    role_kill(&witness);
    harness_stop(&harness);
    return 0;
}
