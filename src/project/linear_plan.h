// How one call of a packed linear layer is cut into blocks and spread over threads.
#pragma once

#include <cstdint>

#include <headwise/cpu.h>

#include "kernels/kernel_table.h"
#include "project/packed_linear.h"

namespace headwise {

struct LinearCall {
    const KernelTable& table;
    LinearWeights weights;
    std::int64_t first, panels;  // the panels that are run
    std::int64_t origin;         // column of the layer that is column 0 of y
    Rows x;
    OutRows y;
};

void run_linear(const LinearCall& call, const Execution& execution);

}  // namespace headwise
