/*
 * control_page - the daemon's side of the work marks, see control_page.h
 */
#include "control_page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int sealed_memfd(void)
{
    int fd = memfd_create("cubiemem-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -1;
    }
    if (ftruncate(fd, CONTROL_PAGE_SIZE) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

struct control_page *control_page_create(uint32_t number, int *fd_p)
{
    struct control_page *page = calloc(1, sizeof(*page));
    if (page == NULL) {
        return NULL;
    }
    int fd = sealed_memfd();
    if (fd < 0) {
        free(page);
        return NULL;
    }
    page->slots = mmap(NULL, CONTROL_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page->slots == MAP_FAILED) {
        int error = errno;
        close(fd);
        free(page);
        errno = error;
        return NULL;
    }
    page->number = number;
    page->allotted[0] = true;
    struct control_header *header = &page->slots[0].header;
    header->magic = CONTROL_MAGIC;
    header->n_slots = CONTROL_SLOTS;
    header->page = number;
    atomic_store(&header->kind, CONTROL_HEADER);
    *fd_p = fd;
    return page;
}

void control_page_destroy(struct control_page *page)
{
    if (page != NULL) {
        munmap(page->slots, CONTROL_PAGE_SIZE);
        free(page);
    }
}

uint32_t control_page_allot(struct control_page *pages)
{
    for (struct control_page *page = pages; page != NULL; page = page->next) {
        for (uint32_t i = 1; i <= CONTROL_OWNERS_PER_PAGE; i++) {
            if (!page->allotted[i]) {
                page->allotted[i] = true;
                struct control_owner *owner = &page->slots[i].owner;
                atomic_store(&owner->word, 0);
                atomic_store(&owner->granted, 0);
                atomic_store(&owner->used, 0);
                atomic_store(&owner->last_begin_ns, 0);
                atomic_store(&owner->kind, CONTROL_OWNER);
                return page->number << 16 | i;
            }
        }
    }
    return 0;
}

static struct control_page *page_of(struct control_page *pages, uint32_t reference)
{
    struct control_page *page = pages;
    while (page != NULL && page->number != reference >> 16) {
        page = page->next;
    }
    return page;
}

void control_page_free(struct control_page *pages, uint32_t reference)
{
    struct control_page *page = page_of(pages, reference);
    if (page != NULL) {
        atomic_store(&page->slots[reference & 0xffff].kind, CONTROL_FREE);
        page->allotted[reference & 0xffff] = false;
    }
}

struct control_owner *control_page_owner(struct control_page *pages, uint32_t reference)
{
    struct control_page *page = page_of(pages, reference);
    return page != NULL ? &page->slots[reference & 0xffff].owner : NULL;
}

static bool owner_is_busy(const struct control_owner *owner)
{
    return (atomic_load(&owner->word) & CONTROL_COUNT_MASK) != 0 ||
           atomic_load(&owner->used) != atomic_load(&owner->granted);
}

/* Where it is noted that this owner is busy; NULL for what no owner can be: the
 * client wrote the reference. */
static bool *busy_of(struct control_page *pages, uint32_t reference)
{
    struct control_page *page = page_of(pages, reference);
    const uint32_t slot = reference & 0xffff;
    return page != NULL && slot >= 1 && slot <= CONTROL_OWNERS_PER_PAGE ? &page->busy[slot] : NULL;
}

void control_pages_look(struct control_page *pages)
{
    for (struct control_page *page = pages; page != NULL; page = page->next) {
        for (uint32_t i = 1; i <= CONTROL_OWNERS_PER_PAGE; i++) {
            page->busy[i] = page->allotted[i] && owner_is_busy(&page->slots[i].owner);
        }
    }
    for (struct control_page *page = pages; page != NULL; page = page->next) {
        for (uint32_t i = 1; i < CONTROL_SLOTS; i++) {
            const struct control_stream *stream = &page->slots[i].stream;
            if (atomic_load(&stream->kind) == CONTROL_STREAM &&
                atomic_load(&stream->completed) != atomic_load(&stream->submitted)) {
                bool *busy = busy_of(pages, atomic_load(&stream->owner));
                if (busy != NULL) {
                    *busy = true;
                }
            }
        }
    }
}

bool control_pages_show_work(struct control_page *pages)
{
    for (struct control_page *page = pages; page != NULL; page = page->next) {
        for (uint32_t i = 1; i < CONTROL_SLOTS; i++) {
            const union control_slot *slot = &page->slots[i];
            if (i <= CONTROL_OWNERS_PER_PAGE && page->allotted[i]
                    ? (atomic_load(&slot->owner.word) & CONTROL_COUNT_MASK) != 0
                    : atomic_load(&slot->stream.kind) == CONTROL_STREAM &&
                          atomic_load(&slot->stream.completed) !=
                              atomic_load(&slot->stream.submitted)) {
                return true;
            }
        }
    }
    return false;
}

bool control_page_is_idle(const struct control_page *pages, uint32_t reference)
{
    const bool *busy = busy_of((struct control_page *)(uintptr_t)pages, reference);
    return busy == NULL || !*busy;
}
