/*
 * cubiemem.h - the public interface of libcubiemem
 *
 * A process connects to the cubiememd of its GPU, registers instances (holders
 * of arrays, "solvers"), queues ArrayRequests and commits them with
 * cubiemem_allocate(). The answer says where each array lies and into how many
 * chunks the run axis has to be cut so that the batch fits. Arrays may be used
 * between the grant or cubiemem_begin_work() and cubiemem_end_work().
 *
 * Rules of the house
 *   - An int result is CUBIEMEM_OK (0) or a negative status; the text and the
 *     figures behind a failure are in cubiemem_last_error() of this thread.
 *   - Outputs come last and are written on success only.
 *   - Structs that a caller fills begin with .size = sizeof of the struct and
 *     are otherwise zero-initialised; later versions append fields.
 *   - Every function may be called from any thread, and answers
 *     CUBIEMEM_FORKED in a forked child.
 *   - `size` is bytes, `n_` a count, `_ns` nanoseconds. "stream" is always a
 *     CUDA stream; a null stream means the legacy default stream.
 *   - This header needs no cuda.h and compiles as C11 and as C++11.
 */
#ifndef CUBIEMEM_H
#define CUBIEMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUBIEMEM_VERSION_MAJOR 0
#define CUBIEMEM_VERSION_MINOR 1
#define CUBIEMEM_VERSION_PATCH 0
#define CUBIEMEM_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define CUBIEMEM_API __attribute__((visibility("default")))
#define CUBIEMEM_CHECK __attribute__((warn_unused_result))
#else
#define CUBIEMEM_API
#define CUBIEMEM_CHECK
#endif

/*
 * The one list of statuses: C name, value (never renumbered; it travels on the
 * wire), text. Used by return values, by the protocol and by the tools.
 */
/* clang-format off */
#define CUBIEMEM_STATUS_MAP(X)                                                                   \
    X(OK,                      0, "success")                                                     \
    X(INVALID_REQUEST,        -1, "the request is malformed")                                    \
    X(NOT_REGISTERED,         -2, "no such instance is registered")                              \
    X(ALREADY_REGISTERED,     -3, "an instance of this name is registered already")              \
    X(BAD_PROPORTION,         -4, "a proportion is a finite number from 0 to 1")                 \
    X(QUOTA_OVERCOMMITTED,    -5, "the manual proportions would exceed the whole")               \
    X(AUTO_POOL_TOO_SMALL,    -6, "less than 5 % would be left for the auto pool")               \
    X(UNCHUNKABLE_TOO_LARGE,  -7, "the arrays that cannot be cut do not fit")                    \
    X(RUN_TOO_LARGE,          -8, "not even one run fits")                                       \
    X(TOO_LARGE,              -9, "an array or a batch is larger than 2^63-1 bytes")             \
    X(NO_MEMORY,             -10, "not enough device memory")                                    \
    X(BAD_MODE,              -11, "a limit mode is active or passive")                           \
    X(NOT_FOUND,             -12, "no such thing")                                               \
    X(NOT_PERMITTED,         -13, "not permitted")                                               \
    X(LIMIT,                 -14, "a limit of the protocol or of the user is reached")           \
    X(TIMEOUT,               -15, "the time is over")                                            \
    X(CANCELLED,             -16, "cancelled")                                                   \
    X(DRAINING,              -17, "the daemon lets nobody new in")                               \
    X(EVICTED,               -18, "the arrays were taken back; queue them again")                \
    X(BUSY,                  -19, "busy")                                                        \
    X(CAPTURING,             -20, "the stream is being captured")                                \
    X(FORKED,                -21, "a forked child cannot use its parent's client")               \
    X(IN_CALLBACK,           -22, "this call would wait and is not allowed in a callback")       \
    X(DISCONNECTED,          -23, "no daemon answers")                                           \
    X(VERSION_MISMATCH,      -24, "client and daemon speak different protocol versions")         \
    X(DEVICE_LOST,           -25, "the device or its memory is lost")                            \
    X(DEVICE_MISMATCH,       -26, "the memory is on another device")                             \
    X(HANDLE_KIND,           -27, "this kind of handle cannot be had here")                      \
    X(HOST_MEMORY,           -28, "not enough host memory")                                      \
    X(NO_FDS,                -29, "no file descriptors are left")                                \
    X(CUDA,                  -30, "the CUDA driver refused (see the CUresult)")                  \
    X(SYSTEM,                -31, "the operating system refused (see errno)")                    \
    X(INTERNAL,              -32, "internal error")
/* clang-format on */

enum cubiemem_status {
#define CUBIEMEM_STATUS_ENUM(name, value, text) CUBIEMEM_##name = value,
    CUBIEMEM_STATUS_MAP(CUBIEMEM_STATUS_ENUM)
#undef CUBIEMEM_STATUS_ENUM
};

/* Warnings, as bits; a granted request may carry several. */
#define CUBIEMEM_WARNING_MAP(X)                                                \
    X(AUTO_POOL_LOW, 1, "less than 5 % is left for the auto pool")             \
    X(GROUP_NEARLY_FULL, 2, "less than 5 % of the group's caps is left")       \
    X(OVERSUBSCRIBED_20X, 4, "the batch is over 20 times the free memory")

enum cubiemem_warning {
#define CUBIEMEM_WARNING_ENUM(name, value, text) CUBIEMEM_WARN_##name = value,
    CUBIEMEM_WARNING_MAP(CUBIEMEM_WARNING_ENUM)
#undef CUBIEMEM_WARNING_ENUM
};

/* Element types: name as written in requests, value on the wire, item size. */
#define CUBIEMEM_DTYPE_MAP(X)                                                  \
    X(float64, FLOAT64, 1, 8)                                                  \
    X(float32, FLOAT32, 2, 4)                                                  \
    X(float16, FLOAT16, 3, 2)                                                  \
    X(int64, INT64, 4, 8)                                                      \
    X(int32, INT32, 5, 4)                                                      \
    X(int16, INT16, 6, 2)                                                      \
    X(int8, INT8, 7, 1)                                                        \
    X(uint64, UINT64, 8, 8)                                                    \
    X(uint32, UINT32, 9, 4)                                                    \
    X(uint16, UINT16, 10, 2)                                                   \
    X(uint8, UINT8, 11, 1)                                                     \
    X(bool, BOOL, 12, 1)                                                       \
    X(complex64, COMPLEX64, 13, 8)                                             \
    X(complex128, COMPLEX128, 14, 16)

enum cubiemem_dtype {
#define CUBIEMEM_DTYPE_ENUM(text, name, value, size) CUBIEMEM_##name = value,
    CUBIEMEM_DTYPE_MAP(CUBIEMEM_DTYPE_ENUM)
#undef CUBIEMEM_DTYPE_ENUM
};

enum cubiemem_memory {
    CUBIEMEM_DEVICE = 1, /* device memory */
    CUBIEMEM_PINNED = 2, /* page-locked host memory; never counts as device */
};

enum cubiemem_handle_kind {
    CUBIEMEM_HANDLE_VMM_FD = 1, /* a segment as file descriptor (default) */
    CUBIEMEM_HANDLE_LEGACY = 2, /* a 64-byte CUipcMemHandle */
};

#define CUBIEMEM_MAX_RANK 32
#define CUBIEMEM_MAX_LABEL 255 /* bytes of a label or name, without the 0 */
#define CUBIEMEM_AXIS_NONE INT32_MIN /* no chunk axis */

struct cubiemem_client;
struct cubiemem_instance;
struct cubiemem_response;
typedef struct CUstream_st *cubiemem_stream;

/* Why a call of this thread failed, see cubiemem_last_error(). Figures are bytes;
 * UINT64_MAX where not known. */
struct cubiemem_error {
    int status;
    int sys_errno;  /* errno behind it, or 0 */
    int cu_result;  /* CUresult behind it, or 0 */
    uint64_t asked; /* bytes asked for */
    uint64_t held;  /* bytes that the instance (or group) holds */
    uint64_t cap;   /* its cap */
    uint64_t free;  /* what could have been had */
    uint64_t largest; /* the largest request that would fit in one chunk */
    const char *limited_by; /* "cap", "device", "budget", a ceiling's name; or NULL */
    const char *text;       /* one line: what was asked and what to do */
};

/* Options of cubiemem_connect(); all may be 0 or NULL. */
struct cubiemem_options {
    size_t size;
    const char *socket;   /* path; else CUBIEMEM_SOCKET, else by gpu_uuid */
    const char *gpu_uuid; /* "GPU-..."; else CUBIEMEM_GPU, else the only one */
    const char *name;     /* shown by status; else CUBIEMEM_NAME, else the program's */
    int handle_kind;      /* enum cubiemem_handle_kind; 0 = VMM_FD */
    int64_t timeout_ns;   /* for one answer of the daemon; 0 = 30 s */
    int manual_dispatch;  /* 1: no thread of the library; see get_fd, dispatch */
};

/* Called when the daemon takes an idle instance's arrays back: they are gone
 * when it returns. Runs in the library's thread (or in dispatch), holds no
 * lock, may not wait. */
typedef void cubiemem_invalidate_fn(struct cubiemem_instance *, void *arg);

/* Options of cubiemem_register(). */
struct cubiemem_instance_options {
    size_t size;
    const char *group;  /* stream group; NULL = "default" */
    int shared;         /* 1: the group is shared with other processes of this user */
    const char *owner;  /* unit of eviction; NULL = the instance's own name */
    int manual;         /* 1: .proportion is the quota; 0: the auto pool */
    double proportion;  /* of the budget, 0 to 1 */
    cubiemem_invalidate_fn *invalidate; /* NULL: never evicted */
    void *invalidate_arg;
};

/* One array of a batch. In an array of these, every .size must be the same. */
struct cubiemem_array_request {
    size_t size;
    const char *label; /* 1 to 255 bytes, unique in the request */
    const int64_t *shape;
    uint32_t rank;            /* 0 to 32; 0 is one element */
    int dtype;                /* enum cubiemem_dtype */
    int memory;               /* enum cubiemem_memory; 0 = device */
    int32_t chunk_axis_index; /* the run axis, or CUBIEMEM_AXIS_NONE */
    int unchunkable;          /* 1: never cut */
    int64_t total_runs;       /* the run axis's length; 0 or 1: as the axis says. It counts by itself
                               * only in a batch of which nothing can be cut */
    int zeroed;               /* 1: comes as zeros, in fresh memory (never in the same place) */
};
/* Start from it: float64, device memory, cut along axis 2, one run. Zeroed by hand, a
 * request names no dtype and axis 0. */
#define CUBIEMEM_ARRAY_REQUEST_INIT                                            \
    {                                                                          \
        sizeof(struct cubiemem_array_request), 0, 0, 0, CUBIEMEM_FLOAT64,      \
            CUBIEMEM_DEVICE, 2, 0, 1, 0                                        \
    }

/* How long cubiemem_allocate() may wait for device memory, and for how much. */
struct cubiemem_wait {
    size_t size;
    int64_t timeout_ns;  /* 0: not at all; negative is refused, there is no "for ever" */
    uint64_t max_chunks; /* wait until it is cut into no more; 0: as many as an equal share of
                          * the budget would take */
};

enum cubiemem_event_kind {
    CUBIEMEM_EVENT_EVICTED = 1, /* .instance's arrays were taken back */
    CUBIEMEM_EVENT_WAITING = 2, /* .instance's allocate waits, or waits for others now */
    CUBIEMEM_EVENT_LIMITS = 3,  /* mode, quotas or ceilings were changed by hand */
    CUBIEMEM_EVENT_LOST = 4,    /* the daemon is gone: calls answer DISCONNECTED */
};

/* Valid during the call. Fields that the kind does not name are 0 or NULL. */
struct cubiemem_event {
    size_t size;
    int kind; /* enum cubiemem_event_kind; later versions may have more */
    struct cubiemem_instance *instance; /* EVICTED, WAITING */
    const char *text;        /* WAITING: why, one line; LOST: the same */
    uint64_t position;       /* WAITING: 1 is served next */
    uint64_t asked;          /* WAITING: bytes, in one chunk */
    uint64_t max_chunks;     /* WAITING: it ends when the batch can be had in so many */
    const uint64_t *holders; /* WAITING: clients, as status shows them, that hold what the
                              * first in line waits for */
    size_t n_holders;
    uint64_t revision;       /* LIMITS: their number, as status shows it */
};

/* Runs in the library's thread (or in dispatch), holds no lock, may not wait. */
typedef void cubiemem_event_fn(struct cubiemem_client *, const struct cubiemem_event *, void *arg);

/* How the run axis was cut. */
struct cubiemem_partition {
    size_t size;
    uint64_t runs;         /* runs of the whole batch */
    uint64_t chunks;       /* at least 1 (0: nothing was queued) */
    uint64_t chunk_length; /* runs of every chunk but the last; what buffers hold */
    uint64_t tail_length;  /* runs of the last chunk */
    uint32_t warnings;     /* enum cubiemem_warning bits */
};

/* Where an array lies. The shape is that of one chunk. */
struct cubiemem_array {
    size_t size;
    void *pointer; /* device pointer (pinned: host pointer); NULL if nbytes is 0 */
    uint64_t nbytes;
    int dtype;
    int memory;
    uint32_t rank;
    int64_t shape[CUBIEMEM_MAX_RANK];
    uint64_t block_id; /* block in which it lies; 0 for pinned arrays, and empty ones beside no others */
    uint64_t offset;   /* bytes from the block's start */
    uint64_t grant;    /* number of the grant that placed it */
};

/* A legacy handle, to be opened in any process of the same PID namespace that
 * sees the device: pass all of it together. */
struct cubiemem_ipc_handle {
    size_t size;
    unsigned char handle[64]; /* CUipcMemHandle / cudaIpcMemHandle_t */
    uint64_t offset;          /* bytes from the start of the opened memory */
    uint64_t nbytes;
    uint64_t generation;
    char device_uuid[48];
};

struct cubiemem_device_info {
    size_t size;
    char uuid[48];
    char name[96];
    int simulated;
    uint64_t budget;       /* bytes the daemon may hand out */
    uint64_t granularity;  /* bytes */
    uint32_t handle_kinds; /* bit (1 << enum cubiemem_handle_kind) */
};

struct cubiemem_instance_info {
    size_t size;
    double proportion;
    uint64_t cap;       /* bytes */
    uint64_t allocated; /* bytes charged */
    int manual;
};

/* ------------------------------------------------------------- texts, errors */

/**
 * cubiemem_version() - the library's version
 *
 * Threads: safe from any thread, also in hooks and after fork.
 *
 * Return: "MAJOR.MINOR.PATCH"; static. Compare with CUBIEMEM_VERSION_STRING.
 */
CUBIEMEM_API const char *cubiemem_version(void);

/**
 * cubiemem_strerror() - a status in words
 * @status: enum cubiemem_status, or anything else
 *
 * Return: the text of CUBIEMEM_STATUS_MAP; static, never NULL.
 */
CUBIEMEM_API const char *cubiemem_strerror(int status);

/**
 * cubiemem_status_name() - a status by its name, such as "NO_MEMORY"
 * @status: enum cubiemem_status, or anything else
 *
 * Return: the name without its prefix; static, "UNKNOWN" for what is no status.
 */
CUBIEMEM_API const char *cubiemem_status_name(int status);

/**
 * cubiemem_last_error() - why the last failing call of this thread failed
 *
 * Units:     figures in bytes, UINT64_MAX where unknown; sys_errno and
 *            cu_result are 0 where there is none behind it.
 * Ownership: the library's; valid until this thread's next failing call.
 * Threads:   one record for each thread; what fails in the library's own thread
 *            is nobody's last error.
 *
 * Return: the record, never NULL. A call that succeeds leaves it alone.
 */
CUBIEMEM_API const struct cubiemem_error *cubiemem_last_error(void);

/* -------------------------------------------------------------------- client */

/**
 * cubiemem_connect() - open a session with the daemon of one GPU
 * @options:  what to connect to and how; NULL: everything from the environment
 * @client_p: (out) the client
 *
 * The socket is options->socket, else $CUBIEMEM_SOCKET, else the one of
 * gpu_uuid (or $CUBIEMEM_GPU) in $CUBIEMEM_RUNDIR, /run/cubiemem or
 * $XDG_RUNTIME_DIR/cubiemem, else the only one there. Makes no CUDA context and
 * loads no driver: the first cubiemem_register() does.
 *
 * Units:     timeout_ns in nanoseconds on the monotonic clock, for each answer of
 *            the daemon in all later calls; 0 is 30 s, negative is refused.
 * Ownership: the caller's, until cubiemem_close().
 * Threads:   safe from any thread. Unless .manual_dispatch is set, a thread of
 *            the library, with all signals blocked, answers the daemon.
 *
 * Return: CUBIEMEM_OK; INVALID_REQUEST (options, or several daemons and no
 *         choice); DISCONNECTED (none answers); NOT_PERMITTED (the socket's mode
 *         and group are in the text); TIMEOUT; DRAINING; LIMIT;
 *         VERSION_MISMATCH (the text says which side to upgrade);
 *         DEVICE_MISMATCH; HANDLE_KIND (this kind cannot be had here); NO_FDS;
 *         HOST_MEMORY; SYSTEM; IN_CALLBACK.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_connect(const struct cubiemem_options *options,
                                                 struct cubiemem_client **client_p);

/**
 * cubiemem_close() - end the session and give everything back
 * @client: a client, or NULL
 *
 * All its instances, pointers and group streams die. Waits up to 5 s for marked
 * work; memory in which work still runs after that stays mapped and goes back
 * through the driver when the process is gone.
 *
 * Threads: no other call on this client may be under way or follow. Does nothing
 *          in a hook, and nothing in a forked child: the child's exit, too, gives
 *          nothing of its parent back.
 */
CUBIEMEM_API void cubiemem_close(struct cubiemem_client *client);

/**
 * cubiemem_set_event_fn() - hear of what happens without being asked for
 * @client: client
 * @fn:     called for each event; NULL: no more of them
 * @arg:    passed to it
 *
 * Instead of an earlier one, which may still be running in the library's thread
 * when this returns. Calls in it that would wait answer IN_CALLBACK;
 * cubiemem_cancel() is allowed.
 *
 * Threads: safe from any thread.
 *
 * Return: CUBIEMEM_OK; INVALID_REQUEST; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_set_event_fn(struct cubiemem_client *client,
                                                      cubiemem_event_fn *fn, void *arg);

/**
 * cubiemem_get_fd() - a descriptor to poll, for a client with .manual_dispatch
 * @client: client
 *
 * Ownership: the library's: poll it for reading, and do nothing else with it.
 *
 * Return: the descriptor (at least 0), readable when cubiemem_dispatch() has
 *         something to do; INVALID_REQUEST if the library's thread reads; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_get_fd(struct cubiemem_client *client);

/**
 * cubiemem_dispatch() - do what the daemon asks for, with .manual_dispatch
 * @client:     client
 * @timeout_ns: how long to wait for something to do; 0: not at all; negative is
 *              refused
 *
 * Runs invalidate hooks. A program that does not call it in time (2 s by
 * default) counts as busy and is not evicted.
 *
 * Units:   nanoseconds.
 * Threads: from one thread at a time; the hooks run in it.
 *
 * Return: CUBIEMEM_OK, also if there was nothing; INVALID_REQUEST;
 *         DISCONNECTED; IN_CALLBACK; FORKED; SYSTEM.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_dispatch(struct cubiemem_client *client,
                                                  int64_t timeout_ns);

/**
 * cubiemem_ping() - one round trip to the daemon
 * @client:     client
 * @timeout_ns: how long to wait for the answer
 *
 * Units:   nanoseconds; negative is refused.
 * Threads: safe from any thread; calls of several threads are under way at once
 *          (at most 64, then they wait for each other).
 *
 * Return: CUBIEMEM_OK; TIMEOUT; DISCONNECTED; INVALID_REQUEST; IN_CALLBACK;
 *         FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_ping(struct cubiemem_client *client,
                                              int64_t timeout_ns);

/**
 * cubiemem_device_info() - the daemon's device, as it was when we connected
 * @client: client
 * @info_p: (out) .size set by the caller
 *
 * Units:   bytes. handle_kinds has bit (1 << kind) for every kind to be had.
 * Threads: safe from any thread; asks nobody.
 *
 * Return: CUBIEMEM_OK; INVALID_REQUEST; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_device_info(struct cubiemem_client *client,
                                                     struct cubiemem_device_info *info_p);

/**
 * cubiemem_status_json() - the daemon's whole state as one JSON document
 * @client: client
 * @json_p: (out) zero-terminated UTF-8; README, "The status as JSON"
 *
 * Ownership: the caller's, until cubiemem_string_free().
 * Threads:   safe from any thread; waits for the daemon.
 *
 * Return: CUBIEMEM_OK; TIMEOUT; DISCONNECTED; HOST_MEMORY; INVALID_REQUEST;
 *         IN_CALLBACK; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_status_json(struct cubiemem_client *client,
                                                     char **json_p);

/**
 * cubiemem_string_free() - free a string that the library gave
 * @string: of cubiemem_status_json(), or NULL
 */
CUBIEMEM_API void cubiemem_string_free(char *string);

/* ---------------------------------------------------------- instances, quota */

/**
 * cubiemem_register() - register a holder of arrays
 * @client:     client
 * @name:       1 to 255 bytes, unique in the session
 * @options:    group, owner, quota, hook; NULL: group "default", the auto pool,
 *              never evicted
 * @instance_p: (out) the instance
 *
 * The first one of a client retains the primary context of the daemon's device
 * (found by UUID, so CUDA_VISIBLE_DEVICES may reorder), which takes a tenth of a
 * second and the context's own memory.
 *
 * Units:     proportion: of the budget, 0 to 1; a quota of 0 is a quota.
 * Ownership: the client's; ends with cubiemem_unregister() or
 *            cubiemem_close(). Strings are copied.
 * Threads:   safe from any thread; waits for the daemon. The hook runs in the
 *            library's thread (or in dispatch), holds no lock and may not wait.
 * Source:    CuBIE, MemoryManager.register.
 *
 * Return: CUBIEMEM_OK; ALREADY_REGISTERED; BAD_PROPORTION;
 *         QUOTA_OVERCOMMITTED; AUTO_POOL_TOO_SMALL; LIMIT; DRAINING;
 *         INVALID_REQUEST; DEVICE_MISMATCH (the device is not visible here);
 *         NOT_FOUND (no driver); CUDA; TIMEOUT; DISCONNECTED; HOST_MEMORY;
 *         IN_CALLBACK; FORKED. Nothing is registered on failure.
 */
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_register(struct cubiemem_client *client, const char *name,
                  const struct cubiemem_instance_options *options,
                  struct cubiemem_instance **instance_p);

/**
 * cubiemem_unregister() - take an instance out, and give its arrays back
 * @instance: an instance, or NULL; dead afterwards
 *
 * Waits for the owner's marked work, up to the client's time-out; if it still
 * runs then, cubiemem_last_error() says TIMEOUT, and the instance and its
 * memory stay as they are until cubiemem_close().
 *
 * Threads: no other call on this instance may be under way. Does nothing in a
 *          hook or in a forked child. The name may be registered again.
 */
CUBIEMEM_API void cubiemem_unregister(struct cubiemem_instance *instance);

/**
 * cubiemem_instance_info() - what an instance may hold and holds
 * @instance: instance
 * @info_p:   (out) .size set by the caller
 *
 * Units:   bytes; proportion of the budget. `allocated` is what is charged:
 *          whole blocks, so at least what the arrays need.
 * Threads: safe from any thread; waits for the daemon, and for an allocate of
 *          this instance that is under way.
 *
 * Return: CUBIEMEM_OK; NOT_REGISTERED; TIMEOUT; DISCONNECTED;
 *         INVALID_REQUEST; IN_CALLBACK; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_instance_info(struct cubiemem_instance *instance,
                       struct cubiemem_instance_info *info_p);

/**
 * cubiemem_set_proportion() - give an instance a quota by hand
 * @instance:   instance
 * @proportion: of the budget, a finite number from 0 to 1
 *
 * cap = trunc(proportion * budget). What is held above it is not taken away.
 *
 * Threads: safe from any thread; waits for the daemon.
 * Source:  CuBIE, MemoryManager.set_manual_proportion.
 *
 * Return: CUBIEMEM_OK; BAD_PROPORTION; QUOTA_OVERCOMMITTED;
 *         AUTO_POOL_TOO_SMALL; NOT_REGISTERED; TIMEOUT; DISCONNECTED;
 *         IN_CALLBACK; FORKED. The old quota stays on failure.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_set_proportion(struct cubiemem_instance *instance,
                                                        double proportion);

/**
 * cubiemem_set_auto() - put an instance into the auto pool
 * @instance: instance
 *
 * The pool has what the manual quotas leave, at least 5 % of the budget; it is
 * divided equally among processes, then among the instances of each.
 *
 * Threads: safe from any thread; waits for the daemon.
 * Source:  CuBIE, MemoryManager.set_auto_limit_mode.
 *
 * Return: CUBIEMEM_OK; AUTO_POOL_TOO_SMALL; NOT_REGISTERED; TIMEOUT;
 *         DISCONNECTED; IN_CALLBACK; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_set_auto(struct cubiemem_instance *instance);

/**
 * cubiemem_change_group() - move an instance to another stream group
 * @instance: instance
 * @group:    1 to 255 bytes; appears when first named
 * @shared:   1: the group that all processes of this user have in common
 *
 * A queued request moves along, to the end of the new group's queue.
 *
 * Threads: safe from any thread; waits for the daemon.
 * Source:  CuBIE, StreamGroups.change_group.
 *
 * Return: CUBIEMEM_OK; NOT_REGISTERED; INVALID_REQUEST; TIMEOUT;
 *         DISCONNECTED; HOST_MEMORY; IN_CALLBACK; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_change_group(struct cubiemem_instance *instance,
                                                      const char *group, int shared);

/**
 * cubiemem_memory_info() - what this instance's group could still get
 * @instance: instance
 * @free_p:   (out) bytes that a batch could have now, without evicting anybody
 * @total_p:  (out) the sum of the group's caps, in passive mode the budget
 *
 * Threads: safe from any thread; waits for the daemon. A hint: others ask, too.
 *
 * Return: CUBIEMEM_OK; NOT_REGISTERED; INVALID_REQUEST; TIMEOUT;
 *         DISCONNECTED; IN_CALLBACK; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_memory_info(struct cubiemem_instance *instance,
                                                     uint64_t *free_p, uint64_t *total_p);

/* ------------------------------------------------------------------- batches */

/**
 * cubiemem_queue() - say what arrays an instance wants next
 * @instance:   instance
 * @requests:   n_requests of them, each .size alike; may be NULL if there are none
 * @n_requests: 0 to 4096; none at all is a request, too
 *
 * Replaces the instance's earlier request whole. Nothing is allocated before
 * cubiemem_allocate(). In a shared group it is sent at once, so that any member's
 * allocate commits it.
 *
 * Shapes:    up to 32 dimensions, 0 among them is fine, no dimensions are one
 *            element; bytes = product * item size, at most 2^63-1. An array may
 *            be cut along chunk_axis_index if that axis exists and is longer
 *            than 1, unless .unchunkable.
 * Ownership: everything is copied.
 * Threads:   safe from any thread; in a shared group it waits for the daemon.
 * Source:    CuBIE, MemoryManager.queue_request; vectors, rules 4 and 5.
 *
 * Return: CUBIEMEM_OK; INVALID_REQUEST (the text names the array); TOO_LARGE;
 *         LIMIT; HOST_MEMORY; FORKED; in a shared group also NOT_REGISTERED,
 *         TIMEOUT, DISCONNECTED, IN_CALLBACK. The earlier request stays on
 *         failure.
 */
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_queue(struct cubiemem_instance *instance,
               const struct cubiemem_array_request *requests, size_t n_requests);

/**
 * cubiemem_allocate() - commit what is queued in the instance's group
 * @instance:   the trigger
 * @wait:       how long to wait for device memory; NULL: not at all
 * @response_p: (out) what the trigger got; others' with cubiemem_take_response()
 *
 * All arrays of all members or none. If they do not fit, all chunkable ones are
 * cut alike, along the run axis, into the fewest chunks that do. Arrays replace
 * what the instance held under the same labels; other labels stay. An array of
 * the same size stays where it is: pointers and mappings are the same, and no
 * driver call is made. Contents are undefined, but those of an array with
 * .zeroed, which always comes in memory fresh from the driver. Waits first for the owner's
 * marked work, because what is replaced is unmapped.
 *
 * With @wait it waits while device memory lacks and the batch would be cut into
 * more than max_chunks; never for a cap or a ceiling. When the time is over it
 * takes what there is, in more chunks, or answers NO_MEMORY. First come first
 * served: what needs new memory never passes somebody who waits (without @wait it
 * gets NO_MEMORY then). What an empty device could not serve is refused at once. A
 * cubiemem_release() in another thread can be what it waits for. Position and
 * reason come as events.
 *
 * Shapes:    those of one chunk; see cubiemem_response_array(). Device pointers
 *            are 512-byte aligned.
 * Units:     bytes in cubiemem_last_error(): asked, held, cap, free, largest.
 *            wait->timeout_ns in nanoseconds.
 * Ownership: the response is the caller's (cubiemem_response_free()); the memory
 *            stays the instance's until it is released, replaced or evicted.
 * Threads:   safe from any thread; one allocate at a time for each group. Waits
 *            up to the client's time-out, and wait->timeout_ns more. After TIMEOUT
 *            the grant, if it comes late, waits in cubiemem_take_response().
 * Source:    CuBIE, MemoryManager.allocate_queue; CUDA driver API, Virtual
 *            Memory Management.
 *
 * Return: CUBIEMEM_OK, with warnings in the partition; NO_MEMORY,
 *         UNCHUNKABLE_TOO_LARGE, RUN_TOO_LARGE (limited_by says by what);
 *         TOO_LARGE, INVALID_REQUEST (run axes that disagree); NOT_REGISTERED;
 *         BUSY; LIMIT; TIMEOUT; CANCELLED; DISCONNECTED; IN_CALLBACK; FORKED: queue
 *         and arrays are as they were. NO_FDS, CUDA, HOST_MEMORY, INTERNAL: it was
 *         granted but could not be mapped; the arrays of the request are not
 *         held any more, queue them again.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_allocate(struct cubiemem_instance *instance,
                                                  const struct cubiemem_wait *wait,
                                                  struct cubiemem_response **response_p);

/**
 * cubiemem_cancel() - end an allocate that waits
 * @instance: its trigger
 *
 * The allocate answers CANCELLED in its own thread, and leaves queue and arrays as
 * they were. Nothing happens if none of this instance waits, or if it is
 * being granted already.
 *
 * Threads: safe from any thread, also in an event function or a hook; asks nobody.
 *
 * Return: CUBIEMEM_OK; INVALID_REQUEST; DISCONNECTED; TIMEOUT; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_cancel(struct cubiemem_instance *instance);

/**
 * cubiemem_take_response() - what another member's allocate gave this instance
 * @instance:   instance
 * @response_p: (out) the newest response that was not taken yet
 *
 * If several were not taken, it has the arrays of all of them, each where it lies now;
 * the partition is the newest one's. Until it is taken, the grant counts as not used, and
 * the owner is not evicted.
 *
 * Ownership: the caller's, until cubiemem_response_free().
 * Threads:   safe from any thread; waits for nobody.
 *
 * Return: CUBIEMEM_OK; NOT_FOUND (none waits); NO_FDS, CUDA, HOST_MEMORY,
 *         INTERNAL (the grant could not be mapped); INVALID_REQUEST; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_take_response(struct cubiemem_instance *instance,
                       struct cubiemem_response **response_p);

/**
 * cubiemem_response_free() - free the description of a grant
 * @response: a response, or NULL
 *
 * The memory stays held: cubiemem_release() gives it back.
 */
CUBIEMEM_API void cubiemem_response_free(struct cubiemem_response *response);

/**
 * cubiemem_response_partition() - how the run axis was cut
 * @response:    response
 * @partition_p: (out) .size set by the caller
 *
 * Units: runs. runs = (chunks - 1) * chunk_length + tail_length. chunks is at
 *        least 1, but 0 when nothing was queued and nothing was cut before.
 *
 * Return: CUBIEMEM_OK; INVALID_REQUEST.
 */
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_response_partition(const struct cubiemem_response *response,
                            struct cubiemem_partition *partition_p);

/**
 * cubiemem_response_array() - where one array lies
 * @response: response
 * @label:    its label
 * @array_p:  (out) .size set by the caller
 *
 * Shapes:    of one full chunk: chunk_length in place of the run axis of a
 *            chunkable array; row-major, nbytes = product * item size.
 * Ownership: the pointer is valid while the instance holds the array, and may be
 *            used between the grant or cubiemem_begin_work() and
 *            cubiemem_end_work(). NULL if nbytes is 0. Pinned arrays have host
 *            pointers.
 *
 * Return: CUBIEMEM_OK; NOT_FOUND; INVALID_REQUEST.
 */
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_response_array(const struct cubiemem_response *response, const char *label,
                        struct cubiemem_array *array_p);

/**
 * cubiemem_response_chunk() - the runs of one chunk
 * @response: response
 * @index:    0 to chunks - 1
 * @first_p:  (out) number of its first run
 * @n_p:      (out) its runs: chunk_length, in the last chunk tail_length
 *
 * Return: CUBIEMEM_OK; NOT_FOUND (no such chunk); INVALID_REQUEST.
 */
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_response_chunk(const struct cubiemem_response *response, uint64_t index,
                        uint64_t *first_p, uint64_t *n_p);

/**
 * cubiemem_release() - give arrays back
 * @instance: instance
 * @labels:   n_labels of them; NULL: everything. Labels not held are fine.
 * @n_labels: count
 *
 * The caller vouches that nothing works in them any more (cubiemem_sync()). Small
 * arrays share a block, which goes back with the last of them. No answer is
 * waited for.
 *
 * Threads: safe from any thread, also in a hook.
 * Source:  CuBIE, MemoryManager.free.
 *
 * Return: CUBIEMEM_OK; INVALID_REQUEST; DISCONNECTED; CUDA (could not be
 *         unmapped, and is still held); HOST_MEMORY; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_release(struct cubiemem_instance *instance,
                                                 const char *const *labels, size_t n_labels);

/* ---------------------------------------------------------------- work marks */

/**
 * cubiemem_begin_work() - keep the owner's arrays in place
 * @instance: any instance of the owner
 *
 * Pairs nest, over all threads and instances of the owner. No system call, no
 * message, no lock.
 *
 * Threads: safe from any thread, also in host functions.
 *
 * Return: CUBIEMEM_OK; EVICTED (the arrays were taken back: queue, allocate; or
 *         another member's allocate replaced them: take_response); LIMIT;
 *         INVALID_REQUEST; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_begin_work(struct cubiemem_instance *instance);

/**
 * cubiemem_end_work() - the work that was begun ends with what is in the stream
 * @instance: any instance of the owner
 * @stream:   where it was launched; NULL: the legacy default stream;
 *            (cubiemem_stream)2: the calling thread's default stream
 *
 * Puts a mark in the stream and returns. The owner may be evicted once every mark
 * was reached and every grant was worked with. Work in several streams needs a
 * pair for each.
 *
 * Threads: safe from any thread. A first mark in many hundred streams may wait
 *          for the daemon.
 * Source:  CUDA driver API, cuStreamWriteValue64; cuLaunchHostFunc where the
 *          device lacks it.
 *
 * Return: CUBIEMEM_OK; CAPTURING (the stream is being captured: end the work
 *         after the graph's launch); INVALID_REQUEST (nothing is begun); CUDA;
 *         DEVICE_LOST; LIMIT; HOST_MEMORY; FORKED. The work still counts as
 *         begun on failure.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_end_work(struct cubiemem_instance *instance,
                                                  cubiemem_stream stream);

/**
 * cubiemem_sync() - wait for the owner's marked work
 * @instance: any instance of the owner
 *
 * For what was marked before the call, and for nothing else in the device; as long
 * as it takes.
 *
 * Threads: safe from any thread; not in hooks and host functions.
 *
 * Return: CUBIEMEM_OK; DEVICE_LOST (it will never end); INVALID_REQUEST;
 *         IN_CALLBACK; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_sync(struct cubiemem_instance *instance);

/* ------------------------------------------------------------------- streams */

/**
 * cubiemem_group_stream() - the CUDA stream of the instance's group
 * @instance: instance
 * @stream_p: (out) a non-blocking stream, never the null stream
 *
 * One for each group of this process, made when first asked for.
 *
 * Ownership: the client's, until cubiemem_close(); do not destroy it.
 * Threads:   safe from any thread.
 * Source:    CuBIE, StreamGroups.get_stream.
 *
 * Return: CUBIEMEM_OK; CUDA; INVALID_REQUEST; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_group_stream(struct cubiemem_instance *instance,
                                                      cubiemem_stream *stream_p);

/**
 * cubiemem_stream_host_fn() - call a function in stream order
 * @stream: of a client of this process; NULL: the legacy default stream
 * @fn:     may not call the driver, nor functions of this library that do
 * @arg:    passed to it
 *
 * Works alike on a GPU and on the simulated device, where programs run their
 * "kernels" so.
 *
 * Threads: safe from any thread; fn runs in a thread of the driver.
 * Source:  CUDA driver API, cuLaunchHostFunc.
 *
 * Return: CUBIEMEM_OK; NOT_REGISTERED (no client has a device yet); CUDA;
 *         INVALID_REQUEST; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_stream_host_fn(cubiemem_stream stream,
                                                        void (*fn)(void *), void *arg);

/* ------------------------------------------------------------------- handles */

/**
 * cubiemem_export_legacy() - a handle that cudaIpcOpenMemHandle understands
 * @instance: instance of a client with .handle_kind = CUBIEMEM_HANDLE_LEGACY
 * @label:    an array that it holds
 * @handle_p: (out) .size set by the caller
 *
 * The handle is the block's: add .offset to what it opens as, and compare
 * .device_uuid and .generation. Whoever opens it closes it before the array is
 * released.
 *
 * Units:   offset, nbytes in bytes.
 * Threads: safe from any thread; asks nobody.
 * Source:  CUDA runtime API, cudaIpcOpenMemHandle.
 *
 * Return: CUBIEMEM_OK; NOT_FOUND (not held); HANDLE_KIND (its memory has none:
 *         the text says what to do); INVALID_REQUEST; FORKED.
 */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_export_legacy(struct cubiemem_instance *instance,
                                                       const char *label,
                                                       struct cubiemem_ipc_handle *handle_p);

#ifdef __cplusplus
}
#endif

#endif
