/*
 * pk_model - the one-compartment model, once, for C and for CUDA
 *
 * Concentration after one oral dose, with first-order absorption (ka) and
 * elimination (ke) and clearance Cl:
 *
 *     conc(t) = Dose ke ka / (Cl (ka - ke)) (exp(-ke t) - exp(-ka t))
 *
 * ka = ke is a removable singularity. With s = min(ke, ka), d = |ka - ke| and
 * phi(x) = (1 - exp(-x)) / x, phi(0) = 1, the same is
 *
 *     conc(t) = Dose ke ka t exp(-s t) phi(d t) / Cl
 *
 * which is finite everywhere. What stands before the division is pk_uptake(): it
 * does not depend on Cl, so whoever walks along Cl computes it once. Compiled
 * without contraction to fused multiply-adds, a run's numbers depend on nothing
 * but the run: not on chunks, threads or vector width.
 *
 * Runs are numbered with Cl fastest: run = (i_ke n_ka + i_ka) n_cl + i_cl.
 */
#ifndef PK_MODEL_H
#define PK_MODEL_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define PK_FN __host__ __device__ static inline
#else
#define PK_FN static inline
#endif

#define PK_MAX_OBSERVATIONS 64

struct pk_subject {
    int number;
    uint32_t n_observations;
    double dose;                      /* mg/kg */
    double time[PK_MAX_OBSERVATIONS]; /* h since the dose */
    double conc[PK_MAX_OBSERVATIONS]; /* mg/L, measured */
};

/* n values from low upwards, each exp(log_step) times the one before. */
struct pk_axis {
    double low;
    double log_step;
    uint32_t n;
};

struct pk_grid {
    struct pk_axis ke; /* 1/h */
    struct pk_axis ka; /* 1/h */
    struct pk_axis cl; /* L/h/kg */
};

PK_FN double pk_axis_value(const struct pk_axis *axis, uint32_t i)
{
    return axis->low * exp(i * axis->log_step);
}

PK_FN double pk_phi(double x)
{
    return x == 0 ? 1 : -expm1(-x) / x;
}

/* Concentration times Cl. */
PK_FN double pk_uptake(double dose, double t, double ke, double ka)
{
    double slow = ke < ka ? ke : ka;
    double fast = ke < ka ? ka : ke;
    return dose * ke * ka * t * exp(-slow * t) * pk_phi((fast - slow) * t);
}

PK_FN uint64_t pk_grid_runs(const struct pk_grid *grid)
{
    return (uint64_t)grid->ke.n * grid->ka.n * grid->cl.n;
}

PK_FN void pk_grid_point(const struct pk_grid *grid, uint64_t run, double *ke_p, double *ka_p,
                         double *cl_p)
{
    uint64_t pair = run / grid->cl.n;
    *cl_p = pk_axis_value(&grid->cl, (uint32_t)(run % grid->cl.n));
    *ka_p = pk_axis_value(&grid->ka, (uint32_t)(pair % grid->ka.n));
    *ke_p = pk_axis_value(&grid->ke, (uint32_t)(pair / grid->ka.n));
}

#endif
