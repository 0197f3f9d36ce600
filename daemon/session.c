/*
 * session - one connected process, see session.h
 */
#include "session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <utlist.h>

#include "checked.h"
#include "connection.h"
#include "eviction.h"
#include "legacy.h"
#include "log.h"
#include "status.h"
#include "transaction.h"

/* A key that is equal for the sessions of one process and for no others: pid
 * and start time, which no two processes share; without a pid, the session. */
static uint64_t process_key(const struct session *session)
{
    const struct identity *identity = &session->identity;
    if (identity->pid == 0) {
        return session->id | 1ull << 63;
    }
    for (const struct session *other = session->daemon->sessions; other != NULL;
         other = other->next) {
        if (other != session && other->identity.pid == identity->pid &&
            other->identity.start_time == identity->start_time &&
            other->identity.uid == identity->uid) {
            return other->process_key;
        }
    }
    return session->id;
}

static int page_status(int error)
{
    return error == EMFILE || error == ENFILE ? CUBIEMEM_NO_FDS
           : error == ENOMEM                  ? CUBIEMEM_HOST_MEMORY
                                              : CUBIEMEM_SYSTEM;
}

int session_create(struct daemon *daemon, struct connection *connection,
                   struct identity *identity, const struct session_hello *hello,
                   struct session **session_p, int *control_fd_p)
{
    struct session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    if (getrandom(session->token, sizeof(session->token), 0) != sizeof(session->token)) {
        free(session);
        return CUBIEMEM_SYSTEM;
    }
    session->pages = control_page_create(0, control_fd_p);
    if (session->pages == NULL) {
        int status = page_status(errno);
        free(session);
        descriptors_short(daemon, status);
        return status;
    }
    session->n_pages = 1;
    session->daemon = daemon;
    session->connection = connection;
    session->identity = *identity;
    identity->pidfd = -1;
    snprintf(session->name, sizeof(session->name), "%s", hello->name);
    session->handle_kind = hello->handle_kind;
    session->tool = hello->tool;
    session->user = connection_user(connection);
    session->user->n_sessions += !session->tool;
    session->id = ++daemon->last_session_id;
    session->process_key = process_key(session);
    DL_APPEND(daemon->sessions, session);
    *session_p = session;
    return CUBIEMEM_OK;
}

void session_request_begun(struct session *session)
{
    session->n_under_way++;
    session->user->n_requests++;
}

void session_request_ended(struct session *session)
{
    if (session->n_under_way > 0) {
        session->n_under_way--;
        session->user->n_requests--;
    }
}

/* ---------------------------------------------------------------- legacy */

static void legacy_freed(int status, CUresult result, void *data)
{
    (void)data;
    if (status != CUBIEMEM_OK && status != CUBIEMEM_CANCELLED) {
        log_warn("a legacy block could not be freed (%s, CUresult %d); it drains with its helper",
                 status_name(status), (int)result);
    }
}

void session_free_legacy(struct session *session, struct segment *segment)
{
    books_drain_lent(&session->daemon->books, segment->size, now_ns());
    drain_watch(session->daemon);
    if (session->legacy != NULL) {
        int status =
            legacy_helper_free(session->legacy, segment->legacy_key, legacy_freed, NULL);
        if (status != CUBIEMEM_OK) {
            legacy_freed(status, CUDA_SUCCESS, NULL);
        }
    }
    free(segment);
}

static void legacy_died(int wait_status, void *data)
{
    struct session *session = data;
    log_warn("client %llu: its helper for legacy handles died (wait status %d)",
             (unsigned long long)session->id, wait_status);
    connection_close(session->connection, "the helper process for legacy handles died");
}

int session_legacy_helper(struct session *session, struct legacy_helper **helper_p)
{
    if (session->legacy == NULL) {
        int status = legacy_helper_create(&session->daemon->loop, &session->daemon->device,
                                          legacy_died, session, &session->legacy);
        if (status != CUBIEMEM_OK) {
            return status;
        }
    }
    *helper_p = session->legacy;
    return CUBIEMEM_OK;
}

/* -------------------------------------------------------------- segments */

void let_go(struct daemon *daemon, struct segment *list)
{
    if (daemon->reclaim != NULL) {
        reclaim_thread_submit(daemon->reclaim, list);
        return;
    }
    while (list != NULL) { /* the daemon is ending, its threads have */
        struct segment *segment = list;
        list = segment->next;
        device_segment_destroy(&daemon->device, segment);
    }
}

void segments_to_driver(struct session *session, struct segment *list)
{
#ifdef CUBIEMEM_TEST_SEAMS
    /* What a daemon must never do; tests/gpu shows that it is seen there. */
    if (getenv("CUBIEMEM_TEST_LEND_AT_HANGUP") != NULL) {
        segments_to_pool(session, list);
        return;
    }
#endif
    struct daemon *daemon = session->daemon;
    struct segment *released = NULL;
    while (list != NULL) {
        struct segment *segment = list;
        list = segment->next;
        session->held_size -= segment->size;
        books_drain_lent(&daemon->books, segment->size, now_ns());
        if (segment->legacy_key != 0) {
            free(segment); /* the helper is killed with the session */
        } else {
            segment->next = released;
            released = segment;
        }
        drain_watch(daemon);
    }
    let_go(daemon, released);
}

void segments_to_pool(struct session *session, struct segment *list)
{
    struct daemon *daemon = session->daemon;
    struct segment *unplaced = NULL;
    while (list != NULL) {
        struct segment *segment = list;
        list = segment->next;
        segment->next = NULL;
        session->held_size -= segment->size;
        if (segment->legacy_key != 0) {
            session_free_legacy(session, segment);
            continue;
        }
        books_return(&daemon->books, segment->size);
        if (!pool_put(daemon->pool, session->identity.uid, segment)) {
            segment->next = unplaced;
            unplaced = segment;
        }
    }
    cached_to_driver(daemon, unplaced);
    transactions_wake(daemon);
}

void cached_to_driver(struct daemon *daemon, struct segment *list)
{
    if (list != NULL) {
        drain_watch(daemon);
    }
    for (struct segment *segment = list; segment != NULL; segment = segment->next) {
        books_drain_cached(&daemon->books, segment->size, now_ns());
    }
    let_go(daemon, list);
}

void descriptors_short(struct daemon *daemon, int status)
{
    if (status == CUBIEMEM_NO_FDS) {
        cached_to_driver(daemon, pool_evict(daemon->pool, (uid_t)-1, UINT64_MAX));
    }
}

/* ---------------------------------------------------------------- blocks */

struct block *block_create(struct instance *instance, uint64_t size)
{
    struct daemon *daemon = instance->session->daemon;
    struct block *block = calloc(1, sizeof(*block));
    if (block != NULL) {
        block->id = ++daemon->last_block_id;
        block->generation = ++daemon->last_generation;
        block->size = size;
        block->kind = instance->session->handle_kind;
        block->instance = instance;
    }
    return block;
}

void block_add_segment(struct block *block, struct segment *segment)
{
    DL_APPEND(block->segments, segment);
    block->instance->session->held_size += segment->size;
}

static void owe(struct session *session, const struct block *block)
{
    struct segment *list = block->segments;
    for (struct segment *segment = list; segment != NULL; segment = segment->next) {
        segment->block_id = block->id;
    }
    if (list != NULL && session->owed == NULL) {
        session->owed_since_ns = now_ns();
        connection_watch(session->connection);
    }
    DL_CONCAT(session->owed, list);
}

void block_end(struct block *block, enum block_end how)
{
    struct session *session = block->instance->session;
    if (how == BLOCK_OWED) {
        owe(session, block);
    } else if (how == BLOCK_TO_POOL) {
        segments_to_pool(session, block->segments);
    } else {
        segments_to_driver(session, block->segments);
    }
    free(block);
}

void session_block_gone(struct policy_instance *instance, struct policy_block *gone, void *daemon)
{
    (void)instance;
    struct daemon *self = daemon;
    struct block *block = gone->data;
    block->next = self->gone;
    self->gone = block;
}

static void end_gone_blocks(struct daemon *daemon, enum block_end how)
{
    while (daemon->gone != NULL) {
        struct block *block = daemon->gone;
        daemon->gone = block->next;
        block_end(block, how);
    }
}

/* The owed segments of this id, or of this block, come to the list. */
static bool owed_take(struct session *session, uint64_t id, bool by_block, struct segment **list_p)
{
    struct segment *segment, *next;
    bool any = false;
    DL_FOREACH_SAFE(session->owed, segment, next)
    {
        if (by_block ? segment->block_id == id : segment->legacy_key == 0 && segment->id == id) {
            DL_DELETE(session->owed, segment);
            segment->next = *list_p;
            *list_p = segment;
            any = true;
        }
    }
    return any;
}

bool session_give_back(struct session *session, const uint64_t *ids, size_t n,
                       const uint64_t *block_ids, size_t n_blocks)
{
    struct segment *list = NULL;
    bool all_owed = true;
    for (size_t i = 0; i < n; i++) {
        all_owed &= owed_take(session, ids[i], false, &list);
    }
    for (size_t i = 0; i < n_blocks; i++) {
        /* None, where new blocks have taken all that the block had. */
        (void)owed_take(session, block_ids[i], true, &list);
    }
    transactions_earmark_yielded(session->daemon, list);
    segments_to_pool(session, list);
    return all_owed;
}

/* ------------------------------------------------------------- instances */

/* The slot that the owner's other instances have, or a new one. */
static uint32_t owner_slot(struct session *session, const char *owner)
{
    for (struct instance *instance = session->instances; instance != NULL;
         instance = instance->hh.next) {
        struct policy_instance_view view;
        policy_instance_read(instance->policy, &view);
        if (strcmp(view.owner, owner) == 0) {
            return instance->owner_slot;
        }
    }
    return control_page_allot(session->pages);
}

static void owner_slot_put(struct session *session, uint32_t slot)
{
    for (struct instance *instance = session->instances; instance != NULL;
         instance = instance->hh.next) {
        if (instance->owner_slot == slot) {
            return;
        }
    }
    control_page_free(session->pages, slot);
}

int session_register(struct session *session, const struct policy_registration *registration,
                     struct instance **instance_p, uint32_t *warnings_p)
{
    struct daemon *daemon = session->daemon;
    if (HASH_COUNT(session->instances) >= LIMIT_INSTANCES) {
        return CUBIEMEM_LIMIT;
    }
    struct instance *instance = calloc(1, sizeof(*instance));
    if (instance == NULL) {
        return CUBIEMEM_HOST_MEMORY;
    }
    const char *owner = registration->owner != NULL ? registration->owner : registration->name;
    instance->owner_slot = owner_slot(session, owner);
    if (instance->owner_slot == 0) {
        free(instance);
        return CUBIEMEM_LIMIT;
    }
    int status = policy_register(daemon->policy, registration, &instance->policy, warnings_p);
    if (status != CUBIEMEM_OK) {
        owner_slot_put(session, instance->owner_slot);
        free(instance);
        return status;
    }
    instance->session = session;
    instance->id = ++session->last_instance_id;
    instance->warnings = *warnings_p;
    policy_instance_set_data(instance->policy, instance);
    HASH_ADD(hh, session->instances, id, sizeof(instance->id), instance);
    if (instance->hh.tbl == NULL) {
        policy_unregister(daemon->policy, instance->policy);
        owner_slot_put(session, instance->owner_slot);
        free(instance);
        return CUBIEMEM_HOST_MEMORY;
    }
    session->user->n_instances++;
    if (instance->id == 1) {
        session->contextless = true;
        books_context_coming(&daemon->books, now_ns());
    }
    *instance_p = instance;
    return CUBIEMEM_OK;
}

static void instance_end(struct instance *instance, enum block_end how)
{
    struct session *session = instance->session;
    struct daemon *daemon = session->daemon;
    policy_unregister(daemon->policy, instance->policy);
    end_gone_blocks(daemon, how);
    HASH_DELETE(hh, session->instances, instance);
    session->user->n_instances--;
    owner_slot_put(session, instance->owner_slot);
    free(instance);
}

void session_unregister(struct session *session, struct instance *instance)
{
    transactions_forget_instance(session->daemon, instance);
    instance_end(instance, BLOCK_TO_POOL);
    transactions_wake(session->daemon);
}

struct instance *session_instance(struct session *session, uint64_t id)
{
    struct instance *instance;
    HASH_FIND(hh, session->instances, &id, sizeof(id), instance);
    return instance;
}

void session_release(struct instance *instance, const char *label, uint64_t newest_grant)
{
    struct daemon *daemon = instance->session->daemon;
    if (label != NULL) {
        const struct policy_array *array = policy_find_array(instance->policy, label);
        if (array != NULL && array->grant <= newest_grant) {
            policy_release_label(daemon->policy, instance->policy, label);
        }
    } else {
        policy_release_until(daemon->policy, instance->policy, newest_grant);
    }
    end_gone_blocks(daemon, BLOCK_TO_POOL);
}

void session_evict(struct instance *instance)
{
    policy_evict(instance->session->daemon->policy, instance->policy);
    end_gone_blocks(instance->session->daemon, BLOCK_TO_POOL);
}

/* -------------------------------------------------------------- the rest */

int session_add_page(struct session *session, uint32_t *number_p, int *fd_p)
{
    /* Every instance and its streams fit in as many. */
    if (session->n_pages >= 4 * LIMIT_INSTANCES / CONTROL_SLOTS) {
        return CUBIEMEM_LIMIT;
    }
    struct control_page *page = control_page_create(session->n_pages, fd_p);
    if (page == NULL) {
        int status = page_status(errno);
        descriptors_short(session->daemon, status);
        return status;
    }
    LL_APPEND(session->pages, page);
    *number_p = page->number;
    session->n_pages++;
    return CUBIEMEM_OK;
}

void session_context_ready(struct session *session)
{
    if (session->contextless) {
        session->contextless = false;
        books_context_ready(&session->daemon->books, now_ns());
    }
}

void session_end(struct session *session)
{
    struct daemon *daemon = session->daemon;
    evictions_forget_session(daemon, session);
    transactions_forget_session(daemon, session);
    while (session->instances != NULL) {
        instance_end(session->instances, BLOCK_TO_DRIVER);
    }
    segments_to_driver(session, session->owed);
    session->owed = NULL;
    assert(session->held_size == 0);
    session_context_ready(session);
    books_context_gone(&daemon->books, now_ns());
    if (session->legacy != NULL) {
        legacy_helper_kill(session->legacy);
    }
    while (session->pages != NULL) {
        struct control_page *page = session->pages;
        LL_DELETE(session->pages, page);
        control_page_destroy(page);
    }
    session->user->n_sessions -= !session->tool;
    session->user->n_requests -= session->n_under_way;
    identity_finish(&session->identity);
    DL_DELETE(daemon->sessions, session);
    free(session);
    transactions_wake(daemon);
}

/* -------------------------------------------------------------- draining */

static void drain_reading_done(struct grant_job *job)
{
    struct daemon *daemon = job->data;
    daemon->drain_reading = false;
    daemon_read_device(daemon, job);
    free(job);
    if (daemon->books.draining == 0 && daemon->waitq.first == NULL) {
        uv_timer_stop(&daemon->drain_timer);
    }
    transactions_wake(daemon);
}

static void drain_tick(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    if (daemon->drain_reading) {
        return;
    }
    struct grant_job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return; /* the next tick tries again */
    }
    job->done = drain_reading_done;
    job->data = daemon;
    daemon->drain_reading = true;
    grant_thread_submit(daemon->grant, job);
}

void drain_watch(struct daemon *daemon)
{
    if (!daemon->shutting_down && !uv_is_active((uv_handle_t *)&daemon->drain_timer)) {
        daemon->drain_timer.data = daemon;
        uv_timer_start(&daemon->drain_timer, drain_tick, 1, 100);
    }
}

void daemon_read_device(struct daemon *daemon, const struct grant_job *job)
{
    if (!job->memory_known) {
        books_reading_failed(&daemon->books);
        return;
    }
    uint64_t given_up =
        books_read(&daemon->books, job->device_total, job->device_free, now_ns());
    if (given_up > 0) {
        char size[SIZE_TEXT_MAX];
        log_warn("%s were let go and are still in use after %d s: counted as others",
                 size_format(given_up, size), (int)(BOOKS_DRAIN_PATIENCE_NS / 1000000000));
    }
}
