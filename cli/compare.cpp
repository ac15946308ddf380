#include "cli/compare.h"

#include <algorithm>
#include <cmath>

namespace headwise::cli {

namespace {

void take(Comparison& result, double y, double expected, const std::array<std::int64_t, 3>& place) {
    ++result.compared;
    if (std::isnan(y)) ++result.nan;
    if (std::isinf(y)) ++result.inf;
    if (!std::isfinite(expected)) {
        ++result.expected_not_finite;
        return;
    }
    result.max_abs = std::max(result.max_abs, std::fabs(expected));
    if (!std::isfinite(y)) return;
    const double error = std::fabs(y - expected);
    if (error <= result.max_error) return;
    result.max_error = error;
    result.worst = place;
}

}  // namespace

double default_tolerance(DType dtype) {
    if (dtype == DType::bf16) return 2e-2;
    if (dtype == DType::f16) return 2e-3;
    return 4e-6;
}

Comparison compare(const ConstTensorView& y, const ConstTensorView& expected,
                   std::span<const std::int64_t> lengths, double tolerance) {
    const Tensor ours = convert(y, DType::f64), theirs = convert(expected, DType::f64);
    const std::int64_t tokens = y.size(1), width = y.size(2);
    Comparison result{.tolerance = tolerance};
    for (std::int64_t b = 0; b < y.size(0); ++b) {
        const std::int64_t length = lengths.empty() ? tokens : lengths[static_cast<std::size_t>(b)];
        result.left_out += (tokens - length) * width;
        for (std::int64_t t = 0; t < length; ++t) {
            for (std::int64_t e = 0; e < width; ++e) {
                const std::int64_t at = (b * tokens + t) * width + e;
                take(result, ours.data<double>()[at], theirs.data<double>()[at], {b, t, e});
            }
        }
    }
    result.bound = tolerance * result.max_abs;
    const bool finite = result.nan == 0 && result.inf == 0 && result.expected_not_finite == 0;
    const bool nothing = result.compared == 0 && result.left_out > 0;
    result.passed = finite && !nothing && result.max_error <= result.bound;
    return result;
}

}  // namespace headwise::cli
