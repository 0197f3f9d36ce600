/*
 * sim_world - a directory of simulated GPUs and processes that use them
 *
 * A test program that tells stories of several processes has roles: it starts
 * itself again with a role's name, so that each process has a driver of its own.
 * World and peers talk over a socket by single bytes, with an fd where wanted.
 */
#ifndef TESTS_SUPPORT_SIM_WORLD_H
#define TESTS_SUPPORT_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver.h"

#define MIB ((uint64_t)1 << 20)

extern struct driver sim; /* of this process */

/* A new directory with one GPU `name` of this size, and the driver loaded and
 * initialised (but for a context). Fails the test. */
void sim_world_open(const char *name, uint64_t size);
void sim_world_close(void);
const char *sim_world_dir(void);
int sim_world_add(const char *name, uint64_t size);

/* MiB of the first GPU in use, as NVML says. */
uint64_t sim_used(void);
/* Wait for a figure, for 5 s at most. */
bool sim_used_becomes(uint64_t mib);
/* The primary context, retained and current. */
void sim_context(void);
void sim_context_end(void);
/* A segment; map one read-write at a new address. */
CUmemGenericAllocationHandle sim_create(uint64_t size);
int sim_export(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle sim_import(int fd);
CUdeviceptr sim_map(CUmemGenericAllocationHandle handle, uint64_t size);
void sim_unmap(CUdeviceptr address, uint64_t size);
void *sim_symbol(const char *name);
/* Can this process read or write a byte here? */
bool sim_readable(CUdeviceptr address);
bool sim_writable(CUdeviceptr address);
int n_open_fds(void);
void sleep_ms(unsigned int ms);

/* --- peers --- */

/* No process of a failed test is left behind: alarm() in each. */
#define PEER_LIFE_S 60

struct peer {
    pid_t pid;
    int fd;
};

/* setting: "NAME=value" for its environment, or NULL. */
struct peer peer_start(const char *role, const char *setting);
/* Both ends: a byte, and an fd or -1. */
void peer_say(int fd, char byte, int passed);
char peer_hear(int fd, int *passed_p);
void peer_kill(struct peer *peer);
/* Let it end by itself; its exit status. */
int peer_end(struct peer *peer);

struct peer_role {
    const char *name;
    int (*run)(int fd); /* with the driver loaded and initialised */
};
/* In main(): the exit status if this process is a peer, else -1. */
int peer_main(int argc, char **argv, const struct peer_role *roles, size_t n);

#define CU_OK(call) assert_int_equal((call), CUDA_SUCCESS)

#endif
