/*
 * scrub - does the driver clear memory that passes on? See scrub.h
 */
#include "scrub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY "RMDisableScrubOnFree"

const char *scrub_params_path(void)
{
    const char *path = secure_getenv("CUBIEMEM_DRIVER_PARAMS");
    return path != NULL ? path : "/proc/driver/nvidia/params";
}

/* "RegistryDwords: "A=1;RMDisableScrubOnFree=0x1"": any value but 0 is on. */
static bool line_disables(const char *line)
{
    const char *key = strcasestr(line, KEY);
    if (key == NULL) {
        return false;
    }
    const char *value = strchr(key, '=');
    return value == NULL || strtoul(value + 1, NULL, 0) != 0;
}

bool scrub_is_on(const char *params_path, char *why, size_t why_size)
{
    FILE *file = fopen(params_path, "re");
    if (file == NULL) {
        snprintf(why, why_size, "%s cannot be read (%s), so scrubbing on free is not certain",
                 params_path, strerror(errno));
        return false;
    }
    bool seen = false, off = false;
    char line[4096];
    while (fgets(line, sizeof(line), file) != NULL) {
        bool registry = strncmp(line, "RegistryDwords", strlen("RegistryDwords")) == 0;
        seen |= registry;
        off |= registry && line_disables(line);
    }
    fclose(file);
    if (!seen || off) {
        snprintf(why, why_size, off ? "scrubbing on free is switched off (%s in %s)"
                                    : "no RegistryDwords (%s?) in %s: scrubbing is not certain",
                 KEY, params_path);
        return false;
    }
    return true;
}
