/*
 * The example's numbers: fits against R's, independence of chunks to the last
 * bit, the removable singularity, and data files that are wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../client/examples/pkfit/data.h"
#include "../../client/examples/pkfit/plain.h"

/* R 4.2.2, nls(conc ~ SSfol(Dose, Time, lKe, lKa, lCl)); tests/data/README.md */
static const struct {
    double ke, ka, cl, ss;
} reference[] = {
    {.05395, 1.77742, .01992, 4.28601},  {.10166, 1.94266, .04477, 8.94830},
    {.08142, 2.45357, .03956, .43627},   {.08747, 1.17148, .03740, 5.73195},
    {.08844, 1.47150, .04360, 13.46347}, {.09953, 1.16372, .05114, 2.44424},
    {.10225, .67974, .05159, .99656},    {.09196, 1.37552, .04646, 3.68335},
    {.08663, 8.86568, .03269, 2.48885},  {.07397, .69550, .03244, 1.35140},
    {.09812, 3.84904, .05725, .42622},   {.10558, .83289, .04200, 2.80920},
};
enum { N_SUBJECTS = sizeof(reference) / sizeof(reference[0]) };

static void theoph_read(struct data *data_p)
{
    const char *folder = getenv("CUBIEMEM_TEST_DATA");
    char path[4096];
    char why[512];

    snprintf(path, sizeof(path), "%s/theoph.csv", folder ? folder : "tests/data");
    if (data_read(path, data_p, why, sizeof(why)) < 0) {
        fail_msg("%s", why);
    }
}

static void assert_within(double value, double wanted, double share)
{
    if (!(fabs(value - wanted) <= share * wanted)) {
        fail_msg("%.6g is not within %g %% of %.6g", value, share * 100, wanted);
    }
}

static void fits_agree_with_r(void **state)
{
    struct data data;
    struct plain_evaluator plain;

    (void)state;
    theoph_read(&data);
    assert_int_equal(data.n_subjects, N_SUBJECTS);
    plain_init(&plain, 0, NULL);
    for (int i = 0; i < N_SUBJECTS; i++) {
        struct fit fit;
        const struct pk_subject *subject = data_subject(&data, i + 1);
        assert_non_null(subject);
        assert_int_equal(subject->n_observations, 11);
        assert_int_equal(fit_subject(&plain.base, subject, 100, &fit), 0);
        assert_within(fit.ke, reference[i].ke, .05);
        assert_within(fit.ka, reference[i].ka, .05);
        assert_within(fit.cl, reference[i].cl, .05);
        assert_within(fit.ss, reference[i].ss, .01);
        assert_int_equal(fit.cost.chunks, 1);
        assert_int_equal(fit.cost.bytes, 12 * 8 * 1000000);
    }
    data_finish(&data);
}

/* Every run's curve and sum of squares, computed in chunks of `length`. */
static double *evaluate_in_chunks(const struct pk_subject *subject, const struct pk_grid *grid,
                                  uint64_t length)
{
    uint64_t runs = pk_grid_runs(grid);
    uint64_t n_rows = subject->n_observations + 1u;
    double *all = malloc(n_rows * runs * sizeof(*all));
    double *chunk = malloc(n_rows * length * sizeof(*chunk));

    assert_non_null(all);
    assert_non_null(chunk);
    for (uint64_t first = 0; first < runs; first += length) {
        uint64_t n = runs - first < length ? runs - first : length;
        double *ss = chunk + subject->n_observations * length;
        grid_evaluate(subject, grid, first, n, length, chunk, ss);
        for (uint64_t row = 0; row < n_rows; row++) {
            memcpy(all + row * runs + first, chunk + row * length, n * sizeof(*all));
        }
    }
    free(chunk);
    return all;
}

static void chunks_change_no_bit(void **state)
{
    /* a run alone; a prime; around one row of Cl; a strip's end; half; all but one */
    static const uint64_t lengths[] = {1, 7, 31, 32, 33, 255, 257, 16384, 32767};
    struct data data;

    (void)state;
    theoph_read(&data);
    struct pk_grid grid = grid_coarse(32);
    uint64_t runs = pk_grid_runs(&grid);
    double *whole = evaluate_in_chunks(&data.subjects[8], &grid, runs);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        double *cut = evaluate_in_chunks(&data.subjects[8], &grid, lengths[i]);
        assert_memory_equal(cut, whole, 12 * runs * sizeof(*cut));
        free(cut);
    }
    free(whole);
    data_finish(&data);
}

static void chunks_change_no_fit(void **state)
{
    static const uint64_t lengths[] = {1, 999, 1000, 26999};
    struct data data;
    struct plain_evaluator plain;
    struct fit whole;

    (void)state;
    theoph_read(&data);
    plain_init(&plain, 0, NULL);
    assert_int_equal(fit_subject(&plain.base, &data.subjects[3], 30, &whole), 0);
    assert_int_equal(whole.cost.chunks, 1);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct fit fit;
        plain_init(&plain, lengths[i], NULL);
        assert_int_equal(fit_subject(&plain.base, &data.subjects[3], 30, &fit), 0);
        assert_int_equal(fit.cost.chunks, (27000 + lengths[i] - 1) / lengths[i]);
        assert_memory_equal(&fit.ke, &whole.ke, sizeof(double));
        assert_memory_equal(&fit.ka, &whole.ka, sizeof(double));
        assert_memory_equal(&fit.cl, &whole.cl, sizeof(double));
        assert_memory_equal(&fit.ss, &whole.ss, sizeof(double));
    }
    data_finish(&data);
}

/* A grid may be longer along Cl than a strip of the kernel. */
static void long_axes_are_evaluated_whole(void **state)
{
    struct data data;

    (void)state;
    theoph_read(&data);
    struct pk_grid grid = grid_coarse(2);
    grid.cl = (struct pk_axis){0.01, 0.001, 700};
    double *all = evaluate_in_chunks(&data.subjects[0], &grid, pk_grid_runs(&grid));
    for (uint64_t run = 0; run < pk_grid_runs(&grid); run++) {
        double ke, ka, cl;
        pk_grid_point(&grid, run, &ke, &ka, &cl);
        double conc = pk_uptake(data.subjects[0].dose, data.subjects[0].time[4], ke, ka) / cl;
        assert_memory_equal(&all[4 * pk_grid_runs(&grid) + run], &conc, sizeof(conc));
    }
    free(all);
    data_finish(&data);
}

static void the_singularity_is_removed(void **state)
{
    (void)state;
    for (double t = 0; t < 30; t += 0.7) {
        double k = 0.4;
        double limit = 5 * k * k * t * exp(-k * t);
        assert_within(pk_uptake(5, t, k, k), limit, 4 * DBL_EPSILON);
        /* and its neighbourhood is smooth: the textbook form loses 8 digits here */
        assert_within(pk_uptake(5, t, k, k * (1 + 1e-9)), limit, 1e-7);
        assert_within(pk_uptake(5, t, k, k * (1 - 1e-9)), limit, 1e-7);
    }
}

static void the_model_is_the_textbook_one(void **state)
{
    (void)state;
    for (double ke = 0.02; ke < 3; ke *= 1.7) {
        for (double ka = 0.31; ka < 20; ka *= 1.9) {
            double t = 3.5;
            double textbook = 4 * ke * ka / (ka - ke) * (exp(-ke * t) - exp(-ka * t));
            assert_within(pk_uptake(4, t, ke, ka), textbook, 1e-12);
            assert_true(pk_uptake(4, t, ke, ka) == pk_uptake(4, t, ka, ke));
        }
    }
    assert_true(pk_uptake(4, 0, 0.1, 2) == 0);
    assert_true(isfinite(pk_uptake(4, 1000, 20, 0.001)));
}

static void of_equal_runs_the_lowest_is_best(void **state)
{
    static const double ss[] = {3, NAN, 1, 2, 1, 0.5, 0.5};
    struct best best = BEST_INIT;

    (void)state;
    best_update(&best, ss, 100, 5);
    assert_int_equal(best.run, 102);
    best_update(&best, ss + 5, 105, 2);
    assert_int_equal(best.run, 105);
    best_update(&best, ss + 5, 107, 2);
    assert_int_equal(best.run, 105);
}

static void assert_refused(const char *text, const char *line, const char *words)
{
    char path[] = "/tmp/test_pkfit.XXXXXX";
    char why[512] = "";
    char place[64];
    struct data data = {0};
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    int result = data_read(path, &data, why, sizeof(why));
    unlink(path);
    assert_int_equal(result, -1);
    assert_null(data.subjects);
    snprintf(place, sizeof(place), "%s:%s: ", path, line);
    if (strncmp(why, place, strlen(place)) != 0 || !strstr(why, words)) {
        fail_msg("'%s' lacks '%s' or '%s'", why, place, words);
    }
}

static void wrong_data_is_named_with_its_line(void **state)
{
    char many[8192] = "Subject,Wt,Dose,Time,conc\n";
    char why[512];
    struct data data;

    (void)state;
    assert_refused("", "1", "no observations");
    assert_refused("Subject;Wt;Dose;Time;conc\n", "1", "header");
    assert_refused("Subject,Wt,Dose,Time,conc\n", "2", "no observations");
    assert_refused("Subject,Wt,Dose,Time,conc\n1,70,4,0,x\n", "2", "conc");
    assert_refused("Subject,Wt,Dose,Time,conc\n1,70,4,0\n", "2", "Time");
    assert_refused("Subject,Wt,Dose,Time,conc\n1,70,4,0,1,9\n", "2", "conc");
    assert_refused("Subject,Wt,Dose,Time,conc\n1,70,4,0,nan\n", "2", "conc");
    assert_refused("Subject,Wt,Dose,Time,conc\n1.5,70,4,0,1\n", "2", "subject 1.5");
    assert_refused("Subject,Wt,Dose,Time,conc\n1e99,70,4,0,1\n", "2", "subject");
    assert_refused("Subject,Wt,Dose,Time,conc\n1,70,0,0,1\n", "2", "dose");
    assert_refused("Subject,Wt,Dose,Time,conc\n1,70,4,-1,1\n", "2", "time");
    assert_refused("Subject,Wt,Dose,Time,conc\n1,70,4,1,1\n\n1,70,5,2,1\n", "4", "dose 5");
    assert_refused("Subject,Wt,Dose,Time,conc\n1,70,4,1,1\n1,70,4,1,1\n", "3", "time 1");
    for (int i = 0; i <= PK_MAX_OBSERVATIONS; i++) {
        snprintf(many + strlen(many), 64, "1,70,4,%d,1\n", i);
    }
    assert_refused(many, "66", "more than 64");
    assert_int_equal(data_read("/no/such/file", &data, why, sizeof(why)), -1);
    assert_non_null(strstr(why, "/no/such/file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_agree_with_r),
        cmocka_unit_test(chunks_change_no_bit),
        cmocka_unit_test(chunks_change_no_fit),
        cmocka_unit_test(long_axes_are_evaluated_whole),
        cmocka_unit_test(the_singularity_is_removed),
        cmocka_unit_test(the_model_is_the_textbook_one),
        cmocka_unit_test(of_equal_runs_the_lowest_is_best),
        cmocka_unit_test(wrong_data_is_named_with_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
