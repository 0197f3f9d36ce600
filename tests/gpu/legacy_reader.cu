/*
 * legacy_reader - a program that knows cudart and not us
 *
 *   legacy_reader {HANDLE OFFSET NBYTES}...
 *
 * HANDLE is a cudaIpcMemHandle_t in hex. For each array: opens it, prints its first
 * 32-bit word and how many of its words are others ("%08x %08x"), fills it with the
 * byte 0x5a, closes it. Exit status 0, or 1 with one line.
 */
#include <cuda_runtime_api.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "legacy_reader: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

static cudaIpcMemHandle_t handle_parse(const char *hex)
{
    cudaIpcMemHandle_t handle;

    if (strlen(hex) != 2 * sizeof(handle.reserved)) {
        fprintf(stderr, "legacy_reader: a handle has 128 hex digits\n");
        exit(1);
    }
    for (size_t i = 0; i < sizeof(handle.reserved); i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        handle.reserved[i] = (char)strtoul(digits, nullptr, 16);
    }
    return handle;
}

static void array_use(const char *handle, uint64_t offset, uint64_t nbytes)
{
    uint32_t *words = static_cast<uint32_t *>(malloc(nbytes));
    uint64_t n_others = 0;
    void *base;

    if (words == nullptr || nbytes < sizeof(*words)) {
        fprintf(stderr, "legacy_reader: cannot hold %ju bytes\n", (uintmax_t)nbytes);
        exit(1);
    }
    must(cudaIpcOpenMemHandle(&base, handle_parse(handle), cudaIpcMemLazyEnablePeerAccess),
         "cudaIpcOpenMemHandle");
    char *array = static_cast<char *>(base) + offset;
    must(cudaMemcpy(words, array, nbytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (uint64_t i = 0; i < nbytes / sizeof(*words); i++) {
        n_others += words[i] != words[0];
    }
    printf("%08x %08x\n", words[0], (unsigned int)n_others);
    must(cudaMemset(array, 0x5a, nbytes), "cudaMemset");
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    must(cudaIpcCloseMemHandle(base), "cudaIpcCloseMemHandle");
    free(words);
}

int main(int argc, char **argv)
{
    if (argc < 4 || (argc - 1) % 3 != 0) {
        fprintf(stderr, "usage: legacy_reader {HANDLE OFFSET NBYTES}...\n");
        return 2;
    }
    for (int i = 1; i < argc; i += 3) {
        array_use(argv[i], strtoull(argv[i + 1], nullptr, 10), strtoull(argv[i + 2], nullptr, 10));
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
