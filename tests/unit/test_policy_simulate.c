/*
 * test_policy_simulate - cubiememctl's simulate and plan: what they print, their
 * exit status, and that plan says what simulate says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <jansson.h>
#include <unistd.h>

#include "../../client/cubiememctl/simulate.h"

#define OUTPUT_MAX 65536

struct output {
    int status;
    char text[OUTPUT_MAX]; /* standard output */
};

/* Runs the verb with standard output in a file, and errors nowhere. */
static void run(int (*verb)(int, char **), const char *const *arguments, struct output *output)
{
    FILE *file = tmpfile(), *nowhere = fopen("/dev/null", "w");
    int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO), argc = 0;
    char *argv[16];
    size_t size;

    assert_non_null(file);
    assert_non_null(nowhere);
    for (; arguments[argc] != NULL; argc++) {
        argv[argc] = strdup(arguments[argc]);
    }
    argv[argc] = NULL;
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    dup2(fileno(nowhere), STDERR_FILENO);
    output->status = verb(argc, argv);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    fclose(nowhere);
    rewind(file);
    size = fread(output->text, 1, OUTPUT_MAX - 1, file);
    output->text[size] = '\0';
    fclose(file);
    for (int i = 0; i < argc; i++) {
        free(argv[i]);
    }
}

#define RUN(verb, output, ...) run(verb, (const char *const[]){ __VA_ARGS__, NULL }, output)

static struct output output;
static char path[64];

static void write_scenario(const char *text)
{
    int fd;

    strcpy(path, "/tmp/cubiemem-scenario.XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

#define SCENARIO(steps)                                                                            \
    "{\"format\":1,\"scenarios\":[{\"name\":\"s\",\"device\":{\"total_bytes\":1000,"               \
    "\"free_bytes\":500,\"granularity\":1,\"alignment\":1},\"mode\":\"passive\",\"steps\":[" steps \
    "]}]}"
#define REGISTER "{\"op\":\"register\",\"instance\":\"K\"}"
#define QUEUE                                                                                      \
    "{\"op\":\"queue\",\"instance\":\"K\",\"arrays\":{\"x\":{\"shape\":[10,100],"                  \
    "\"dtype\":\"int8\",\"chunk_axis_index\":1}}}"

static void people_see_a_table(void **state)
{
    (void)state;
    write_scenario(
        SCENARIO(REGISTER "," QUEUE ",{\"op\":\"allocate\",\"instance\":\"K\"},"
                          "{\"op\":\"release\",\"instance\":\"Z\\u001b[2J\"}"));
    RUN(cmd_simulate, &output, "simulate", path);
    unlink(path);
    assert_int_equal(output.status, 0);
    assert_non_null(strstr(output.text, "ready K: 2 x 50 runs, tail 50; x (10,50) 500 B"));
    assert_non_null(strstr(output.text, "NOT_REGISTERED"));
    assert_null(strchr(output.text, '\033')); /* somebody else's text */
}

static void check_counts_the_differences(void **state)
{
    (void)state;
    write_scenario(SCENARIO(
        "{\"op\":\"register\",\"instance\":\"K\",\"expect\":{\"status\":\"OK\","
        "\"warnings\":[],\"events\":[]}},"
        "{\"op\":\"allocate\",\"instance\":\"K\",\"expect\":{\"status\":\"NO_MEMORY\","
        "\"warnings\":[],\"events\":[]}}," QUEUE));
    RUN(cmd_simulate, &output, "simulate", "--check", path);
    assert_int_equal(output.status, 1);
    assert_non_null(strstr(
        output.text, "s: step 2.status: expected \"NO_MEMORY\", got \"OK\"\n"
                     "1 scenarios, 3 steps, 2 compared, 1 differences\n"));
    RUN(cmd_simulate, &output, "simulate", path);
    assert_int_equal(output.status, 0);
    unlink(path);
}

static void json_has_what_came_beside_what_was_expected(void **state)
{
    json_t *file, *scenario;

    (void)state;
    write_scenario(SCENARIO(REGISTER));
    RUN(cmd_simulate, &output, "simulate", "--json", path);
    unlink(path);
    file = json_loads(output.text, 0, NULL);
    scenario = json_array_get(json_object_get(file, "scenarios"), 0);
    assert_string_equal(
        json_string_value(json_object_get(
            json_object_get(json_array_get(json_object_get(scenario, "steps"), 0), "got"),
            "status")),
        "OK");
    assert_int_equal(
        json_integer_value(json_object_get(
            json_object_get(json_object_get(scenario, "final"), "K"), "cap_bytes")),
        1000);
    json_decref(file);
}

static void what_is_no_scenario_is_said(void **state)
{
    static const char *const bad[] = {
        "", "[", "[]", "{}", "{\"scenarios\":[7]}", "{\"format\":2,\"scenarios\":[]}",
        SCENARIO("{\"op\":\"fly\"}"), SCENARIO("7"), SCENARIO("{\"op\":\"register\"}"),
        SCENARIO("{\"op\":\"set_memory\",\"free_bytes\":-1}"),
        SCENARIO("{\"op\":\"set_memory\",\"free_bytes\":1.5}"),
        SCENARIO("{\"op\":\"register\",\"instance\":\"a\",\"proportion\":null}"),
        SCENARIO(REGISTER ",{\"op\":\"queue\",\"instance\":\"K\",\"arrays\":{\"x\":{}}}"),
        SCENARIO(REGISTER ",{\"op\":\"queue\",\"instance\":\"K\",\"arrays\":{\"x\":7}}"),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_scenario(bad[i]);
        RUN(cmd_simulate, &output, "simulate", path);
        unlink(path);
        assert_int_equal(output.status, 1);
    }
    RUN(cmd_simulate, &output, "simulate", "/no/such/file");
    assert_int_equal(output.status, 1);
    RUN(cmd_simulate, &output, "simulate");
    assert_int_equal(output.status, 2);
    RUN(cmd_simulate, &output, "simulate", "--fast", "x");
    assert_int_equal(output.status, 2);
}

static void a_plan_says_what_simulate_says(void **state)
{
    json_t *plan, *process;

    (void)state;
    RUN(cmd_plan, &output, "plan", "--device", "1000", "--free", "500", "--mode", "passive",
        "--granularity", "1", "--json", "x:10x100:int8:axis=1");
    assert_int_equal(output.status, 0);
    plan = json_loads(output.text, 0, NULL);
    process = json_array_get(json_object_get(plan, "processes"), 0);
    assert_int_equal(json_integer_value(json_object_get(process, "chunks")), 2);
    assert_int_equal(json_integer_value(json_object_get(process, "chunk_length")), 50);
    assert_int_equal(json_integer_value(json_object_get(process, "bytes")), 500);
    json_decref(plan);
    /* Three share: each is cut to its third. */
    RUN(cmd_plan, &output, "plan", "--device", "900", "--processes", "3", "--granularity", "1",
        "--json", "x:(10,100):int8:axis=1");
    assert_int_equal(output.status, 0);
    plan = json_loads(output.text, 0, NULL);
    for (size_t i = 0; i < 3; i++) {
        process = json_array_get(json_object_get(plan, "processes"), i);
        assert_int_equal(json_integer_value(json_object_get(process, "chunks")), 4);
        assert_int_equal(json_integer_value(json_object_get(process, "bytes")), 300);
    }
    json_decref(plan);
}

static void a_plan_that_is_refused_ends_with_6(void **state)
{
    (void)state;
    RUN(cmd_plan, &output, "plan", "--device", "4MiB", "--processes", "3", "x:4MiB:int8");
    assert_int_equal(output.status, 2);
    RUN(cmd_plan, &output, "plan", "--device", "4MiB", "--processes", "3", "x:1000:int8");
    assert_int_equal(output.status, 6);
    assert_non_null(strstr(output.text, "UNCHUNKABLE_TOO_LARGE"));
    assert_non_null(strstr(output.text, "by cap, array x"));
    RUN(cmd_plan, &output, "plan", "--device", "4MiB", "x:2305843009213693951:float64");
    assert_int_equal(output.status, 6);
}

static void a_plan_of_a_malformed_batch_is_wrong_usage(void **state)
{
    (void)state;
    RUN(cmd_plan, &output, "plan", "--device", "4MiB", "x:2x3x10:int8", "y:2x3x11:int8");
    assert_int_equal(output.status, 2);
    assert_non_null(strstr(output.text, "INVALID_REQUEST"));
    assert_non_null(strstr(output.text, "y"));
}

static void bad_arguments_of_plan_are_named(void **state)
{
    static const char *const bad[][4] = {
        { "--device", "4MB!", "x:1:int8" },      { "--device", "-1", "x:1:int8" },
        { "--processes", "0", "x:1:int8" },      { "--processes", "4097", "x:1:int8" },
        { "--mode", "lazy", "x:1:int8" },        { "--granularity", "0", "x:1:int8" },
        { "--free", "nan", "x:1:int8" },         { "--json", "x:1:int8", "x:1:int8" },
        { "--json", "x:1x:int8" },               { "--json", "x:-1:int8" },
        { "--json", "x:1:float128" },            { "--json", "x:1:int8:axis=" },
        { "--json", "x:1:int8:axis=1z" },        { "--json", ":1:int8" },
        { "--json", "x" },                       { "--json", "x:1x99999999999999999999:int8" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        RUN(cmd_plan, &output, "plan", "--device", "1GiB", bad[i][0], bad[i][1], bad[i][2]);
        assert_int_equal(output.status, 2);
    }
    RUN(cmd_plan, &output, "plan", "x:1:int8");
    assert_int_equal(output.status, 2);
    RUN(cmd_plan, &output, "plan", "--device", "1GiB");
    assert_int_equal(output.status, 2);
    RUN(cmd_plan, &output, "plan", "--help");
    assert_int_equal(output.status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(people_see_a_table),
        cmocka_unit_test(check_counts_the_differences),
        cmocka_unit_test(json_has_what_came_beside_what_was_expected),
        cmocka_unit_test(what_is_no_scenario_is_said),
        cmocka_unit_test(a_plan_says_what_simulate_says),
        cmocka_unit_test(a_plan_that_is_refused_ends_with_6),
        cmocka_unit_test(a_plan_of_a_malformed_batch_is_wrong_usage),
        cmocka_unit_test(bad_arguments_of_plan_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
