/*
 * memlock - is anything left that refers to a segment's memory?
 *
 * A segment is a sealed memfd: it has no name by which a third process could
 * open it, and it must count as used while anybody holds its fd (also a program
 * that knows nothing of this driver), while it is mapped, and while it travels in
 * a socket. The kernel knows: a shared OFD lock on the memfd's open file
 * description is dropped with the last reference to that description, be it an
 * fd, a mapping or a message in flight, in whatever process. So each description
 * of a segment is locked when it is made, and "is it free" is "is it unlocked".
 *
 * That question has two answers. Who has made the memory keeps a *witness*, a
 * second description without a lock, and asks with F_OFD_GETLK. Everybody else
 * looks for the inode in /proc/locks. That list is read in pages, and an entry
 * may slip from one page to the other while locks are dropped elsewhere; so
 * memory counts as free only when two whole readings with the same result lack
 * it. It is read only when no live holder answers for the memory (see gpu.c):
 * the kernel may take some milliseconds for it.
 */
#include "memlock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define N_READINGS 5

int memlock_identify(int fd, struct memlock_id *id_p)
{
    struct stat status;

    if (fstat(fd, &status) < 0) {
        return -1;
    }
    *id_p = (struct memlock_id){.device = status.st_dev, .inode = status.st_ino};
    return 0;
}

int memlock_take(int fd)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

    return fcntl(fd, F_OFD_SETLK, &lock);
}

int memlock_open_witness(int fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

bool memlock_is_held(int witness)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    /* A read-only description may ask about write locks, though not take them. */
    return fcntl(witness, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

/* One line is `1: OFDLCK ADVISORY  READ -1 00:01:2124 0 EOF`; blocked requests
 * have an arrow behind the number and do not count, but never appear here. */
static void read_line(const char *line, const struct memlock_id *ids, size_t n, bool *seen)
{
    unsigned int high, low;
    unsigned long inode;

    if (sscanf(line, "%*u: OFDLCK %*s %*s %*d %x:%x:%lu", &high, &low, &inode) != 3) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i].inode == inode && ids[i].device == makedev(high, low)) {
            seen[i] = true;
        }
    }
}

static int read_locks(const struct memlock_id *ids, size_t n, bool *seen)
{
    FILE *file = fopen("/proc/locks", "re");
    char *line = NULL;
    size_t size = 0;
    int result;

    if (!file) {
        return -1;
    }
    while (getline(&line, &size, file) >= 0) {
        read_line(line, ids, n, seen);
    }
    result = ferror(file) ? -1 : 0;
    free(line);
    fclose(file);
    return result;
}

void memlock_scan(const struct memlock_id *ids, size_t n, bool *held_p)
{
    bool *seen = calloc(n, sizeof(*seen));
    bool *last = calloc(n, sizeof(*last));
    bool agreed = false;

    memset(held_p, 0, n * sizeof(*held_p));
    for (int i = 0; seen && last && i < N_READINGS && !agreed; i++) {
        memset(seen, 0, n * sizeof(*seen));
        if (read_locks(ids, n, seen) < 0) {
            break;
        }
        agreed = i > 0 && memcmp(seen, last, n * sizeof(*seen)) == 0;
        memcpy(last, seen, n * sizeof(*seen));
        for (size_t k = 0; k < n; k++) {
            held_p[k] |= seen[k];
        }
    }
    if (!agreed) {
        memset(held_p, 1, n * sizeof(*held_p));
    }
    free(seen);
    free(last);
}
