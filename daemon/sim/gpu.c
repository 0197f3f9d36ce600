/*
 * gpu - a simulated GPU: the file that all processes of the machine share
 *
 * <run>/sim-NAME.gpu holds the size, the uuid (made from the name) and the books:
 * one entry for each segment, with the processes that hold it. The rule: nothing
 * is counted that a killed process could leave behind. Used memory is the sum
 * over the entries whose memory is alive, and alive is what the kernel says:
 *
 *  - A process that holds memory or has a context owns a *slot*: a byte of the
 *    file, locked through the process's own open file description. A forked
 *    child inherits it, so the slot is held until the last of the family has
 *    ended; so is what it held, as on the real driver. The slot's second byte is
 *    locked by the process's engine for as long as that lives.
 *  - An entry has one bit for each slot. One held slot among them: alive.
 *  - Without any, memory may live on by an exported fd: memlock.c finds out.
 *
 * The books change under a robust mutex in the file. An entry becomes valid by
 * one store of its id, the last, and free by one store of 0; whoever inherits
 * the mutex from a killed owner finds nothing half done.
 *
 * The file is open to all users of the run directory: the simulated GPU is for
 * tests and demonstrations, and no boundary between users.
 */
#include "gpu_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct witness {
    struct witness *next;
    struct gpu_ref ref;
    int fd;
};

/* --- slots --- */

int64_t gpu_program_byte(int slot)
{
    return SLOT_BYTES + 2 * (int64_t)slot;
}

int64_t gpu_engine_byte(int slot)
{
    return gpu_program_byte(slot) + 1;
}

static struct flock slot_lock(short type, int64_t first, int64_t n)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = n};
}

static bool slot_is_held(const struct gpu *gpu, int slot)
{
    struct flock lock = slot_lock(F_WRLCK, gpu_program_byte(slot), 2);

    return slot == gpu->slot || fcntl(gpu->fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

/* --- the books --- */

static void gpu_lock(struct gpu *gpu)
{
    if (pthread_mutex_lock(&gpu->file->mutex) == EOWNERDEAD) {
        pthread_mutex_consistent(&gpu->file->mutex);
    }
}

static void gpu_unlock(struct gpu *gpu)
{
    pthread_mutex_unlock(&gpu->file->mutex);
}

static void entry_free(struct entry *entry)
{
    __atomic_store_n(&entry->id, 0, __ATOMIC_RELEASE);
}

static bool entry_has_holder(const struct gpu *gpu, const struct entry *entry, signed char *slots)
{
    for (int word = 0; word < N_SLOTS / 64; word++) {
        for (uint64_t left = entry->holders[word]; left; left &= left - 1) {
            int slot = word * 64 + __builtin_ctzll(left);

            if (slots[slot] < 0) {
                slots[slot] = slot_is_held(gpu, slot);
            }
            if (slots[slot]) {
                return true;
            }
        }
    }
    return false;
}

static struct witness **find_witness(struct gpu *gpu, struct gpu_ref ref)
{
    struct witness **at = &gpu->witnesses;

    while (*at && ((*at)->ref.id != ref.id || (*at)->ref.index != ref.index)) {
        at = &(*at)->next;
    }
    return at;
}

static void drop_witness(struct witness **at)
{
    struct witness *witness = *at;

    *at = witness->next;
    close(witness->fd);
    free(witness);
}

/* Witnesses of entries that somebody else has found to be free. */
static void drop_stale_witnesses(struct gpu *gpu)
{
    struct witness **at = &gpu->witnesses;

    while (*at) {
        if (gpu->file->entries[(*at)->ref.index].id != (*at)->ref.id) {
            drop_witness(at);
        } else {
            at = &(*at)->next;
        }
    }
}

/* Of the entries that no witness and no live holder answers for, free those
 * whose memory nothing refers to. */
static void reap_unknown(struct gpu *gpu, const uint32_t *unknown, size_t n)
{
    struct memlock_id *ids = calloc(n, sizeof(*ids));
    bool *held = calloc(n, sizeof(*held));

    if (ids && held) {
        for (size_t i = 0; i < n; i++) {
            ids[i] = gpu->file->entries[unknown[i]].place.memory;
        }
        memlock_scan(ids, n, held);
        for (size_t i = 0; i < n; i++) {
            if (!held[i]) {
                entry_free(&gpu->file->entries[unknown[i]]);
            }
        }
    }
    free(ids);
    free(held);
}

/* Free what is dead; the bytes that are not. */
static uint64_t reap(struct gpu *gpu)
{
    static uint32_t unknown[N_SEGMENTS]; /* under the process's one lock */
    signed char slots[N_SLOTS];
    uint64_t used = 0;
    size_t n = 0;

    memset(slots, -1, sizeof(slots));
    for (uint32_t i = 0; i < gpu->file->n_entries; i++) {
        struct entry *entry = &gpu->file->entries[i];

        if (entry->id && !entry_has_holder(gpu, entry, slots)) {
            struct witness **witness = find_witness(gpu, (struct gpu_ref){i, entry->id});

            if (!*witness) {
                unknown[n++] = i;
            } else if (!memlock_is_held((*witness)->fd)) {
                entry_free(entry);
            }
        }
    }
    if (n > 0) {
        reap_unknown(gpu, unknown, n);
    }
    drop_stale_witnesses(gpu);
    for (uint32_t i = 0; i < gpu->file->n_entries; i++) {
        used += gpu->file->entries[i].id ? gpu->file->entries[i].place.size : 0;
    }
    return used;
}

uint64_t gpu_free(struct gpu *gpu)
{
    uint64_t used;

    gpu_lock(gpu);
    used = reap(gpu);
    gpu_unlock(gpu);
    return used < gpu->size ? gpu->size - used : 0;
}

static uint64_t slot_bit(const struct gpu *gpu)
{
    return (uint64_t)1 << (gpu->slot % 64);
}

/* A free entry, or NULL; a dead one of the same inode makes way. */
static struct entry *find_room(struct gpu *gpu, const struct memlock_id *memory)
{
    struct gpu_file *file = gpu->file;
    struct entry *room = NULL;

    for (uint32_t i = 0; i < file->n_entries; i++) {
        struct entry *entry = &file->entries[i];

        if (entry->id && entry->place.memory.inode == memory->inode &&
            entry->place.memory.device == memory->device) {
            entry_free(entry);
        }
        if (!entry->id && !room) {
            room = entry;
        }
    }
    if (!room && file->n_entries < N_SEGMENTS) {
        room = &file->entries[file->n_entries++];
    }
    return room;
}

int gpu_book(struct gpu *gpu, const struct gpu_place *place, struct gpu_ref *ref_p)
{
    struct entry *entry = NULL;
    int result = -ENOMEM;

    gpu_lock(gpu);
    if (place->size <= gpu->size && reap(gpu) <= gpu->size - place->size) {
        entry = find_room(gpu, &place->memory);
    }
    if (entry) {
        entry->place = *place;
        entry->exported = 0;
        memset(entry->holders, 0, sizeof(entry->holders));
        entry->holders[gpu->slot / 64] = slot_bit(gpu);
        *ref_p = (struct gpu_ref){.index = (uint32_t)(entry - gpu->file->entries),
                                  .id = ++gpu->file->last_id};
        __atomic_store_n(&entry->id, ref_p->id, __ATOMIC_RELEASE);
        result = 0;
    }
    gpu_unlock(gpu);
    return result;
}

bool gpu_find(struct gpu *gpu, const struct memlock_id *memory, struct gpu_ref *ref_p,
              struct gpu_place *place_p)
{
    bool found = false;

    gpu_lock(gpu);
    for (uint32_t i = 0; i < gpu->file->n_entries && !found; i++) {
        const struct entry *entry = &gpu->file->entries[i];

        if (entry->id && entry->place.memory.inode == memory->inode &&
            entry->place.memory.device == memory->device) {
            *ref_p = (struct gpu_ref){.index = i, .id = entry->id};
            *place_p = entry->place;
            found = true;
        }
    }
    gpu_unlock(gpu);
    return found;
}

/* The entry of a segment that is still booked. */
static struct entry *find_entry(struct gpu *gpu, struct gpu_ref ref)
{
    struct entry *entry = ref.index < N_SEGMENTS ? &gpu->file->entries[ref.index] : NULL;

    return entry && ref.id && entry->id == ref.id ? entry : NULL;
}

bool gpu_place(struct gpu *gpu, struct gpu_ref ref, struct gpu_place *place_p)
{
    const struct entry *entry;

    gpu_lock(gpu);
    entry = find_entry(gpu, ref);
    if (entry) {
        *place_p = entry->place;
    }
    gpu_unlock(gpu);
    return entry != NULL;
}

bool gpu_join(struct gpu *gpu, struct gpu_ref ref)
{
    struct entry *entry;

    gpu_lock(gpu);
    entry = find_entry(gpu, ref);
    if (entry) {
        entry->holders[gpu->slot / 64] |= slot_bit(gpu);
    }
    gpu_unlock(gpu);
    return entry != NULL;
}

void gpu_mark_exported(struct gpu *gpu, struct gpu_ref ref)
{
    struct entry *entry;

    gpu_lock(gpu);
    entry = find_entry(gpu, ref);
    if (entry) {
        entry->exported = 1;
    }
    gpu_unlock(gpu);
}

void gpu_leave(struct gpu *gpu, struct gpu_ref ref, int fd)
{
    struct entry *entry;

    gpu_lock(gpu);
    entry = find_entry(gpu, ref);
    if (entry) {
        entry->holders[gpu->slot / 64] &= ~slot_bit(gpu);
    }
    if (entry && !entry->exported) {
        entry_free(entry);
    } else if (entry) {
        struct witness *witness = fd >= 0 ? malloc(sizeof(*witness)) : NULL;
        int witness_fd = witness ? memlock_open_witness(fd) : -1;

        if (witness_fd >= 0) {
            *witness = (struct witness){gpu->witnesses, ref, witness_fd};
            gpu->witnesses = witness;
        } else {
            free(witness);
        }
    }
    gpu_unlock(gpu);
}

/* --- the device in this process --- */

bool gpu_is_used(struct gpu *gpu)
{
    struct flock lock = slot_lock(F_WRLCK, SLOT_BYTES, 2 * N_SLOTS);

    return fcntl(gpu->fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK ||
           gpu_free(gpu) != gpu->size;
}

void gpu_forked(struct gpu *gpu)
{
    while (gpu->witnesses) {
        drop_witness(&gpu->witnesses);
    }
}

void gpu_close(struct gpu *gpu)
{
    while (gpu->witnesses) {
        drop_witness(&gpu->witnesses);
    }
    if (gpu->file) {
        munmap(gpu->file, sizeof(*gpu->file));
    }
    if (gpu->fd >= 0) {
        close(gpu->fd);
    }
    *gpu = (struct gpu){.fd = -1, .slot = -1};
}

int gpu_hold(struct gpu *gpu)
{
    if (gpu->slot >= 0) {
        return 0;
    }
    for (int slot = 0; gpu->slot < 0 && slot < N_SLOTS; slot++) {
        struct flock both = slot_lock(F_WRLCK, gpu_program_byte(slot), 2);
        struct flock engine = slot_lock(F_UNLCK, gpu_engine_byte(slot), 1);

        if (fcntl(gpu->fd, F_OFD_SETLK, &both) == 0) {
            fcntl(gpu->fd, F_OFD_SETLK, &engine);
            gpu->slot = slot;
        } else if (errno != EAGAIN && errno != EACCES) {
            return -errno;
        }
    }
    if (gpu->slot < 0) {
        return -EUSERS;
    }
    /* What our predecessor in this slot held is not ours. */
    gpu_lock(gpu);
    for (uint32_t i = 0; i < gpu->file->n_entries; i++) {
        gpu->file->entries[i].holders[gpu->slot / 64] &= ~slot_bit(gpu);
    }
    gpu_unlock(gpu);
    return 0;
}
