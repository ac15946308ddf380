// Kernels of stages 1 and 5: packed linear layers.
#pragma once

#include <stdint.h>

#include "kernels/rows.h"

namespace headwise {

struct LinearKernels {};

}  // namespace headwise
