// The page that lists all arithmetic: every kernel of headwise, as one table of functions per ISA. Stages take a table
// by reference, so tests loop over ISAs in one process and packed weights stay with the table that packed them.
// A kernel that is added here also gets its name in kernel_list.cpp.
#pragma once

#include "kernels/attend.h"
#include "kernels/cache.h"
#include "kernels/linear.h"
#include "kernels/measure.h"
#include "kernels/rows.h"

namespace headwise {

// Plain data, laid out by the compiler: reading the table of an ISA that this CPU lacks runs none of its code.
struct KernelTable {
    const char* isa;  // "avx2"
    int lanes;        // floats per register
    int panel;        // columns of one packed panel: 2 * lanes
    int tile_rows;    // rows of one register tile
    const RowKernels& rows;
    const LinearKernels& linear;
    const AttendKernels& attend;
    const CacheKernels& cache;
    const MeasureKernels& measure;
};

}  // namespace headwise
