// Stage 2: norms of query and key heads, and of merged rows.
#pragma once

#include <cstdint>
#include <memory>

#include <headwise/cpu.h>
#include <headwise/heads.h>
#include <headwise/tensor.h>

#include "kernels/kernel_table.h"

namespace headwise {

// Weight and bias as the kernels read them, f32; head n starts at n * step.
struct NormFactors {
    const float* weight = nullptr;  // null: none
    const float* bias = nullptr;
    std::int64_t weight_step = 0, bias_step = 0;  // D, or 0 where all heads share one row
};

// What one layer normalizes with, made once. Throws as check_norm().
class Normalization {
public:
    Normalization(const HeadNorm& norm, const ConstTensorView& weight, const ConstTensorView& bias,
                  std::int64_t heads, std::int64_t head_dim, const char* where = "norm");

    const HeadNorm& norm() const noexcept { return norm_; }
    const NormFactors& factors() const noexcept { return factors_; }

private:
    HeadNorm norm_;
    NormFactors factors_;
    std::shared_ptr<void> memory_;
};

// Heads [B,T,N,D] (f32, bf16 or f16, innermost stride 1) in place; shapes are trusted. A merged row is N = 1.
void normalize(const KernelTable& kernels, const TensorView& heads, const HeadNorm& norm,
               const NormFactors& factors, const Execution& execution);

}  // namespace headwise
