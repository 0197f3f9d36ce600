/*
 * report - the whole state as one JSON document, see report.h
 */
#include "report.h"

#include <jansson.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "eviction.h"
#include "session.h"
#include "transaction.h"

#define SCHEMA_VERSION 1

/* Names come from clients: what is no UTF-8 is shown byte by byte as '?'. */
static json_t *text(const char *name)
{
    json_t *string = json_string(name);
    if (string == NULL) {
        char clean[CUBIEMEM_MAX_LABEL + 1];
        size_t n = strnlen(name, CUBIEMEM_MAX_LABEL);
        for (size_t i = 0; i < n; i++) {
            clean[i] = (unsigned char)name[i] < 0x80 ? name[i] : '?';
        }
        clean[n] = '\0';
        string = json_string(clean);
    }
    return string;
}

/* jansson's integers are signed; no figure of ours needs the last bit. */
static json_t *bytes(uint64_t size)
{
    return json_integer(size > INT64_MAX ? INT64_MAX : (json_int_t)size);
}

static json_t *user_name(uid_t uid)
{
    struct passwd entry, *found = NULL;
    char buffer[1024];
    if (getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found) == 0 && found != NULL) {
        return text(found->pw_name);
    }
    return json_sprintf("%u", (unsigned)uid);
}

static json_t *warnings_report(uint32_t warnings)
{
    json_t *out = json_array();
#define REPORT_WARNING(name, bit, text)                                                            \
    if ((warnings & (bit)) != 0) {                                                                 \
        json_array_append_new(out, json_string(#name));                                            \
    }
    CUBIEMEM_WARNING_MAP(REPORT_WARNING)
#undef REPORT_WARNING
    return out;
}

static json_t *instance_report(const struct instance *instance)
{
    struct policy_instance_view view;
    policy_instance_read(instance->policy, &view);
    json_t *out = json_object();
    json_object_set_new(out, "name", text(view.name));
    json_object_set_new(out, "group", text(view.group));
    json_object_set_new(out, "shared", json_boolean(view.shared));
    json_object_set_new(out, "owner", text(view.owner));
    json_object_set_new(out, "pool", json_string(view.manual ? "manual" : "auto"));
    json_object_set_new(out, "proportion", json_real(view.proportion));
    json_object_set_new(out, "cap_bytes", bytes(view.cap));
    json_object_set_new(out, "allocated_bytes", bytes(view.allocated));
    json_object_set_new(out, "pinned_bytes", bytes(view.pinned));
    json_object_set_new(out, "arrays", json_integer((json_int_t)view.n_arrays));
    json_object_set_new(out, "chunks", bytes(view.chunks));
    json_object_set_new(out, "evictable", json_boolean(view.evictable));
    json_object_set_new(out, "warnings", warnings_report(instance->warnings));
    return out;
}

static bool has_transaction(const struct session *session)
{
    const struct transaction *transaction = session->daemon->transactions;
    while (transaction != NULL && transaction->session != session) {
        transaction = transaction->next;
    }
    return transaction != NULL;
}

static bool is_being_evicted(const struct session *session)
{
    const struct eviction *eviction = session->daemon->evictions;
    while (eviction != NULL && eviction->session != session) {
        eviction = eviction->next;
    }
    return eviction != NULL;
}

static const char *state_of(const struct session *session, bool over_limit)
{
    if (over_limit) {
        return "over_limit";
    }
    if (is_being_evicted(session)) {
        return "evicting";
    }
    if (has_transaction(session)) {
        return "waiting";
    }
    control_pages_look(session->pages);
    for (const struct instance *instance = session->instances; instance != NULL;
         instance = instance->hh.next) {
        if (!control_page_is_idle(session->pages, instance->owner_slot)) {
            return "working";
        }
    }
    return "idle";
}

static json_t *client_report(const struct session *session)
{
    const struct identity *identity = &session->identity;
    json_t *out = json_object(), *instances = json_array();
    uint64_t cap = 0, chunks = 0, arrays = 0, pinned = 0;
    bool over_limit = false;
    for (const struct instance *instance = session->instances; instance != NULL;
         instance = instance->hh.next) {
        struct policy_instance_view view;
        policy_instance_read(instance->policy, &view);
        cap += view.cap;
        arrays += view.n_arrays;
        pinned += view.pinned;
        chunks = view.chunks > chunks ? view.chunks : chunks;
        over_limit |= policy_is_over_limit(session->daemon->policy, instance->policy);
        json_array_append_new(instances, instance_report(instance));
    }
    json_object_set_new(out, "id", bytes(session->id));
    json_object_set_new(out, "name", text(session->name));
    json_object_set_new(out, "pid", identity->pid != 0 ? json_integer(identity->pid) : json_null());
    json_object_set_new(out, "uid", json_integer(identity->uid));
    json_object_set_new(out, "user", user_name(identity->uid));
    json_object_set_new(out, "held_bytes", bytes(session->held_size));
    json_object_set_new(out, "cap_bytes", bytes(cap));
    json_object_set_new(out, "pinned_bytes", bytes(pinned));
    json_object_set_new(out, "arrays", bytes(arrays));
    json_object_set_new(out, "chunks", bytes(chunks));
    json_object_set_new(out, "state", json_string(state_of(session, over_limit)));
    json_object_set_new(out, "instances", instances);
    return out;
}

/* ----------------------------------------------------------------- groups */

/* Looked up in `index`, for a client may have made thousands of them. */
static json_t *group_of(json_t *groups, json_t *index, const struct session *session,
                        const struct policy_instance_view *view)
{
    char key[CUBIEMEM_MAX_LABEL + 64];
    json_int_t client = view->shared ? 0 : (json_int_t)session->id;
    json_t *name = text(view->group), *group;
    snprintf(key, sizeof(key), "%d %u %lld %s", view->shared, (unsigned)session->identity.uid,
             (long long)client, name != NULL ? json_string_value(name) : "");
    group = json_object_get(index, key);
    if (group != NULL) {
        json_decref(name);
        return group;
    }
    group = json_object();
    json_object_set(index, key, group);
    json_object_set_new(group, "name", name);
    json_object_set_new(group, "shared", json_boolean(view->shared));
    json_object_set_new(group, "uid", json_integer(session->identity.uid));
    json_object_set_new(group, "client", view->shared ? json_null() : json_integer(client));
    json_object_set_new(group, "members", json_array());
    json_array_append_new(groups, group);
    return group;
}

static json_t *groups_report(const struct daemon *daemon)
{
    json_t *groups = json_array(), *index = json_object();
    for (const struct session *session = daemon->sessions; session != NULL;
         session = session->next) {
        for (const struct instance *instance = session->instances; instance != NULL;
             instance = instance->hh.next) {
            struct policy_instance_view view;
            policy_instance_read(instance->policy, &view);
            json_t *group = group_of(groups, index, session, &view), *member = json_object();
            json_object_set_new(member, "client", bytes(session->id));
            json_object_set_new(member, "instance", text(view.name));
            json_object_set_new(member, "cap_bytes", bytes(view.cap));
            json_object_set_new(member, "allocated_bytes", bytes(view.allocated));
            json_object_set_new(member, "queued", json_boolean(view.has_request));
            json_array_append_new(json_object_get(group, "members"), member);
        }
    }
    json_decref(index);
    return groups;
}

/* ---------------------------------------------------------------- ceilings */

static void ceiling_report(const struct policy_ceiling_view *view, void *list)
{
    static const char *const kinds[] = {
        [POLICY_CEILING_NAME] = "name", [POLICY_CEILING_UID] = "uid", [POLICY_CEILING_GID] = "gid"};
    json_t *out = json_object();
    json_object_set_new(out, "kind", json_string(kinds[view->ceiling.kind]));
    if (view->ceiling.kind == POLICY_CEILING_NAME) {
        json_object_set_new(out, "name", text(view->ceiling.name));
        json_object_set_new(out, "uid", json_integer(view->uid));
    } else {
        json_object_set_new(out, "id", json_integer(view->ceiling.id));
    }
    json_object_set_new(out, "limit_bytes", bytes(view->limit));
    if (view->ceiling.percent >= 0) {
        json_object_set_new(out, "percent", json_real(view->ceiling.percent));
    }
    json_object_set_new(out, "used_bytes", bytes(view->used));
    json_object_set_new(out, "over", json_boolean(view->used > view->limit));
    json_array_append_new(list, out);
}

/* ---------------------------------------------------------------- waiting */

/* In the order in which they will be served. */
static json_t *waiting_report(const struct daemon *daemon)
{
    json_t *list = json_array();
    for (const struct transaction *t = waiting_next(daemon, NULL); t != NULL;
         t = waiting_next(daemon, t)) {
        struct waiting_view view;
        struct policy_instance_view instance;
        json_t *out = json_object(), *holders = json_array();
        waiting_read(t, &view);
        policy_instance_read(t->trigger->policy, &instance);
        for (size_t i = 0; i < view.n_holders; i++) {
            json_array_append_new(holders, bytes(view.holders[i]));
        }
        json_object_set_new(out, "client", bytes(t->session->id));
        json_object_set_new(out, "instance", text(instance.name));
        json_object_set_new(out, "position", bytes(view.position));
        json_object_set_new(out, "asked_bytes", bytes(t->wait.asked));
        json_object_set_new(out, "max_chunks", bytes(t->wait.max_chunks));
        json_object_set_new(out, "reason", json_string(view.reason));
        json_object_set_new(out, "holders", holders);
        json_object_set_new(out, "since_ms",
                            bytes((uint64_t)(now_ns() - t->wait.since_ns) / 1000000));
        json_array_append_new(list, out);
    }
    return list;
}

/* ------------------------------------------------------------------ whole */

static void set_books(json_t *out, const struct books *books)
{
    json_object_set_new(out, "budget_bytes", bytes(books->budget));
    json_object_set_new(out, "reserve_bytes", bytes(books->reserve));
    json_object_set_new(out, "lent_bytes", bytes(books->lent));
    json_object_set_new(out, "cached_bytes", bytes(books->cached));
    json_object_set_new(out, "draining_bytes", bytes(books->draining));
    json_object_set_new(out, "others_bytes", bytes(books->others));
    json_object_set_new(out, "allowance_bytes", bytes(books_allowance(books)));
    json_object_set_new(out, "promised_bytes", bytes(books->promised));
    json_object_set_new(out, "free_bytes", bytes(books_free(books)));
}

char *report_json(const struct daemon *daemon)
{
    json_t *out = json_object(), *self = json_object(), *device = json_object();
    json_t *clients = json_array(), *limits = json_array();
    json_object_set_new(self, "version", json_string(CUBIEMEM_VERSION_STRING));
    json_object_set_new(self, "pid", json_integer(getpid()));
    json_object_set_new(self, "mode",
                        json_string(daemon->mode == POLICY_ACTIVE ? "active" : "passive"));
    json_object_set_new(self, "limits_revision", bytes(daemon->limits_revision));
    json_object_set_new(self, "state",
                        json_string(daemon->device_degraded || !daemon->books.device_known
                                        ? "degraded"
                                    : daemon->draining ? "draining"
                                                       : "ok"));
    json_object_set_new(device, "uuid", json_string(daemon->device.uuid));
    json_object_set_new(device, "name", text(daemon->device.name));
    json_object_set_new(device, "simulated", json_boolean(daemon->device.simulated));
    json_object_set_new(device, "total_bytes", bytes(daemon->device.total));
    for (const struct session *session = daemon->sessions; session != NULL;
         session = session->next) {
        if (!session->tool) {
            json_array_append_new(clients, client_report(session));
        }
    }
    policy_each_ceiling(daemon->policy, ceiling_report, limits);
    json_object_set_new(out, "schema_version", json_integer(SCHEMA_VERSION));
    json_object_set_new(out, "daemon", self);
    json_object_set_new(out, "device", device);
    set_books(out, &daemon->books);
    json_object_set_new(out, "cached_segments", bytes(pool_count(daemon->pool)));
    json_object_set_new(out, "clients", clients);
    json_object_set_new(out, "waiting", waiting_report(daemon));
    json_object_set_new(out, "groups", groups_report(daemon));
    json_object_set_new(out, "limits", limits);
    char *json = json_dumps(out, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(out);
    return json;
}
