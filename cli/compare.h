// The verdict of `headwise run --check`.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <headwise/tensor.h>

namespace headwise::cli {

struct Comparison {
    std::int64_t compared = 0;  // numbers
    std::int64_t left_out = 0;  // numbers in rows beyond their sequence's length
    std::int64_t nan = 0;       // among the compared numbers of y
    std::int64_t inf = 0;
    std::int64_t expected_not_finite = 0;
    double max_error = 0;                 // where both are finite
    std::array<std::int64_t, 3> worst{};  // its place [b, t, e]
    double max_abs = 0;                   // of the expected numbers
    double tolerance = 0;
    double bound = 0;  // tolerance * max_abs
    bool passed = false;
};

// f32 4e-6, bf16 2e-2, f16 2e-3: what storing weights, q, k, v and y in this type may cost, as a part of max|y|.
double default_tolerance(DType dtype);

// y and expected [B,T,E], floats; lengths [B], or empty: all rows. Passes when every compared number is finite and within
// the bound; comparing nothing of a y that has numbers does not pass.
Comparison compare(const ConstTensorView& y, const ConstTensorView& expected,
                   std::span<const std::int64_t> lengths, double tolerance);

}  // namespace headwise::cli
