/* data - the observations of all subjects, read from a CSV file */
#ifndef PKFIT_DATA_H
#define PKFIT_DATA_H

#include <stddef.h>

#include "pk_model.h"

struct data {
    struct pk_subject *subjects; /* in the order of the file */
    size_t n_subjects;
};

/*
 * Read a file with the columns Subject,Wt,Dose,Time,conc.
 * Return: 0; -1, and why holds one line that names file and line.
 */
int data_read(const char *path, struct data *data_p, char *why, size_t why_size);
void data_finish(struct data *data);

/* NULL if there is no such subject. */
const struct pk_subject *data_subject(const struct data *data, int number);

#endif
