/* The command line: what is taken, and what each mistake is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exit_status.h"
#include "options.h"

#define MIB (1ull << 20)
#define N(array) (sizeof(array) / sizeof((array)[0]))

static char why[512];

/* "--mode active" and so on behind "cubiememd --device sim"; option may be NULL. */
static int parse(const char *option, const char *value, struct options *options_p)
{
    char copies[5][512] = {"cubiememd", "--device", "sim"};
    char *argv[6] = {copies[0], copies[1], copies[2]};
    int argc = 3;

    if (option != NULL) {
        snprintf(copies[argc], sizeof(copies[argc]), "%s", option);
        argv[argc] = copies[argc];
        argc++;
    }
    if (value != NULL) {
        snprintf(copies[argc], sizeof(copies[argc]), "%s", value);
        argv[argc] = copies[argc];
        argc++;
    }
    why[0] = '\0';
    return options_parse(argc, argv, options_p, why, sizeof(why));
}

/* Of a list that ends with NULL. */
static int parse_list(const char *const *argv, struct options *options_p)
{
    int argc = 0;

    while (argv[argc] != NULL) {
        argc++;
    }
    return options_parse(argc, (char *const *)argv, options_p, why, sizeof(why));
}

static void test_defaults(void **state)
{
    struct options options;

    (void)state;
    assert_int_equal(parse(NULL, NULL, &options), EXIT_STATUS_OK);
    assert_null(options.socket);
    assert_null(options.socket_group);
    assert_null(options.admin_group);
    assert_int_equal(options.mode, POLICY_ACTIVE);
    assert_int_equal(options.auto_share, POLICY_SHARE_PROCESS);
    assert_int_equal(options.log_level, LOG_LEVEL_INFO);
    assert_int_equal(options.evict_timeout_ns, 2000000000);
}

static void test_values_arrive(void **state)
{
    const char *const argv[] = {"cubiememd",    "--device=cuda:3", "--socket",     "/tmp/s",
                    "--mode",       "passive",         "--auto-share", "user",
                    "--budget=80%", "--reserve",       "500MB",        "--evict-timeout",
                    "0.25",         "--log-level",     "debug",        "--socket-group=g",
                    "--admin-group", "a",              NULL};
    struct options options;

    (void)state;
    assert_int_equal(parse_list(argv, &options), EXIT_STATUS_OK);
    assert_string_equal(options.device, "cuda:3");
    assert_string_equal(options.socket, "/tmp/s");
    assert_int_equal(options.mode, POLICY_PASSIVE);
    assert_int_equal(options.auto_share, POLICY_SHARE_USER);
    assert_string_equal(options.budget, "80%");
    assert_string_equal(options.reserve, "500MB");
    assert_int_equal(options.evict_timeout_ns, 250000000);
    assert_int_equal(options.log_level, LOG_LEVEL_DEBUG);
    assert_string_equal(options.socket_group, "g");
    assert_string_equal(options.admin_group, "a");
}

/* Each is status 2, names the option in one line, and leaves the output alone. */
static void test_bad_values_name_the_option(void **state)
{
    static const struct {
        const char *option, *value;
    } bad[] = {
        {"--device", ""},          {"--device", "gpu0"},        {"--device", "cuda:"},
        {"--device", "cuda:-1"},   {"--device", "cuda:0x1"},    {"--device", "cuda:99999"},
        {"--device", "sim:"},      {"--device", "sim:0"},       {"--device", "sim:-1MiB"},
        {"--device", "sim:1GiB,"}, {"--device", "sim,../x"},    {"--device", "simple"},
        {"--device", "GPU-1234"},  {"--device", "sim:nan"},     {"--device", "sim:64MiBx"},
        {"--budget", ""},          {"--budget", "nan"},         {"--budget", "-1GiB"},
        {"--budget", "inf"},       {"--budget", "101%"},        {"--budget", "-5%"},
        {"--budget", "0"},         {"--budget", "0%"},          {"--budget", "16GiB "},
        {"--budget", "16 GiB"},    {"--budget", "0x10"},        {"--budget", "1e9"},
        {"--budget", "8388608TiB"}, {"--reserve", "10%"},       {"--reserve", ""},
        {"--reserve", "-1"},       {"--mode", "Active"},        {"--mode", ""},
        {"--auto-share", "all"},   {"--evict-timeout", "0"},    {"--evict-timeout", "nan"},
        {"--evict-timeout", "-1"}, {"--evict-timeout", "1e300"}, {"--evict-timeout", "inf"},
        {"--evict-timeout", "3601"}, {"--evict-timeout", "2s"}, {"--evict-timeout", ""},
        {"--evict-timeout", "0.0000000001"}, {"--evict-timeout", "1."}, {"--log-level", "loud"},
        {"--socket", ""},          {"--socket-group", ""},      {"--admin-group", ""},
        {"--frobnicate", NULL},    {"--budget", NULL},          {"-x", NULL},
        {"extra", NULL},           {"--help=yes", NULL},
    };

    (void)state;
    for (size_t i = 0; i < N(bad); i++) {
        struct options options = {.evict_timeout_ns = 77};
        char name[64];
        assert_int_equal(parse(bad[i].option, bad[i].value, &options), EXIT_STATUS_USAGE);
        assert_int_equal(options.evict_timeout_ns, 77);
        snprintf(name, sizeof(name), "%s", bad[i].option);
        assert_non_null(strstr(why, name));
        assert_null(strchr(why, '\n'));
    }
}

static void test_a_socket_path_of_108_bytes(void **state)
{
    char path[109] = "";
    struct options options;

    (void)state;
    memset(path, 'p', 107);
    assert_int_equal(parse("--socket", path, &options), EXIT_STATUS_OK);
    path[107] = 'p';
    assert_int_equal(parse("--socket", path, &options), EXIT_STATUS_USAGE);
    assert_non_null(strstr(why, "--socket"));
}

static void test_the_device_is_needed(void **state)
{
    const char *const bare[] = {"cubiememd", NULL};
    const char *const help[] = {"cubiememd", "--help", NULL};
    const char *const version[] = {"cubiememd", "--version", NULL};
    struct options options;

    (void)state;
    assert_int_equal(parse_list(bare, &options), EXIT_STATUS_USAGE);
    assert_non_null(strstr(why, "--device"));
    assert_int_equal(parse_list(help, &options), EXIT_STATUS_OK);
    assert_true(options.help);
    assert_int_equal(parse_list(version, &options), EXIT_STATUS_OK);
    assert_true(options.version);
}

static void test_help_knows_every_option(void **state)
{
    static const char *const names[] = {"--device ",    "--socket ",     "--socket-group ",
                                        "--admin-group ", "--budget ",   "--reserve ",
                                        "--mode ",      "--auto-share ", "--evict-timeout ",
                                        "--log-level ", "--help",        "--version"};
    char *text = options_help();

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < N(names); i++) {
        assert_non_null(strstr(text, names[i]));
    }
    free(text);
}

static void test_budget_and_reserve(void **state)
{
    static const struct {
        const char *budget, *reserve;
        bool simulated;
        uint64_t total, budget_mib, reserve_mib; /* budget 0: refused */
    } cases[] = {
        {NULL, NULL, true, 64 * MIB, 64, 0},
        {NULL, NULL, false, 1024 * MIB, 512, 512},
        {NULL, NULL, false, 512 * MIB, 0, 0},
        {NULL, "1GiB", false, 4096 * MIB, 3072, 1024},
        {NULL, "64MiB", true, 64 * MIB, 0, 0},
        {"50%", NULL, true, 64 * MIB, 32, 0},
        {"100%", "8MiB", true, 64 * MIB, 64, 8},
        {"64MiB", NULL, true, 64 * MIB, 64, 0},
        {"65MiB", NULL, true, 64 * MIB, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < N(cases); i++) {
        const struct options options = {.budget = cases[i].budget, .reserve = cases[i].reserve};
        uint64_t budget = 7, reserve = 7;
        int status = options_resolve(&options, cases[i].total, cases[i].simulated, &budget,
                                     &reserve, why, sizeof(why));
        if (cases[i].budget_mib == 0) {
            assert_int_equal(status, EXIT_STATUS_USAGE);
            assert_int_equal(budget, 7);
            assert_int_equal(reserve, 7);
            assert_non_null(strstr(why, "--"));
        } else {
            assert_int_equal(status, EXIT_STATUS_OK);
            assert_int_equal(budget, cases[i].budget_mib * MIB);
            assert_int_equal(reserve, cases[i].reserve_mib * MIB);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values_arrive),
        cmocka_unit_test(test_bad_values_name_the_option),
        cmocka_unit_test(test_a_socket_path_of_108_bytes),
        cmocka_unit_test(test_the_device_is_needed),
        cmocka_unit_test(test_help_knows_every_option),
        cmocka_unit_test(test_budget_and_reserve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
