/* cuda_kernel - the model as a CUDA kernel; where nvcc was absent, words that say so */
#ifndef PKFIT_CUDA_KERNEL_H
#define PKFIT_CUDA_KERNEL_H

#include "lent.h"

#ifndef PKFIT_CUDA
#define PKFIT_CUDA 0
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if PKFIT_CUDA || defined(__CUDACC__)

/* Make the GPU of this UUID ("GPU-...") cudart's current one. Return: NULL; a text. */
const char *cuda_kernel_select(const char *uuid);

/*
 * On the stream: evaluate the chunk, then copy its sums of squares to host_ss.
 * Return: NULL; a text.
 */
const char *cuda_kernel_launch(const struct lent_work *work, double *host_ss,
                               cubiemem_stream stream);

#else

static inline const char *cuda_kernel_select(const char *uuid)
{
    (void)uuid;
    return "this pkfit was built without CUDA (make found no nvcc; set CUDA_HOME)";
}

static inline const char *cuda_kernel_launch(const struct lent_work *work, double *host_ss,
                                             cubiemem_stream stream)
{
    (void)work;
    (void)host_ss;
    (void)stream;
    return "built without CUDA";
}

#endif

#ifdef __cplusplus
}
#endif

#endif
