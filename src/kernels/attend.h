// Kernels of stage 3: attention over tiles of keys.
#pragma once

#include <stdint.h>

#include "kernels/rows.h"

namespace headwise {

struct AttendKernels {};

}  // namespace headwise
