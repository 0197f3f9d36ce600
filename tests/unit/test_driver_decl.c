/* cuda_decl.h without <cuda.h>: a wrong value or layout does not compile. The
 * table of driver.h must also be declarable with these types alone. */
#define CUBIEMEM_NO_CUDA_H 1
#include "driver.h"

#ifdef CUDA_VERSION
#error "this file is about the declarations without <cuda.h>"
#endif
#include "cuda_layout.h"

int main(void)
{
    return sizeof(struct driver) > 0 ? 0 : 1;
}
