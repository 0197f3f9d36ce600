/*
 * replay - run a fuzz target over saved inputs, without libFuzzer
 *
 *     fuzz_x PATH...   files, or directories of files (not deeper)
 *
 * Each input has a heap copy of its exact size, so that a sanitizer sees a read
 * past its end. No input at all is a failure: a corpus that is not found must
 * not pass.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t n_inputs;

static int replay_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rbe");
    uint8_t *data = malloc(size > 0 ? size : 1);
    int result = 1;

    if (file == NULL || data == NULL || fread(data, 1, size, file) != size) {
        fprintf(stderr, "replay: cannot read %s: %s\n", path, strerror(errno));
    } else {
        printf("%s\n", path);
        fflush(stdout); /* the last line names the input that crashed */
        LLVMFuzzerTestOneInput(data, size);
        n_inputs++;
        result = 0;
    }
    free(data);
    if (file != NULL) {
        fclose(file);
    }
    return result;
}

static int replay_directory(const char *path)
{
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort), result = 0;

    if (n < 0) {
        fprintf(stderr, "replay: cannot list %s: %s\n", path, strerror(errno));
        return 1;
    }
    for (int i = 0; i < n; i++) {
        char *name = NULL;
        struct stat info;

        if (asprintf(&name, "%s/%s", path, entries[i]->d_name) < 0) {
            result = 1;
        } else if (stat(name, &info) == 0 && S_ISREG(info.st_mode)) {
            result |= replay_file(name, (size_t)info.st_size);
        }
        free(name);
        free(entries[i]);
    }
    free(entries);
    return result;
}

int main(int argc, char **argv)
{
    int result = 0;

    for (int i = 1; i < argc; i++) {
        struct stat info;

        if (stat(argv[i], &info) != 0) {
            fprintf(stderr, "replay: %s: %s\n", argv[i], strerror(errno));
            result = 1;
        } else if (S_ISDIR(info.st_mode)) {
            result |= replay_directory(argv[i]);
        } else {
            result |= replay_file(argv[i], (size_t)info.st_size);
        }
    }
    printf("%zu inputs\n", n_inputs);
    return n_inputs == 0 ? 1 : result;
}
