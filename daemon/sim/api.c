/* api - how each exported function begins and ends: count, check, lock, unlock */
#include "api.h"

#include "stream.h"

CUresult api_enter(enum sim_call call, bool valid)
{
    CUresult result = call_enter(call);

    if (result == CUDA_SUCCESS && !valid) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        sim_lock();
    }
    return result;
}

CUresult api_enter_unsafe(enum sim_call call, bool valid)
{
    CUresult result = api_enter(call, valid);

    if (result == CUDA_SUCCESS) {
        result = capture_allows_unsafe();
        if (result != CUDA_SUCCESS) {
            sim_unlock();
        }
    }
    return result;
}

CUresult api_leave(CUresult result)
{
    sim_unlock();
    return result;
}
