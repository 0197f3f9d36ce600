/*
 * data - the observations of all subjects, read from a CSV file
 *
 * The file is somebody's data, so nothing is guessed: a header other than the
 * expected one, a field that is not a finite number, a dose that changes within a
 * subject or a time that runs backwards is an error that names file and line.
 * What the numbers mean is the model's affair.
 */
#include "data.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER "Subject,Wt,Dose,Time,conc"

enum column { SUBJECT, WEIGHT, DOSE, TIME, CONC, N_COLUMNS };

static const char *const column_names[N_COLUMNS] = {"Subject", "Wt", "Dose", "Time", "conc"};

__attribute__((format(printf, 3, 4))) static bool refuse(char *why, size_t why_size,
                                                         const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, why_size, format, arguments);
    va_end(arguments);
    return false;
}

static bool row_parse(char *line, double row_p[N_COLUMNS], char *why, size_t why_size)
{
    double row[N_COLUMNS];
    char *at = line;

    for (int c = 0; c < N_COLUMNS; c++) {
        char *end;
        row[c] = strtod(at, &end);
        if (end == at || *end != (c == N_COLUMNS - 1 ? '\0' : ',') || !isfinite(row[c])) {
            return refuse(why, why_size, "column %s is not a number, or not the %dth of %d",
                          column_names[c], c + 1, N_COLUMNS);
        }
        at = end + 1;
    }
    if (row[SUBJECT] < 1 || row[SUBJECT] > INT_MAX || row[SUBJECT] != trunc(row[SUBJECT])) {
        return refuse(why, why_size, "subject %g is not a whole number from 1", row[SUBJECT]);
    }
    if (row[DOSE] <= 0) {
        return refuse(why, why_size, "dose %g is not above 0", row[DOSE]);
    }
    if (row[TIME] < 0) {
        return refuse(why, why_size, "time %g lies before the dose", row[TIME]);
    }
    memcpy(row_p, row, sizeof(row));
    return true;
}

static struct pk_subject *subject_find(const struct data *data, int number)
{
    for (size_t i = 0; i < data->n_subjects; i++) {
        if (data->subjects[i].number == number) {
            return &data->subjects[i];
        }
    }
    return NULL;
}

static bool row_add(struct data *data, const double row[N_COLUMNS], char *why, size_t why_size)
{
    struct pk_subject *subject = subject_find(data, (int)row[SUBJECT]);

    if (!subject) {
        struct pk_subject *subjects =
            reallocarray(data->subjects, data->n_subjects + 1, sizeof(*subjects));
        if (!subjects) {
            return refuse(why, why_size, "out of memory");
        }
        data->subjects = subjects;
        subject = &subjects[data->n_subjects++];
        *subject = (struct pk_subject){.number = (int)row[SUBJECT], .dose = row[DOSE]};
    }
    uint32_t n = subject->n_observations;
    if (n == PK_MAX_OBSERVATIONS) {
        return refuse(why, why_size, "more than %d observations of subject %d", PK_MAX_OBSERVATIONS,
                      subject->number);
    }
    if (subject->dose != row[DOSE]) {
        return refuse(why, why_size, "dose %g of subject %d, which had %g before", row[DOSE],
                      subject->number, subject->dose);
    }
    if (n > 0 && row[TIME] <= subject->time[n - 1]) {
        return refuse(why, why_size, "time %g of subject %d does not come after %g", row[TIME],
                      subject->number, subject->time[n - 1]);
    }
    subject->time[n] = row[TIME];
    subject->conc[n] = row[CONC];
    subject->n_observations = n + 1;
    return true;
}

static bool lines_read(FILE *file, struct data *data, size_t *line_p, char *why, size_t why_size)
{
    char *line = NULL;
    size_t capacity = 0;
    bool ok = true;

    for (*line_p = 1; ok; ++*line_p) {
        ssize_t size = getline(&line, &capacity, file);
        double row[N_COLUMNS] = {0};
        if (size < 0) {
            break;
        }
        line[strcspn(line, "\r\n")] = '\0';
        if (*line_p == 1) {
            ok = strcmp(line, HEADER) == 0 ||
                 refuse(why, why_size, "the header is not '" HEADER "'");
        } else if (*line != '\0') {
            ok = row_parse(line, row, why, why_size) && row_add(data, row, why, why_size);
        }
        if (!ok) {
            break;
        }
    }
    free(line);
    if (ok && ferror(file)) {
        ok = refuse(why, why_size, "%s", strerror(errno));
    }
    if (ok && data->n_subjects == 0) {
        ok = refuse(why, why_size, "no observations");
    }
    return ok;
}

int data_read(const char *path, struct data *data_p, char *why, size_t why_size)
{
    struct data data = {0};
    char reason[160];
    size_t line;
    FILE *file = fopen(path, "re");

    if (!file) {
        refuse(why, why_size, "%s: %s", path, strerror(errno));
        return -1;
    }
    bool ok = lines_read(file, &data, &line, reason, sizeof(reason));
    fclose(file);
    if (!ok) {
        refuse(why, why_size, "%s:%zu: %s", path, line, reason);
        data_finish(&data);
        return -1;
    }
    *data_p = data;
    return 0;
}

void data_finish(struct data *data)
{
    free(data->subjects);
    *data = (struct data){0};
}

const struct pk_subject *data_subject(const struct data *data, int number)
{
    return subject_find(data, number);
}
