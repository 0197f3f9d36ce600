/*
 * cubiememctl without a daemon: documents shown as tables, statuses as exit
 * statuses, and numbers as people write them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "../../client/cubiememctl/ctl.h"

static const char busy[] =
    "{'schema_version': 1,"
    " 'daemon': {'version': '0.1.0', 'pid': 4242, 'mode': 'active', 'limits_revision': 3,"
    "            'state': 'ok'},"
    " 'device': {'uuid': 'SIM-51', 'name': 'sim0', 'simulated': true},"
    " 'budget_bytes': 67108864, 'lent_bytes': 57671680, 'cached_bytes': 0, 'draining_bytes': 0,"
    " 'others_bytes': 0, 'allowance_bytes': 0, 'promised_bytes': 2097152, 'free_bytes': 7340032,"
    " 'limits': [{'kind': 'uid', 'id': 1000, 'limit_bytes': 1048576, 'used_bytes': 2097152,"
    "             'over': true},"
    "            {'kind': 'name', 'name': 'a\\u0007', 'uid': 7, 'limit_bytes': 2, 'used_bytes': 1,"
    "             'over': false}],"
    " 'clients': ["
    "  {'id': 1, 'name': 'pkfit-a', 'pid': 4250, 'uid': 1000, 'user': 'anna',"
    "   'held_bytes': 18874368, 'cap_bytes': 20132659, 'arrays': 2, 'chunks': 6,"
    "   'state': 'working', 'instances': ["
    "    {'name': 'pkfit-a', 'group': 'default', 'shared': false, 'owner': 'pkfit-a',"
    "     'pool': 'manual', 'proportion': 0.3, 'cap_bytes': 20132659,"
    "     'allocated_bytes': 18874368}]},"
    "  {'id': 12, 'name': 'b\\u001b[2J', 'pid': null, 'uid': 1001, 'user': null,"
    "   'held_bytes': 9223372036854775807, 'cap_bytes': 9223372036854775807, 'arrays': 0,"
    "   'chunks': 0, 'state': 'idle', 'instances': ["
    "    {'name': 'x', 'group': 'g', 'shared': true, 'owner': 'x', 'pool': 'auto',"
    "     'proportion': 0.05, 'cap_bytes': 9223372036854775807, 'allocated_bytes': 1},"
    "    {'name': 'y', 'group': 'g', 'shared': true, 'owner': 'x', 'pool': 'auto',"
    "     'proportion': 0.05, 'cap_bytes': 9223372036854775807, 'allocated_bytes': 2}]}]}";

/* Documents are written here with ' for ". */
static json_t *document_of(const char *text)
{
    char *copy = strdup(text);
    json_error_t error;

    assert_non_null(copy);
    for (char *at = copy; *at; at++) {
        *at = *at == '\'' ? '"' : *at;
    }
    json_t *document = json_loads(copy, JSON_REJECT_DUPLICATES, &error);
    if (!document) {
        fail_msg("%s", error.text);
    }
    free(copy);
    return document;
}

typedef void print_fn(const json_t *, const struct listing_style *, FILE *);

static char *printed(print_fn *print, const json_t *document, size_t width)
{
    struct listing_style style = {.width = width};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    print(document, &style, out);
    fclose(out);
    return text;
}

static void assert_shows(const char *text, const char *words)
{
    if (!strstr(text, words)) {
        fail_msg("'%s' is not in\n%s", words, text);
    }
}

static void assert_lines_within(const char *text, size_t width)
{
    char *copy = strdup(text);
    char *rest = copy;
    char *line;

    assert_non_null(copy);
    while ((line = strsep(&rest, "\n"))) {
        if (text_width(line) > width) {
            fail_msg("over %zu columns: %s", width, line);
        }
    }
    free(copy);
}

static void a_status_shows_books_and_clients(void **state)
{
    json_t *document = document_of(busy);
    char *text = printed(status_print, document, 80);

    (void)state;
    assert_shows(text, "sim0 (simulated), SIM-51\n");
    assert_shows(text, "cubiememd 0.1.0, pid 4242, mode active, limits revision 3, ok\n");
    assert_shows(text, "budget     64 MiB    100.0 %  ");
    assert_shows(text, "lent       55 MiB     85.9 %  ");
    assert_shows(text, "free        7 MiB     10.9 %  ");
    assert_shows(text, "uid 1000             1 MiB  2 MiB  over its limit\n");
    assert_shows(text, "name a\\x07 of uid 7    2 B    1 B\n");
    assert_shows(text, " 1  pkfit-a   4250  anna    18 MiB  19.19 MiB       2       6  working\n");
    assert_shows(text, "12  b\\x1b[2J     ?  1001  7.99 EiB   7.99 EiB       0       0  idle\n");
    assert_shows(text, "1/pkfit-a  default     pkfit-a  manual 30 %  18 MiB  19.19 MiB\n");
    assert_shows(text, "12/x       g (shared)  x           auto 5 %     1 B   7.99 EiB\n");
    assert_lines_within(text, 80);
    assert_null(strchr(text, '\033'));
    free(text);
    json_decref(document);
}

static void an_idle_daemon_is_shown_as_such(void **state)
{
    json_t *document = document_of("{'clients': [], 'budget_bytes': 0}");
    char *text = printed(status_print, document, 80);

    (void)state;
    assert_shows(text, "no clients\n");
    assert_shows(text, "budget      0 B          -");
    assert_shows(text, "lent          -          -");
    free(text);
    text = printed(instances_print, document, 80);
    assert_string_equal(text, "no instances\n");
    free(text);
    json_decref(document);
}

/* From an older or newer daemon, or one gone mad: shown, not believed. */
static void odd_documents_are_shown_not_believed(void **state)
{
    static const char *const texts[] = {
        "{}",
        "{'clients': 3, 'groups': [1, {}, {'members': [7]}], 'limits': {}, 'device': [], 'daemon': 'x', 'budget_bytes': 'many'}",
        "{'clients': [1, null, [], {'instances': [{}, 5, null], 'pid': -1, 'cap_bytes': 1.5}]}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json_t *document = document_of(texts[i]);
        free(printed(status_print, document, 80));
        free(printed(groups_print, document, 80));
        json_decref(document);
    }
}

static void names_of_255_bytes_fit_80_columns(void **state)
{
    json_t *document = document_of(busy);
    json_t *client = json_array_get(json_object_get(document, "clients"), 0);
    json_t *instance = json_array_get(json_object_get(client, "instances"), 0);
    char name[256];

    (void)state;
    memset(name, 'n', 255);
    name[255] = '\0';
    json_object_set_new(client, "name", json_string(name));
    json_object_set_new(instance, "name", json_string(name));
    json_object_set_new(instance, "group", json_string(name));
    json_object_set_new(instance, "owner", json_string(name));
    char *text = printed(status_print, document, 80);
    assert_lines_within(text, 80);
    assert_shows(text, "nnn...");
    free(text);
    text = printed(status_print, document, 0);
    assert_shows(text, name);
    free(text);
    json_decref(document);
}

static void groups_show_scope_and_members(void **state)
{
    json_t *document =
        document_of("{'groups': ["
                    " {'name': 'g', 'shared': true, 'uid': 7, 'client': null, 'members': ["
                    "  {'client': 1, 'instance': 'a', 'cap_bytes': 1, 'allocated_bytes': 1},"
                    "  {'client': 2, 'instance': 'b', 'cap_bytes': 9223372036854775807,"
                    "   'allocated_bytes': 4},"
                    "  {'client': 3, 'instance': 'c', 'cap_bytes': 9223372036854775807,"
                    "   'allocated_bytes': 8},"
                    "  {'client': 4, 'instance': 'd', 'cap_bytes': 9223372036854775807,"
                    "   'allocated_bytes': -8}]},"
                    " {'name': 'g', 'shared': false, 'uid': 7, 'client': 2, 'members': ["
                    "  {'client': 2, 'instance': 'x', 'cap_bytes': 40, 'allocated_bytes': 8}]},"
                    " {'name': 'h', 'shared': false, 'uid': 7, 'client': 2, 'members': []}]}");
    char *text = printed(groups_print, document, 80);

    (void)state;
    assert_string_equal(text, "GROUP  OF        INSTANCES            HELD        CAP\n"
                              "g      uid 7     1/a, 2/b and 2 more  13 B  15.99 EiB\n"
                              "g      client 2  2/x                   8 B       40 B\n"
                              "h      client 2  -                     0 B        0 B\n");
    free(text);
    json_decref(document);
}

static void statuses_become_exit_statuses(void **state)
{
    (void)state;
    assert_int_equal(ctl_exit_status(CUBIEMEM_OK), 0);
    assert_int_equal(ctl_exit_status(CUBIEMEM_DISCONNECTED), 3);
    assert_int_equal(ctl_exit_status(CUBIEMEM_NOT_PERMITTED), 4);
    assert_int_equal(ctl_exit_status(CUBIEMEM_NOT_FOUND), 5);
    assert_int_equal(ctl_exit_status(CUBIEMEM_NOT_REGISTERED), 5);
    assert_int_equal(ctl_exit_status(CUBIEMEM_NO_MEMORY), 6);
    assert_int_equal(ctl_exit_status(CUBIEMEM_TOO_LARGE), 6);
    assert_int_equal(ctl_exit_status(CUBIEMEM_RUN_TOO_LARGE), 6);
    assert_int_equal(ctl_exit_status(CUBIEMEM_UNCHUNKABLE_TOO_LARGE), 6);
    assert_int_equal(ctl_exit_status(CUBIEMEM_QUOTA_OVERCOMMITTED), 6);
    assert_int_equal(ctl_exit_status(CUBIEMEM_AUTO_POOL_TOO_SMALL), 6);
    assert_int_equal(ctl_exit_status(CUBIEMEM_VERSION_MISMATCH), 7);
    assert_int_equal(ctl_exit_status(CUBIEMEM_INVALID_REQUEST), 1);
    assert_int_equal(ctl_exit_status(CUBIEMEM_INTERNAL), 1);
    assert_int_equal(ctl_exit_status(-12345), 1);
}

/* CASES 37 */
static void case_37_timeouts_are_finite(void **state)
{
    static const char *const bad[] = {"nan", "NAN", "inf", "-inf", "-1", "-0",  "1e300", "1e999",
                                      "0",   "",    " 1",  "1 ",   "1s", "0x1", "86401", "1e-10"};
    int64_t ns = 42;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (ctl_parse_seconds(bad[i], &ns)) {
            fail_msg("'%s' was taken", bad[i]);
        }
    }
    assert_int_equal(ns, 42);
    assert_true(ctl_parse_seconds("86400", &ns));
    assert_true(ns == INT64_C(86400000000000));
    assert_true(ctl_parse_seconds("0.25", &ns));
    assert_int_equal(ns, 250000000);
    assert_true(ctl_parse_seconds("1e-3", &ns));
    assert_int_equal(ns, 1000000);
}

static void ids_are_whole_and_32_bits(void **state)
{
    static const char *const bad[] = {
        "", "-1", "+1", " 1", "1x", "4294967295", "99999999999999999999"};
    uint32_t id = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(ctl_parse_id(bad[i], &id));
    }
    assert_int_equal(id, 7);
    assert_true(ctl_parse_id("4294967294", &id));
    assert_true(id == 4294967294u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_shows_books_and_clients),
        cmocka_unit_test(an_idle_daemon_is_shown_as_such),
        cmocka_unit_test(odd_documents_are_shown_not_believed),
        cmocka_unit_test(names_of_255_bytes_fit_80_columns),
        cmocka_unit_test(groups_show_scope_and_members),
        cmocka_unit_test(statuses_become_exit_statuses),
        cmocka_unit_test(case_37_timeouts_are_finite),
        cmocka_unit_test(ids_are_whole_and_32_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
