// Stage 2: rotary positions. Pair i of a head row of width D, (a, b) = (row[i], row[i + D/2]), turns by the angle
// position * theta^(-2i/D). Angles, cosines and sines are computed in f64 and rounded once to f32.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include <headwise/cpu.h>
#include <headwise/tensor.h>

#include "kernels/kernel_table.h"

namespace headwise {

// Cosines and sines of one (theta, D), shared by all layers of a process. Pages of positions are made when they are
// first asked for and never change, so readers take no lock.
class RopeTable {
public:
    // The table of the process for these numbers. D is even and positive.
    static std::shared_ptr<const RopeTable> shared(double theta, std::int64_t head_dim);

    RopeTable(double theta, std::int64_t head_dim);
    ~RopeTable();
    RopeTable(const RopeTable&) = delete;
    RopeTable& operator=(const RopeTable&) = delete;

    std::int64_t half() const noexcept { return half_; }

    // cos[0..half), then sin[0..half), of one position; null beyond the pages, where fill() computes the same numbers.
    // Throws Error out_of_memory when a new page does not fit.
    const float* find(std::int64_t position) const;
    void fill(std::int64_t position, float* to) const noexcept;

private:
    static constexpr std::int64_t kPageRows = 64;
    static constexpr std::int64_t kPages = 512;

    const float* page(std::size_t index) const;

    double theta_;
    std::int64_t half_;
    mutable std::array<std::atomic<float*>, kPages> pages_{};
};

// Turns heads [B,T,N,D] (f32, bf16 or f16, innermost stride 1) in place. `positions` is i32 or i64 [B,T] or [T], or
// empty for 0, 1, 2, ...
void rotate(const KernelTable& kernels, const TensorView& heads, const RopeTable& table,
            const ConstTensorView& positions, const Execution& execution);

}  // namespace headwise
