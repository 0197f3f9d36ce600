/* gpu - a simulated GPU: the file that all processes of the machine share */
#ifndef DAEMON_SIM_GPU_H
#define DAEMON_SIM_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_decl.h"
#include "memlock.h"

#define GPU_NAME_SIZE 64
#define GPU_GRANULARITY (2u << 20)
#define GPU_PATH_SIZE 4096

/* One GPU in this process. */
struct gpu {
    unsigned int number; /* among this process's, for its tables; device.c's */
    char name[GPU_NAME_SIZE];
    char path[GPU_PATH_SIZE];
    CUuuid uuid;
    uint64_t size;
    int fd;
    struct gpu_file *file; /* mapped */
    int slot;              /* our place among the holders, or -1 */
    struct witness *witnesses;
};

/* A segment in the GPU's books. */
struct gpu_ref {
    uint32_t index;
    uint64_t id;
};

/* What another process needs to reach a segment's memory. */
struct gpu_place {
    struct memlock_id memory;
    uint64_t size;
    int pid, fd;
};

bool gpu_name_is_valid(const char *name);
/* The file's path in run_dir; false: too long. */
bool gpu_path(const char *run_dir, const char *name, char path_p[GPU_PATH_SIZE]);

/* Open an existing GPU. Return 0 or a negative errno; -ESTALE: the file is of
 * another boot or version. */
int gpu_open(const char *run_dir, const char *name, struct gpu *gpu_p);
/* Make it, or open one of that size, or replace an unused one of another.
 * -EBUSY: it has another size and is in use. */
int gpu_add(const char *run_dir, const char *name, uint64_t size, struct gpu *gpu_p);
void gpu_close(struct gpu *gpu);
/* Does its path still lead to its file? */
bool gpu_is_current(const struct gpu *gpu);
/* In a forked child: forget the witnesses; keep the device held. */
void gpu_forked(struct gpu *gpu);

/* Hold the device, until the last process that inherits it from us has ended. */
int gpu_hold(struct gpu *gpu);
/* Offsets of the lock bytes of a holder's slot: its program's and its engine's. */
int64_t gpu_program_byte(int slot);
int64_t gpu_engine_byte(int slot);

/* Book memory that fits (-ENOMEM: it does not) for us as its holder. */
int gpu_book(struct gpu *gpu, const struct gpu_place *place, struct gpu_ref *ref_p);
/* Find memory that somebody has booked. */
bool gpu_find(struct gpu *gpu, const struct memlock_id *memory, struct gpu_ref *ref_p,
              struct gpu_place *place_p);
bool gpu_place(struct gpu *gpu, struct gpu_ref ref, struct gpu_place *place_p);
/* We hold it too. */
bool gpu_join(struct gpu *gpu, struct gpu_ref ref);
/* It has left this process by an fd. */
void gpu_mark_exported(struct gpu *gpu, struct gpu_ref ref);
/* We hold it no more. fd: the memory, about to be closed, where we have made it
 * and shall look after what others still hold of it; else -1. */
void gpu_leave(struct gpu *gpu, struct gpu_ref ref, int fd);

uint64_t gpu_free(struct gpu *gpu);

#endif
