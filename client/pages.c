/*
 * pages - the control pages of a session, as the library maps them
 *
 * The list only grows, so a slot's address is good as long as the client lives.
 */
#include "pages.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"

/* The daemon allots owners from the front quarter; streams take the rest. */
#define OWNER_SLOTS (CONTROL_SLOTS / 4)

void pages_init(struct pages *pages)
{
    *pages = (struct pages){0};
    pthread_mutex_init(&pages->lock, NULL);
}

void pages_abandon(struct pages *pages)
{
    for (uint32_t i = 0; i < pages->n; i++) {
        munmap(pages->pages[i].slots, CONTROL_PAGE_SIZE);
    }
    pages->n = 0;
}

void pages_finish(struct pages *pages, struct context *context)
{
    struct context_guard guard;
    if (context != NULL && context->ready && context_enter(context, &guard) == CUBIEMEM_OK) {
        for (uint32_t i = 0; i < pages->n; i++) {
            if (pages->pages[i].device != 0) {
                context->driver.cuMemHostUnregister(pages->pages[i].slots);
            }
        }
        context_leave(context, &guard);
    }
    pages_abandon(pages);
    pthread_mutex_destroy(&pages->lock);
}

static int map_page(int fd, uint32_t size, union control_slot **slots_p)
{
    struct stat stat;
    if (size != CONTROL_PAGE_SIZE) {
        return failure_set(CUBIEMEM_INTERNAL, "the daemon's control page has %u bytes, not %u",
                           size, CONTROL_PAGE_SIZE);
    }
    /* A shorter file would be a SIGBUS on the first mark. */
    if (fstat(fd, &stat) != 0 || stat.st_size < (off_t)size) {
        return failure_set(CUBIEMEM_INTERNAL, "the daemon's control page is no file of %u bytes",
                           size);
    }
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return failure_system(CUBIEMEM_SYSTEM, errno, "cannot map a control page");
    }
    *slots_p = memory;
    return CUBIEMEM_OK;
}

int pages_add(struct pages *pages, uint32_t number, uint32_t size, int fd)
{
    union control_slot *slots = NULL;
    if (fd < 0) {
        return failure_set(CUBIEMEM_NO_FDS, "the daemon's control page did not arrive");
    }
    int status = map_page(fd, size, &slots);
    close(fd);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    pthread_mutex_lock(&pages->lock);
    bool fits = number == pages->n && number < PAGES_MAX &&
                slots[0].header.magic == CONTROL_MAGIC;
    if (fits) {
        pages->pages[number] = (struct page){.slots = slots};
        pages->n++;
    }
    pthread_mutex_unlock(&pages->lock);
    if (!fits) {
        munmap(slots, size);
        return failure_set(CUBIEMEM_INTERNAL, "control page %u of the daemon is not one", number);
    }
    return CUBIEMEM_OK;
}

int pages_register(struct pages *pages, struct context *context)
{
    struct driver *driver = &context->driver;
    struct context_guard guard;
    CUresult result = CUDA_SUCCESS;
    if (!context->stream_values) {
        return CUBIEMEM_OK;
    }
    int status = context_enter(context, &guard);
    if (status != CUBIEMEM_OK) {
        return status;
    }
    pthread_mutex_lock(&pages->lock);
    for (uint32_t i = 0; i < pages->n && result == CUDA_SUCCESS; i++) {
        struct page *page = &pages->pages[i];
        if (page->device != 0) {
            continue;
        }
        result = driver->cuMemHostRegister(page->slots, CONTROL_PAGE_SIZE,
                                           CU_MEMHOSTREGISTER_PORTABLE |
                                               CU_MEMHOSTREGISTER_DEVICEMAP);
        if (result != CUDA_SUCCESS) {
            break;
        }
        CUdeviceptr device = 0;
        result = driver->cuMemHostGetDevicePointer(&device, page->slots, 0);
        if (result != CUDA_SUCCESS) {
            driver->cuMemHostUnregister(page->slots);
            break;
        }
        page->device = device;
    }
    pthread_mutex_unlock(&pages->lock);
    context_leave(context, &guard);
    return result == CUDA_SUCCESS
               ? CUBIEMEM_OK
               : failure_cuda(driver, result, "cannot register a control page");
}

struct control_owner *pages_owner(struct pages *pages, uint32_t page, uint32_t slot)
{
    struct control_owner *owner = NULL;
    pthread_mutex_lock(&pages->lock);
    if (page < pages->n && slot > 0 && slot < CONTROL_SLOTS) {
        union control_slot *found = &pages->pages[page].slots[slot];
        if (atomic_load(&found->kind) == CONTROL_OWNER) {
            owner = &found->owner;
        }
    }
    pthread_mutex_unlock(&pages->lock);
    return owner;
}

bool pages_take_stream(struct pages *pages, uint32_t where, struct stream_slot *slot_p)
{
    bool found = false;
    pthread_mutex_lock(&pages->lock);
    for (uint32_t i = 0; i < pages->n && !found; i++) {
        struct page *page = &pages->pages[i];
        for (uint32_t j = CONTROL_SLOTS - 1; j > OWNER_SLOTS && !found; j--) {
            union control_slot *slot = &page->slots[j];
            uint32_t expected = CONTROL_FREE;
            if (!atomic_compare_exchange_strong(&slot->kind, &expected, CONTROL_STREAM)) {
                continue;
            }
            struct control_stream *words = &slot->stream;
            atomic_store(&words->owner, where);
            atomic_store(&words->submitted, 0);
            atomic_store(&words->completed, 0);
            slot_p->words = words;
            slot_p->completed =
                page->device == 0
                    ? 0
                    : page->device + (CUdeviceptr)((char *)&words->completed -
                                                   (char *)page->slots);
            found = true;
        }
    }
    pthread_mutex_unlock(&pages->lock);
    return found;
}

void pages_give_stream(const struct stream_slot *slot)
{
    atomic_store(&slot->words->owner, 0);
    atomic_store(&slot->words->kind, CONTROL_FREE);
}
