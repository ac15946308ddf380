// The page that lists all arithmetic: every kernel of headwise, as one table of functions per ISA. Stages take a table
// by reference, so tests loop over ISAs in one process and packed weights stay with the table that packed them.
#pragma once

#include "kernels/attend.h"
#include "kernels/linear.h"
#include "kernels/rows.h"

namespace headwise {

struct KernelTable {
    const char* isa;  // "avx2"
    int lanes;        // floats per register
    int panel;        // columns of one packed panel: 2 * lanes
    int tile_rows;    // rows of one register tile
    RowKernels rows;
    LinearKernels linear;
    AttendKernels attend;
};

}  // namespace headwise
