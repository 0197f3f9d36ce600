/*
 * fail_call - the k-th call of a program fails, for every k that a test likes
 *
 * Linked into a daemon of its own with --wrap for each function below. The file
 * that CUBIEMEM_TEST_FAIL names holds one 64-bit word that test and program
 * share: 0 is off; k makes the k-th call from now on fail, once, and the word is
 * 0 again when it has. Allocations fail with ENOMEM, what makes descriptors with
 * EMFILE. What shared libraries call among themselves is not counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static _Atomic uint64_t *calls_left;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
int __real_memfd_create(const char *name, unsigned int flags);
int __real_socketpair(int domain, int type, int protocol, int ends[2]);
int __real_fcntl(int fd, int command, ...);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
int __wrap_memfd_create(const char *name, unsigned int flags);
int __wrap_socketpair(int domain, int type, int protocol, int ends[2]);
int __wrap_fcntl(int fd, int command, ...);

__attribute__((constructor)) static void map_word(void)
{
    const char *path = getenv("CUBIEMEM_TEST_FAIL");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) {
        return;
    }
    void *word = mmap(NULL, sizeof(*calls_left), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    calls_left = word != MAP_FAILED ? word : NULL;
}

/* Is this call the one? */
static bool fails(int error)
{
    uint64_t left = calls_left != NULL ? atomic_load(calls_left) : 0;
    while (left != 0 && !atomic_compare_exchange_weak(calls_left, &left, left - 1)) {
    }
    if (left == 1) {
        errno = error;
    }
    return left == 1;
}

void *__wrap_malloc(size_t size)
{
    return fails(ENOMEM) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(ENOMEM) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails(ENOMEM) ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return fails(ENOMEM) ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size)
{
    return fails(ENOMEM) ? NULL : __real_strndup(text, size);
}

int __wrap_memfd_create(const char *name, unsigned int flags)
{
    return fails(EMFILE) ? -1 : __real_memfd_create(name, flags);
}

int __wrap_socketpair(int domain, int type, int protocol, int ends[2])
{
    return fails(EMFILE) ? -1 : __real_socketpair(domain, type, protocol, ends);
}

/* Every command of ours has a pointer, a number or nothing behind it. */
int __wrap_fcntl(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (command == F_DUPFD_CLOEXEC && fails(EMFILE)) {
        return -1;
    }
    return __real_fcntl(fd, command, argument);
}
