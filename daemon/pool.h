/*
 * pool - cached segments, by user and size
 *
 * A segment that a live client gave back is lent again as it is, but only to
 * the same user, so that nobody reads what somebody else wrote; whoever else
 * needs the memory gets it through the driver. The pool owns the segments that
 * are in it. It does not keep the books: its total equals books.cached.
 */
#ifndef DAEMON_POOL_H
#define DAEMON_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct segment;
struct pool;

struct pool *pool_create(void); /* NULL: no host memory */
/* The segments in it must have been taken out before. */
void pool_destroy(struct pool *pool);

uint64_t pool_size(const struct pool *pool); /* bytes */
size_t pool_count(const struct pool *pool);  /* segments */

/* The pool's from now on, to be lent to `uid` only. False (no host memory):
 * still the caller's. */
bool pool_put(struct pool *pool, uid_t uid, struct segment *segment);

/* The user's largest segment of at most `size` bytes, now the caller's; NULL if
 * there is none. So a segment of exactly that size goes first. */
struct segment *pool_take(struct pool *pool, uid_t uid, uint64_t size);

/*
 * Segments of at least `size` bytes in all, to be let go: other users' first,
 * and of each user's few and fitting ones. The caller's, linked by `next`; all
 * there are if that is less.
 */
struct segment *pool_evict(struct pool *pool, uid_t uid, uint64_t size);

#endif
