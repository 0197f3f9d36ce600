/*
 * legacy_helper - the process that makes legacy blocks: its whole life
 *
 * One thread, one socket: read a request, carry it out, answer. The driver is loaded and
 * the context made at the first allocation. At the end of the socket, or
 * when something is said that makes no sense, the process ends without freeing anything
 * (DESIGN 3.2): the driver knows who still has the memory open.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cubiemem.h"
#include "device.h"
#include "legacy.h"
#include "legacy_wire.h"
#include "log.h"

struct helper_block {
    uint64_t generation;
    CUdeviceptr address;
};

struct helper {
    const char *uuid, *run_dir;
    bool simulated;
    bool ready; /* device open, context current */
    struct device device;
    struct helper_block *blocks;
    size_t n_blocks, room;
};

_Static_assert(sizeof(CUipcMemHandle) == LEGACY_HANDLE_SIZE, "legacy handle");

/* The driver's refusal, logged and as the answer's figures. */
static void answer_refused(const struct helper *helper, CUresult result, const char *call,
                           struct legacy_answer *answer)
{
    char text[128];

    answer->status = device_status(result);
    answer->cu_result = (int32_t)result;
    if (answer->status != CUBIEMEM_NO_MEMORY) {
        log_warn("legacy helper: %s: %s", call, driver_error(&helper->device.driver, result, text));
    }
}

/* Load the driver and make the context. Tried anew at the next allocation. */
static bool helper_make_ready(struct helper *helper, struct legacy_answer *answer)
{
    const struct driver *driver = &helper->device.driver;
    CUcontext context;
    char why[256];

    if (helper->ready) {
        return true;
    }
    int status = device_open_uuid(helper->uuid, helper->simulated, helper->run_dir,
                                  &helper->device, why, sizeof(why));
    if (status != CUBIEMEM_OK) {
        log_warn("legacy helper: %s", why);
        answer->status = status;
        return false;
    }
    CUresult result = driver->cuDevicePrimaryCtxRetain(&context, helper->device.device);
    if (result == CUDA_SUCCESS) {
        result = driver->cuCtxSetCurrent(context);
        if (result != CUDA_SUCCESS) {
            driver->cuDevicePrimaryCtxRelease(helper->device.device);
        }
    }
    if (result != CUDA_SUCCESS) {
        answer_refused(helper, result, "no context", answer);
        device_close(&helper->device);
        return false;
    }
    helper->ready = true;
    return true;
}

static bool helper_reserve_block(struct helper *helper)
{
    if (helper->n_blocks < helper->room) {
        return true;
    }
    const size_t room = helper->room != 0 ? 2 * helper->room : 16;
    struct helper_block *grown = realloc(helper->blocks, room * sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    helper->blocks = grown;
    helper->room = room;
    return true;
}

/* A block that nobody has read or will read anything of a former tenant in. */
static void do_alloc(struct helper *helper, const struct legacy_request *request,
                     struct legacy_answer *answer)
{
    const struct driver *driver = &helper->device.driver;
    const char *call = "cuMemAlloc";
    CUipcMemHandle handle;
    CUdeviceptr address;

    if (!helper_reserve_block(helper)) {
        answer->status = CUBIEMEM_HOST_MEMORY;
        return;
    }
    if (!helper_make_ready(helper, answer)) {
        return;
    }
    CUresult result = driver->cuMemAlloc(&address, request->size);
    if (result != CUDA_SUCCESS) {
        answer_refused(helper, result, call, answer);
        return;
    }
    call = "cuMemsetD8";
    result = driver->cuMemsetD8(address, 0, request->size);
    if (result == CUDA_SUCCESS) {
        call = "cuCtxSynchronize";
        result = driver->cuCtxSynchronize();
    }
    if (result == CUDA_SUCCESS) {
        call = "cuIpcGetMemHandle";
        result = driver->cuIpcGetMemHandle(&handle, address);
    }
    if (result != CUDA_SUCCESS) {
        driver->cuMemFree(address);
        answer_refused(helper, result, call, answer);
        return;
    }
    helper->blocks[helper->n_blocks++] = (struct helper_block){request->generation, address};
    memcpy(answer->handle, &handle, sizeof(handle));
}

static void do_free(struct helper *helper, const struct legacy_request *request,
                    struct legacy_answer *answer)
{
    struct helper_block *block = NULL;

    for (size_t i = 0; i < helper->n_blocks && block == NULL; i++) {
        if (helper->blocks[i].generation == request->generation) {
            block = &helper->blocks[i];
        }
    }
    if (block == NULL) {
        answer->status = CUBIEMEM_NOT_FOUND;
        return;
    }
    CUresult result = helper->device.driver.cuMemFree(block->address);
    if (result != CUDA_SUCCESS) {
        answer_refused(helper, result, "cuMemFree", answer);
        return;
    }
    *block = helper->blocks[--helper->n_blocks];
}

static bool request_is_sane(const struct legacy_request *request, ssize_t size)
{
    if (size != (ssize_t)sizeof(*request) || request->magic != LEGACY_MAGIC) {
        return false;
    }
    return request->kind == LEGACY_FREE ||
           (request->kind == LEGACY_ALLOC && request->size != 0 &&
            request->size % LEGACY_GRANULARITY == 0);
}

static int helper_serve(struct helper *helper)
{
    for (;;) {
        struct legacy_request request;
        ssize_t size = recv(LEGACY_HELPER_SOCKET, &request, sizeof(request), MSG_TRUNC);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size == 0 || (size < 0 && errno == ECONNRESET)) {
            return 0;
        }
        if (!request_is_sane(&request, size)) {
            log_error("legacy helper: a request that makes no sense");
            return 1;
        }
        struct legacy_answer answer = {.magic = LEGACY_MAGIC,
                                       .kind = request.kind,
                                       .serial = request.serial,
                                       .generation = request.generation};
        if (request.kind == LEGACY_ALLOC) {
            do_alloc(helper, &request, &answer);
        } else {
            do_free(helper, &request, &answer);
        }
        while ((size = send(LEGACY_HELPER_SOCKET, &answer, sizeof(answer), MSG_NOSIGNAL)) < 0 &&
               errno == EINTR) {
        }
        if (size < 0) {
            return errno == EPIPE || errno == ECONNRESET ? 0 : 1;
        }
    }
}

bool legacy_is_helper(int argc, char *const *argv)
{
    return argc == LEGACY_HELPER_ARGC && strcmp(argv[0], LEGACY_HELPER_NAME) == 0;
}

int legacy_helper_main(int argc, char *const *argv)
{
    struct helper helper = {.uuid = argv[1],
                            .run_dir = argv[3],
                            .simulated = strcmp(argv[2], "sim") == 0};
    (void)argc;

    log_open(LOG_LEVEL_INFO);
    /* The daemon asked for this before the program was started, and asks who its parent is
     * after it, so that a daemon which died in between is noticed as well. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)strtol(argv[4], NULL, 10)) {
        _exit(1);
    }
    _exit(helper_serve(&helper)); /* not exit(): frees nothing, waits for nobody */
}
