/* sim_env - tell this test where the simulated driver of its own build is */
#ifndef SIM_ENV_H
#define SIM_ENV_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Unless CUBIEMEM_SIM says it: ../../stage of the test's own folder. */
static inline void sim_env_set(void)
{
    char self[3000], library[4096];

    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0) {
        return;
    }
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(library, sizeof(library), "%s/../../stage/libcubiemem-sim.so", self);
    setenv("CUBIEMEM_SIM", library, 0);
}

#endif
