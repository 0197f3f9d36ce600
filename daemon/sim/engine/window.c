/*
 * window - where the engine has mapped what its program sees at an address
 *
 * The engine's address space is its own, so it maps each segment where there is
 * room and translates. The rule: an operation holds the window open while it
 * touches memory, in slices (lane.c), and an unmapping waits for that; after
 * it, nothing of the engine reaches the segment.
 */
#include "window.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct pane {
    uint64_t address, size;
    char *local;
    int protection;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static struct pane *panes; /* sorted by address */
static size_t n_panes, room;

static size_t first_behind(uint64_t address)
{
    size_t low = 0;
    size_t high = n_panes;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (panes[middle].address + panes[middle].size > address) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static int insert(const struct pane *pane)
{
    size_t i = first_behind(pane->address);

    if (n_panes == room) {
        size_t wanted = room ? 2 * room : 64;
        struct pane *grown = realloc(panes, wanted * sizeof(*grown));

        if (!grown) {
            return -ENOMEM;
        }
        panes = grown;
        room = wanted;
    }
    memmove(&panes[i + 1], &panes[i], (n_panes - i) * sizeof(*panes));
    panes[i] = *pane;
    n_panes++;
    return 0;
}

static int map_locked(uint64_t address, uint64_t size, int protection, int fd)
{
    struct pane pane = {.address = address, .size = size, .protection = protection};
    size_t i = first_behind(address);
    int result;

    if (i < n_panes && panes[i].address == address) {
        panes[i].protection = protection;
        return 0;
    }
    pane.local = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (pane.local == MAP_FAILED) {
        return -errno;
    }
    result = insert(&pane);
    if (result < 0) {
        munmap(pane.local, size);
    }
    return result;
}

int window_map(uint64_t address, uint64_t size, int protection, int fd)
{
    int result;

    pthread_rwlock_wrlock(&lock);
    result = map_locked(address, size, protection, fd);
    pthread_rwlock_unlock(&lock);
    close(fd);
    return result;
}

void window_unmap(uint64_t address)
{
    size_t i;

    pthread_rwlock_wrlock(&lock);
    i = first_behind(address);
    if (i < n_panes && panes[i].address == address) {
        munmap(panes[i].local, panes[i].size);
        memmove(&panes[i], &panes[i + 1], (n_panes - i - 1) * sizeof(*panes));
        n_panes--;
    }
    pthread_rwlock_unlock(&lock);
}

void window_enter(void)
{
    pthread_rwlock_rdlock(&lock);
}

void window_leave(void)
{
    pthread_rwlock_unlock(&lock);
}

void *window_at(uint64_t address, bool for_writing, uint64_t *size_p)
{
    size_t i = first_behind(address);
    const struct pane *pane = i < n_panes ? &panes[i] : NULL;
    const int wanted = for_writing ? PROT_WRITE : PROT_READ;

    if (!pane || pane->address > address || !(pane->protection & wanted)) {
        return NULL;
    }
    *size_p = pane->size - (address - pane->address);
    return pane->local + (address - pane->address);
}
