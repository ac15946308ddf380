// LinearKernels, see linear.h.
#include "kernels/linear.h"

#include "kernels/storage.h"

namespace headwise::HEADWISE_ISA {

extern const LinearKernels kLinearKernels;
const LinearKernels kLinearKernels = {};

}  // namespace headwise::HEADWISE_ISA
