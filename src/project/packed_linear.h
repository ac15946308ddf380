// Stages 1 and 5: y = x W^T + bias, with the weights packed once for one kernel table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <headwise/cpu.h>
#include <headwise/tensor.h>

#include "kernels/kernel_table.h"

namespace headwise {

// One matrix of a layer: its columns of y stand side by side. Several bands in one layer are computed in one pass (q, k, v).
struct LinearBand {
    ConstTensorView weight;  // [N,K] f32, bf16 or f16, any strides (Conv1D layout: swap_axes of [K,N])
    ConstTensorView bias;    // [N], any float type, or empty
    std::int64_t gap = 0;    // columns of y behind it that are left as they are
};

// x: [batches, rows, K], innermost stride 1; strides in elements. Any float type.
struct Rows {
    const void* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t batches = 1, rows = 0;
    std::int64_t batch_stride = 0, row_stride = 0;
};

// y: [batches, rows, columns of the bands that are run, gaps included], innermost stride 1. f32, bf16 or f16.
struct OutRows {
    void* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t batches = 1, rows = 0;
    std::int64_t batch_stride = 0, row_stride = 0;
};

// Immutable; keeps a reference to its table and nothing of the tensors that it was made from. The law of its arithmetic:
// every element of y is one chain of fma over k, then + bias, then one rounding. So its bits depend on its own row of x
// and its own row of W only: not on the number of rows, their batch, the bands that are run, or the threads.
class PackedLinear {
public:
    // `storage`: f32, bf16 or f16, the type that packed weights have. Packs on all threads. Throws invalid_argument where
    // bands do not fit together, out_of_memory.
    PackedLinear(const KernelTable& table, std::span<const LinearBand> bands, DType storage);

    std::int64_t in_features() const noexcept { return in_features_; }            // K
    std::int64_t out_features() const noexcept { return starts_.back().column; }  // N of all bands
    std::int64_t bytes() const noexcept { return bytes_; }  // packed, padding and bias included
    int bands() const noexcept { return static_cast<int>(starts_.size()) - 1; }
    std::int64_t band_offset(int band) const noexcept { return starts_[static_cast<std::size_t>(band)].column; }

    // y = x W^T + bias for the bands [first, first + count); count -1: all from `first` on. Column 0 of y is the first
    // band's column 0. x and y must not overlap. No work below some 20 us leaves the calling thread, and a steady call
    // allocates nothing. Trusts shapes; throws invalid_argument for types that it cannot read or write.
    void run(const Rows& x, const OutRows& y, const Execution& execution, int first = 0, int count = -1) const;

private:
    struct Start {
        std::int64_t panel, column;
    };

    void pack(const LinearBand& band, Start start);

    const KernelTable* table_;
    DType storage_;
    std::int64_t in_features_ = 0, panel_step_ = 0, bytes_ = 0;
    std::vector<Start> starts_;  // of every band, and the end
    std::vector<LinearColumns> columns_;
    std::shared_ptr<void> panels_, bias_;
};

}  // namespace headwise
