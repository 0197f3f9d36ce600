/*
 * pool - cached segments, see pool.h
 *
 * Programs ask for the same sizes over and over, so a user has few distinct
 * sizes: a sorted array of stacks, one a size. The segment that came back last
 * is lent first.
 */
#include "pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "segment.h"

struct stack {
    uint64_t size; /* bytes of each segment in it */
    struct segment *top;
};

struct user {
    uid_t uid;
    struct stack *stacks; /* ascending sizes, none empty */
    size_t n_stacks, room;
};

struct pool {
    struct user *users;
    size_t n_users;
    uint64_t size;
    size_t count;
};

struct pool *pool_create(void)
{
    return calloc(1, sizeof(struct pool));
}

void pool_destroy(struct pool *pool)
{
    if (pool == NULL) {
        return;
    }
    assert(pool->count == 0);
    for (size_t i = 0; i < pool->n_users; i++) {
        free(pool->users[i].stacks);
    }
    free(pool->users);
    free(pool);
}

uint64_t pool_size(const struct pool *pool)
{
    return pool->size;
}

size_t pool_count(const struct pool *pool)
{
    return pool->count;
}

static struct user *user_find(struct pool *pool, uid_t uid)
{
    for (size_t i = 0; i < pool->n_users; i++) {
        if (pool->users[i].uid == uid) {
            return &pool->users[i];
        }
    }
    return NULL;
}

static struct user *user_find_or_add(struct pool *pool, uid_t uid)
{
    struct user *user = user_find(pool, uid);
    if (user != NULL) {
        return user;
    }
    struct user *users = realloc(pool->users, (pool->n_users + 1) * sizeof(*users));
    if (users == NULL) {
        return NULL;
    }
    pool->users = users;
    user = &users[pool->n_users++];
    memset(user, 0, sizeof(*user));
    user->uid = uid;
    return user;
}

/* Index of the first stack of at least this size. */
static size_t user_search(const struct user *user, uint64_t size)
{
    size_t low = 0, high = user->n_stacks;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (user->stacks[middle].size < size) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool pool_put(struct pool *pool, uid_t uid, struct segment *segment)
{
    struct user *user = user_find_or_add(pool, uid);
    if (user == NULL) {
        return false;
    }
    size_t at = user_search(user, segment->size);
    if (at == user->n_stacks || user->stacks[at].size != segment->size) {
        if (user->n_stacks == user->room) {
            size_t room = user->room == 0 ? 8 : 2 * user->room;
            struct stack *stacks = realloc(user->stacks, room * sizeof(*stacks));
            if (stacks == NULL) {
                return false;
            }
            user->stacks = stacks;
            user->room = room;
        }
        memmove(&user->stacks[at + 1], &user->stacks[at],
                (user->n_stacks - at) * sizeof(user->stacks[0]));
        user->stacks[at] = (struct stack){.size = segment->size};
        user->n_stacks++;
    }
    segment->next = user->stacks[at].top;
    user->stacks[at].top = segment;
    pool->size += segment->size;
    pool->count++;
    return true;
}

static struct segment *pop(struct pool *pool, struct user *user, size_t at)
{
    struct stack *stack = &user->stacks[at];
    struct segment *segment = stack->top;
    stack->top = segment->next;
    segment->next = NULL;
    pool->size -= segment->size;
    pool->count--;
    if (stack->top == NULL) {
        user->n_stacks--;
        memmove(stack, stack + 1, (user->n_stacks - at) * sizeof(*stack));
    }
    return segment;
}

struct segment *pool_take(struct pool *pool, uid_t uid, uint64_t size)
{
    struct user *user = user_find(pool, uid);
    if (user == NULL) {
        return NULL;
    }
    size_t at = user_search(user, size);
    if (at < user->n_stacks && user->stacks[at].size == size) {
        return pop(pool, user, at);
    }
    return at > 0 ? pop(pool, user, at - 1) : NULL;
}

/* The smallest that is enough alone, else the largest. */
static struct segment *user_evict(struct pool *pool, struct user *user, uint64_t size)
{
    if (user->n_stacks == 0) {
        return NULL;
    }
    size_t at = user_search(user, size);
    return pop(pool, user, at < user->n_stacks ? at : user->n_stacks - 1);
}

struct segment *pool_evict(struct pool *pool, uid_t uid, uint64_t size)
{
    struct segment *evicted = NULL;
    uint64_t released = 0;
    for (int pass = 0; pass < 2; pass++) { /* others' first, then the user's own */
        for (size_t i = 0; i < pool->n_users; i++) {
            struct user *user = &pool->users[i];
            if ((user->uid == uid) != (pass == 1)) {
                continue;
            }
            struct segment *segment;
            while (released < size &&
                   (segment = user_evict(pool, user, size - released)) != NULL) {
                released += segment->size;
                segment->next = evicted;
                evicted = segment;
            }
        }
    }
    return evicted;
}
