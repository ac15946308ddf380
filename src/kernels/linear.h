// Kernels of stages 1 and 5: packed linear layers, y = x W^T + bias.
//
// Weights lie in panels of `panel` columns of y: [panels][k][panel] in their storage type, columns that do not exist are
// zero. Every element of y is one chain of fma over k from 0, then + bias, then one rounding to the type of y: the same
// bits whatever block, tile or stretch of k it is computed in.
#pragma once

#include <stdint.h>

#include "kernels/rows.h"

namespace headwise {

inline constexpr int64_t kLinearRows = 48;       // most rows of x in one block
inline constexpr int64_t kLinearNarrowRows = 5;  // up to so many rows a block needs no scratch

// Where the columns of one panel stand.
struct LinearColumns {
    int64_t column;  // of y, for the panel's column 0
    int64_t width;   // how many of the panel's columns exist
};

struct LinearWeights {
    const void* panels;
    Storage storage;
    int64_t panel_step;            // elements from one panel to the next
    int64_t k;                     // rows of a panel
    const float* bias;             // [panels][panel]
    const LinearColumns* columns;  // [panels]
};

// `rows` rows of x times `count` panels from `first` on.
struct LinearBlock {
    const LinearWeights& weights;
    int64_t first, count;
    const float* x;  // [rows][k], row stride x_stride
    int64_t x_stride;
    int64_t rows;  // 1 .. kLinearRows
    void* y;
    Storage y_storage;
    const int64_t* y_rows;  // [rows]: element of y that row's column 0 has
    float* scratch;         // kLinearScratch + kLinearRows * panel floats; unused up to kLinearNarrowRows rows
};

inline constexpr int64_t kLinearScratch = 8192;  // floats, beside one f32 per row and column of a panel

struct LinearKernels {
    // One panel [k][panel] from up to `panel` weight rows [columns][k] of f32, row stride row_stride.
    void (*pack_panel)(void* to, Storage storage, const float* rows, int64_t row_stride, int64_t columns,
                       int64_t k);
    void (*run_block)(const LinearBlock& block);
};

}  // namespace headwise
