#include "attend/state.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headwise {
namespace {

// Exactly 1 for the state with the larger maximum, so that folding with an empty state changes nothing. Both are 1 where
// no score was above -inf: their sums are 0 or NaN then.
float factor(float max, float larger) noexcept { return max == larger ? 1.0f : std::exp(max - larger); }

}  // namespace

void clear_states(const RowStates& states, std::int64_t rows) noexcept {
    std::fill_n(states.max, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(states.sum, rows, 0.0f);
    std::fill_n(states.o, rows * states.stride, 0.0f);
}

void fold_states(const RowStates& total, const RowStates& part, std::int64_t rows) noexcept {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float larger = std::max(total.max[row], part.max[row]);  // neither is NaN: softmax() ignores them
        const float a = factor(total.max[row], larger), b = factor(part.max[row], larger);
        total.max[row] = larger;
        total.sum[row] = total.sum[row] * a + part.sum[row] * b;
        float* const __restrict to = total.o + row * total.stride;
        const float* const __restrict from = part.o + row * part.stride;
        for (std::int64_t c = 0; c < total.stride; ++c) to[c] = to[c] * a + from[c] * b;
    }
}

}  // namespace headwise
