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

/* Why the last call of this thread failed. Figures are bytes; UINT64_MAX where
 * not known. Valid until the thread's next call. */
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
    int64_t total_runs;       /* at least 1; 0 counts as 1 */
};
#define CUBIEMEM_ARRAY_REQUEST_INIT                                            \
    {                                                                          \
        sizeof(struct cubiemem_array_request), 0, 0, 0, CUBIEMEM_FLOAT64,      \
            CUBIEMEM_DEVICE, 2, 0, 1                                           \
    }

/* How the run axis was cut. */
struct cubiemem_partition {
    size_t size;
    uint64_t runs;         /* runs of the whole batch */
    uint64_t chunks;       /* at least 1 */
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
    uint64_t block_id; /* block in which it lies; 0 for pinned and empty arrays */
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

CUBIEMEM_API const char *cubiemem_version(void);
CUBIEMEM_API const char *cubiemem_strerror(int status);
CUBIEMEM_API const char *cubiemem_status_name(int status);
CUBIEMEM_API const struct cubiemem_error *cubiemem_last_error(void);

/* client */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_connect(const struct cubiemem_options *options,
                                                 struct cubiemem_client **client_p);
CUBIEMEM_API void cubiemem_close(struct cubiemem_client *client);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_get_fd(struct cubiemem_client *client);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_dispatch(struct cubiemem_client *client,
                                                  int64_t timeout_ns);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_ping(struct cubiemem_client *client,
                                              int64_t timeout_ns);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_device_info(struct cubiemem_client *client,
                                                     struct cubiemem_device_info *info_p);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_status_json(struct cubiemem_client *client,
                                                     char **json_p);
CUBIEMEM_API void cubiemem_string_free(char *string);

/* instances, quota */
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_register(struct cubiemem_client *client, const char *name,
                  const struct cubiemem_instance_options *options,
                  struct cubiemem_instance **instance_p);
CUBIEMEM_API void cubiemem_unregister(struct cubiemem_instance *instance);
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_instance_info(struct cubiemem_instance *instance,
                       struct cubiemem_instance_info *info_p);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_set_proportion(struct cubiemem_instance *instance,
                                                        double proportion);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_set_auto(struct cubiemem_instance *instance);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_change_group(struct cubiemem_instance *instance,
                                                      const char *group, int shared);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_memory_info(struct cubiemem_instance *instance,
                                                     uint64_t *free_p, uint64_t *total_p);

/* batches */
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_queue(struct cubiemem_instance *instance,
               const struct cubiemem_array_request *requests, size_t n_requests);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_allocate(struct cubiemem_instance *instance,
                                                  struct cubiemem_response **response_p);
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_take_response(struct cubiemem_instance *instance,
                       struct cubiemem_response **response_p);
CUBIEMEM_API void cubiemem_response_free(struct cubiemem_response *response);
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_response_partition(const struct cubiemem_response *response,
                            struct cubiemem_partition *partition_p);
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_response_array(const struct cubiemem_response *response, const char *label,
                        struct cubiemem_array *array_p);
CUBIEMEM_API CUBIEMEM_CHECK int
cubiemem_response_chunk(const struct cubiemem_response *response, uint64_t index,
                        uint64_t *first_p, uint64_t *n_p);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_release(struct cubiemem_instance *instance,
                                                 const char *const *labels, size_t n_labels);

/* work marks */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_begin_work(struct cubiemem_instance *instance);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_end_work(struct cubiemem_instance *instance,
                                                  cubiemem_stream stream);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_sync(struct cubiemem_instance *instance);

/* streams */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_group_stream(struct cubiemem_instance *instance,
                                                      cubiemem_stream *stream_p);
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_stream_host_fn(cubiemem_stream stream,
                                                        void (*fn)(void *), void *arg);

/* handles */
CUBIEMEM_API CUBIEMEM_CHECK int cubiemem_export_legacy(struct cubiemem_instance *instance,
                                                       const char *label,
                                                       struct cubiemem_ipc_handle *handle_p);

#ifdef __cplusplus
}
#endif

#endif
