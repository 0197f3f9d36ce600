/*
 * marks - the work marks of one owner: what is begun, what is submitted
 *
 * A mark on a stream is a number: `submitted` counts up here, and the stream
 * writes the same number to `completed` when it gets there, by a stream memory
 * operation or, where the device has none, by a host function. Slots are found
 * by (stream handle, thread); an owner with very many streams uses idle slots
 * again, never a busy one, since a late write would end another's work.
 */
#include "marks.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "failure.h"
#include "seam.h"

#define MARKS_BEFORE_REUSE 64u
#define PROBE_EVERY_NS 100000000ll
#define WAIT_FIRST_NS 20000ll
#define WAIT_LONGEST_NS 1000000ll

struct owner *owner_create(const char *name, uint32_t where, struct control_owner *words,
                           struct pages *pages, struct context *context)
{
    struct owner *owner = calloc(1, sizeof *owner);
    if (owner == NULL) {
        return NULL;
    }
    owner->name = strdup(name);
    if (owner->name == NULL) {
        free(owner);
        return NULL;
    }
    owner->where = where;
    owner->words = words;
    owner->pages = pages;
    owner->context = context;
    pthread_mutex_init(&owner->lock, NULL);
    return owner;
}

static bool mark_is_idle(const struct mark *mark)
{
    return atomic_load(&mark->slot.words->completed) == atomic_load(&mark->slot.words->submitted);
}

struct owner *owner_destroy(struct owner *owner)
{
    if (owner != NULL) {
        for (size_t i = 0; i < owner->n_marks; i++) {
            if (mark_is_idle(&owner->marks[i])) {
                pages_give_stream(&owner->marks[i].slot);
            }
        }
        pthread_mutex_destroy(&owner->lock);
        free(owner->marks);
        free(owner->name);
        free(owner);
    }
    return NULL;
}

/* -------------------------------------------------------- begin */

int marks_begin(struct owner *owner)
{
    struct control_owner *words = owner->words;
    uint64_t word = atomic_load_explicit(&words->word, memory_order_relaxed);
    do {
        if ((word & CONTROL_EVICTING) != 0) {
            return failure_set(CUBIEMEM_EVICTED,
                               "the arrays of owner %s were taken back: queue them again, then "
                               "allocate",
                               owner->name);
        }
        if ((word & CONTROL_COUNT_MASK) == CONTROL_COUNT_MASK) {
            return failure_set(CUBIEMEM_LIMIT, "owner %s has too much work begun and not ended",
                               owner->name);
        }
        SEAM("begin");
    } while (!atomic_compare_exchange_weak_explicit(&words->word, &word, word + 1,
                                                    memory_order_acq_rel,
                                                    memory_order_relaxed));
    atomic_store_explicit(&words->last_begin_ns, clock_now_ns(), memory_order_release);
    return CUBIEMEM_OK;
}

void marks_begin_undo(struct owner *owner)
{
    atomic_fetch_sub(&owner->words->word, 1);
}

bool marks_have_begun(struct owner *owner)
{
    return (atomic_load(&owner->words->word) & CONTROL_COUNT_MASK) != 0;
}

/* ---------------------------------------------------------- end */

/* A number of its own for each thread, never used again; 0 is nobody. */
static uint64_t thread_number(void)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t number;
    if (number == 0) {
        number = atomic_fetch_add(&last, 1) + 1;
    }
    return number;
}

static struct mark *find_mark(struct owner *owner, CUstream stream)
{
    uint64_t thread = stream == CU_STREAM_PER_THREAD ? thread_number() : 0;
    for (size_t i = 0; i < owner->n_marks; i++) {
        struct mark *mark = &owner->marks[i];
        if (mark->stream == stream && mark->thread == thread) {
            return mark;
        }
    }
    return NULL;
}

static struct mark *find_idle(struct owner *owner)
{
    for (size_t i = 0; i < owner->n_marks; i++) {
        if (mark_is_idle(&owner->marks[i])) {
            return &owner->marks[i];
        }
    }
    return NULL;
}

/* A null stream is the legacy default stream, under one name. */
static CUstream canonical(CUstream stream)
{
    return stream == NULL ? CU_STREAM_LEGACY : stream;
}

enum marks_room marks_prepare(struct owner *owner, CUstream stream)
{
    enum marks_room room = MARKS_READY;
    struct mark mark = {
        .stream = canonical(stream),
        .thread = canonical(stream) == CU_STREAM_PER_THREAD ? thread_number() : 0,
    };
    pthread_mutex_lock(&owner->lock);
    if (find_mark(owner, mark.stream) != NULL) {
        goto out;
    }
    struct mark *old = owner->n_marks >= MARKS_BEFORE_REUSE ? find_idle(owner) : NULL;
    if (old == NULL && !pages_take_stream(owner->pages, owner->where, &mark.slot)) {
        old = find_idle(owner);
        if (old == NULL) {
            room = MARKS_FULL;
            goto out;
        }
    }
    if (old != NULL) {
        mark.slot = old->slot;
        *old = mark;
        goto out;
    }
    struct mark *grown = realloc(owner->marks, (owner->n_marks + 1) * sizeof *grown);
    if (grown == NULL) {
        pages_give_stream(&mark.slot);
        room = MARKS_NO_MEMORY;
        goto out;
    }
    owner->marks = grown;
    owner->marks[owner->n_marks++] = mark;
out:
    pthread_mutex_unlock(&owner->lock);
    return room;
}

struct host_mark {
    struct control_stream *words;
    uint64_t value;
};

static void CUDA_CB host_mark_run(void *arg)
{
    struct host_mark *mark = arg;
    atomic_store_explicit(&mark->words->completed, mark->value, memory_order_release);
    free(mark);
}

/* Enqueue the write of `value`, the context being current. */
static int enqueue(struct owner *owner, const struct mark *mark, uint64_t value)
{
    struct driver *driver = &owner->context->driver;
    if (mark->slot.completed != 0) {
        CUresult result = driver->cuStreamWriteValue64(mark->stream, mark->slot.completed, value,
                                                       CU_STREAM_WRITE_VALUE_DEFAULT);
        return result == CUDA_SUCCESS
                   ? CUBIEMEM_OK
                   : failure_cuda(driver, result, "cannot mark the end of work in the stream");
    }
    struct host_mark *host = malloc(sizeof *host);
    if (host == NULL) {
        return failure_set(CUBIEMEM_HOST_MEMORY, "no memory to mark the end of work");
    }
    *host = (struct host_mark){mark->slot.words, value};
    CUresult result = driver->cuLaunchHostFunc(mark->stream, host_mark_run, host);
    if (result != CUDA_SUCCESS) {
        free(host);
        return failure_cuda(driver, result, "cannot mark the end of work in the stream");
    }
    return CUBIEMEM_OK;
}

/* A captured write would replay its number with every launch of the graph. */
static int check_not_capturing(struct driver *driver, CUstream stream)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = driver->cuStreamIsCapturing(stream, &capturing);
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
        (result == CUDA_SUCCESS && capturing != CU_STREAM_CAPTURE_STATUS_NONE)) {
        return failure_set(CUBIEMEM_CAPTURING,
                           "the stream is being captured: end the capture, launch the graph, then "
                           "end the work");
    }
    return result == CUDA_SUCCESS ? CUBIEMEM_OK
                                  : failure_cuda(driver, result, "cannot look at the stream");
}

static int end_locked(struct owner *owner, CUstream stream, bool *unprepared_p)
{
    struct control_owner *words = owner->words;
    struct mark *mark = find_mark(owner, stream);
    if ((atomic_load(&words->word) & CONTROL_COUNT_MASK) == 0) {
        return failure_set(CUBIEMEM_INVALID_REQUEST, "owner %s has no work begun to be ended",
                           owner->name);
    }
    if (mark == NULL) {
        *unprepared_p = true;
        return CUBIEMEM_LIMIT;
    }
    int status = check_not_capturing(&owner->context->driver, stream);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    uint64_t value = atomic_load(&mark->slot.words->submitted) + 1;
    /* First the promise, then the write: completed never runs ahead. */
    atomic_store(&mark->slot.words->submitted, value);
    SEAM("submit");
    status = enqueue(owner, mark, value);
    if (status != CUBIEMEM_OK) {
        atomic_store(&mark->slot.words->submitted, value - 1);
        return status;
    }
    SEAM("mark used");
    atomic_store(&words->used, atomic_load(&owner->delivered));
    SEAM("end");
    atomic_fetch_sub(&words->word, 1);
    return CUBIEMEM_OK;
}

int marks_end(struct owner *owner, CUstream stream, bool *unprepared_p)
{
    struct context_guard guard;
    int status = context_push(owner->context, &guard);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    pthread_mutex_lock(&owner->lock);
    status = end_locked(owner, canonical(stream), unprepared_p);
    pthread_mutex_unlock(&owner->lock);
    context_pop(owner->context, &guard);
    return status;
}

/* --------------------------------------------------------- wait */

static bool all_idle(const struct owner *owner)
{
    for (size_t i = 0; i < owner->n_marks; i++) {
        if (!mark_is_idle(&owner->marks[i])) {
            return false;
        }
    }
    return true;
}

bool marks_are_complete(struct owner *owner)
{
    pthread_mutex_lock(&owner->lock);
    bool complete = all_idle(owner);
    pthread_mutex_unlock(&owner->lock);
    return complete;
}

/* The k-th mark's slot and its number now; false when there is no such mark. */
static bool snapshot(struct owner *owner, size_t k, struct control_stream **words_p,
                     uint64_t *value_p)
{
    pthread_mutex_lock(&owner->lock);
    bool found = k < owner->n_marks;
    if (found) {
        *words_p = owner->marks[k].slot.words;
        *value_p = atomic_load(&(*words_p)->submitted);
    }
    pthread_mutex_unlock(&owner->lock);
    return found;
}

/* An eighth of the time waited so far: what is seen late is little beside what was
 * waited for, and long work is not looked at often. */
static int64_t wait_pause(int64_t waited_ns)
{
    int64_t pause = waited_ns / 8;
    pause = pause > WAIT_FIRST_NS ? pause : WAIT_FIRST_NS;
    return pause < WAIT_LONGEST_NS ? pause : WAIT_LONGEST_NS;
}

int marks_wait(struct owner *owner, int64_t deadline)
{
    struct control_stream *words;
    uint64_t value;
    int64_t begun = clock_now_ns();
    int64_t next_probe = 0;
    for (size_t k = 0; snapshot(owner, k, &words, &value); k++) {
        while (atomic_load(&words->completed) < value) {
            int64_t now = clock_now_ns();
            if (now >= deadline) {
                return failure_set(CUBIEMEM_TIMEOUT, "marked work of owner %s still runs",
                                   owner->name);
            }
            if (now >= next_probe) {
                /* A dead context's streams never write again. */
                if (next_probe != 0 && context_probe(owner->context) != CUBIEMEM_OK) {
                    return CUBIEMEM_DEVICE_LOST;
                }
                next_probe = now + PROBE_EVERY_NS;
            }
            int64_t pause = wait_pause(now - begun);
            clock_sleep(pause < deadline - now ? pause : deadline - now);
        }
    }
    return CUBIEMEM_OK;
}

/* ------------------------------------------------------ eviction */

bool marks_evict(struct owner *owner)
{
    struct control_owner *words = owner->words;
    /* Somebody inside an end is at work, whatever the words say just now. */
    if (pthread_mutex_trylock(&owner->lock) != 0) {
        return false;
    }
    uint64_t granted = atomic_load(&words->granted);
    bool idle = atomic_load(&words->used) == granted &&
                atomic_load(&owner->delivered) == granted && all_idle(owner);
    if (idle) {
        uint64_t none = 0;
        SEAM("set the bit");
        idle = atomic_compare_exchange_strong(&words->word, &none, CONTROL_EVICTING) ||
               none == CONTROL_EVICTING;
    }
    pthread_mutex_unlock(&owner->lock);
    return idle;
}

bool marks_close(struct owner *owner, int64_t deadline)
{
    int64_t pause = WAIT_FIRST_NS;
    uint64_t word = 0;
    while (!atomic_compare_exchange_weak(&owner->words->word, &word, CONTROL_EVICTING) &&
           word != CONTROL_EVICTING) {
        if (word != 0) {
            if (clock_left(deadline) == 0) {
                return false;
            }
            clock_sleep(pause);
            pause = pause * 2 < WAIT_LONGEST_NS ? pause * 2 : WAIT_LONGEST_NS;
        }
        word = 0;
    }
    return true;
}

bool marks_are_closed(struct owner *owner)
{
    return atomic_load(&owner->words->word) == CONTROL_EVICTING;
}

void marks_deliver(struct owner *owner, uint64_t grant)
{
    uint64_t delivered = atomic_load(&owner->delivered);
    SEAM("deliver");
    while (delivered < grant &&
           !atomic_compare_exchange_weak(&owner->delivered, &delivered, grant)) {
    }
    atomic_fetch_and(&owner->words->word, ~CONTROL_EVICTING);
}
