/*
 * cuda_kernel - the model as a CUDA kernel
 *
 * One thread a run, the same operations in the same order as the CPU's kernel
 * (grid.c), without contraction; exp and expm1 are CUDA's own, so that fits agree
 * to far more than 6 digits, not to the bit. cudart works in the device's
 * primary context, as the library does, so the arrays' pointers and the group's
 * stream are used as they are.
 */
#include "cuda_kernel.h"

#include <cuda_runtime.h>

#include <stdio.h>
#include <string.h>

static __global__ void evaluate(struct pk_subject subject, struct pk_grid grid, uint64_t first,
                                uint64_t n, uint64_t stride, double *curve, double *ss)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    double ke, ka, cl;
    double sum = 0;

    if (i >= n) {
        return;
    }
    pk_grid_point(&grid, first + i, &ke, &ka, &cl);
    for (uint32_t o = 0; o < subject.n_observations; o++) {
        double conc = pk_uptake(subject.dose, subject.time[o], ke, ka) / cl;
        double residual = conc - subject.conc[o];
        curve[o * stride + i] = conc;
        sum += residual * residual;
    }
    ss[i] = sum;
}

/* "GPU-01234567-89ab-..." as NVML writes it */
static void uuid_format(const cudaUUID_t *uuid, char text[41])
{
    char *at = text + snprintf(text, 41, "GPU-");

    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += snprintf(at, (size_t)(text + 41 - at), "%s%02x", dash ? "-" : "",
                       (unsigned char)uuid->bytes[i]);
    }
}

const char *cuda_kernel_select(const char *uuid)
{
    int n_devices = 0;
    cudaError_t error = cudaGetDeviceCount(&n_devices);

    for (int i = 0; i < n_devices && error == cudaSuccess; i++) {
        struct cudaDeviceProp properties;
        char text[41];
        error = cudaGetDeviceProperties(&properties, i);
        if (error != cudaSuccess) {
            break;
        }
        uuid_format(&properties.uuid, text);
        if (strcmp(text, uuid) == 0) {
            error = cudaSetDevice(i);
            return error == cudaSuccess ? NULL : cudaGetErrorString(error);
        }
    }
    return error == cudaSuccess ? "the CUDA runtime does not see this GPU "
                                  "(is CUDA_VISIBLE_DEVICES set?)"
                                : cudaGetErrorString(error);
}

const char *cuda_kernel_launch(const struct lent_work *work, double *host_ss,
                               cubiemem_stream stream)
{
    const unsigned int threads = 256;
    cudaStream_t cuda_stream = (cudaStream_t)stream;
    uint64_t n_blocks = (work->n + threads - 1) / threads;

    evaluate<<<(unsigned int)n_blocks, threads, 0, cuda_stream>>>(
        *work->subject, *work->grid, work->first, work->n, work->stride, work->curve, work->ss);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) {
        error = cudaMemcpyAsync(host_ss, work->ss, work->n * sizeof(double), cudaMemcpyDeviceToHost,
                                cuda_stream);
    }
    return error == cudaSuccess ? NULL : cudaGetErrorString(error);
}
