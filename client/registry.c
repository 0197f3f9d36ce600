/*
 * registry - the clients of this process, for fork and for streams
 *
 * The lock is taken around a fork, so that the child sees a whole list. The
 * child frees nothing: other threads of the parent may have been inside.
 */
#include "registry.h"

#include "failure.h"

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cubiemem_client *clients;
static bool was_forked; /* this is a child, and its parent had clients */

static void before_fork(void)
{
    pthread_mutex_lock(&registry_lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&registry_lock);
}

static void after_fork_child(void)
{
    for (struct cubiemem_client *client = clients; client != NULL; client = client->next) {
        atomic_store(&client->forked, true);
        channel_abandon(&client->channel);
        pages_abandon(&client->pages);
        was_forked = true;
    }
    clients = NULL;
    pthread_mutex_unlock(&registry_lock);
}

static void install(void)
{
    /* Fails only without memory; then a child is on its own, as with vfork. */
    (void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

void registry_add(struct cubiemem_client *client)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    pthread_mutex_lock(&registry_lock);
    client->next = clients;
    clients = client;
    pthread_mutex_unlock(&registry_lock);
}

void registry_remove(struct cubiemem_client *client)
{
    pthread_mutex_lock(&registry_lock);
    for (struct cubiemem_client **link = &clients; *link != NULL; link = &(*link)->next) {
        if (*link == client) {
            *link = client->next;
            break;
        }
    }
    pthread_mutex_unlock(&registry_lock);
}

static bool has_stream(struct cubiemem_client *client, CUstream stream)
{
    bool found = false;
    pthread_mutex_lock(&client->books);
    for (struct group *group = client->groups; group != NULL && !found; group = group->next) {
        found = group->stream == stream;
    }
    pthread_mutex_unlock(&client->books);
    return found;
}

static bool is_ready(struct cubiemem_client *client)
{
    pthread_mutex_lock(&client->books);
    bool ready = client->context.ready;
    pthread_mutex_unlock(&client->books);
    return ready;
}

int registry_with_context(CUstream stream, int (*fn)(struct context *context, void *arg),
                          void *arg)
{
    struct cubiemem_client *found = NULL;
    pthread_mutex_lock(&registry_lock);
    for (struct cubiemem_client *client = clients; client != NULL; client = client->next) {
        if (!is_ready(client)) {
            continue;
        }
        if (found == NULL || has_stream(client, stream)) {
            found = client;
        }
    }
    int status;
    if (found != NULL) {
        status = fn(&found->context, arg);
    } else if (was_forked) {
        status = failure_set(CUBIEMEM_FORKED, "the stream is the parent's: a child connects anew");
    } else {
        status = failure_set(CUBIEMEM_NOT_REGISTERED, "no client of this process has a device: "
                                                      "register an instance first");
    }
    pthread_mutex_unlock(&registry_lock);
    return status;
}
