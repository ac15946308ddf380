// One call of attend() with everything resolved: shapes, types, scale, visibility. Trusted from here on.
#pragma once

#include <cstddef>
#include <cstdint>

#include <headwise/attend.h>

#include "attend/key_source.h"
#include "attend/mask.h"
#include "attend/score_rules.h"
#include "heads/bands.h"
#include "kernels/kernel_table.h"

namespace headwise {

// Query rows of one kv head are numbered token * group + head within the group, so that the rows of a tile see nearly
// the same keys, and the keys and values of the kv head are read once for all of them.
struct Problem {
    Problem(const KernelTable& kernels, const AttendInputs& inputs, const AttendOutputs& outputs);

    const KernelTable& kernels;
    ConstTensorView q, k, v;  // k and v only where they are views
    KeySource keys;
    HeldKeys held;
    TensorView out, lse;
    std::int64_t B, T, S, H, G, D, Dv;
    std::int64_t group;  // query heads of one kv head, H / G
    double scale;
    Visibility visibility;
    ScoreRules rules;

    std::int64_t rows_of_kv_head() const noexcept { return T * group; }
    // Multiply-adds of all heads if every key were visible; only for choosing how to run.
    double work() const noexcept {
        return static_cast<double>(B * H) * static_cast<double>(T) * static_cast<double>(S * (D + Dv));
    }
    Visibility::Row row(std::int64_t b, std::int64_t kv_head, std::int64_t row) const noexcept {
        return {b, kv_head * group + row % group, row / group};
    }
};

// Address of element 0 of [b, token, head] of a [B,tokens,heads,width] view.
template <class Data>
Data* head_row(const BasicView<Data>& view, std::int64_t b, std::int64_t token, std::int64_t head) noexcept {
    using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
    const std::int64_t at = b * view.stride(0) + token * view.stride(1) + head * view.stride(2);
    return static_cast<Byte*>(view.data) + at * static_cast<std::int64_t>(size_of(view.dtype));
}

// lse[b, h, i] of [B,H,T].
double load_lse(const ConstTensorView& lse, const Visibility::Row& row) noexcept;
// Writes lse[b, h, i]; nothing where no lse is asked for.
void store_lse(const Problem& problem, const Visibility::Row& row, double value) noexcept;

// The three ways to run. All leave the same bits, but for attend_f64, which only takes f64.
void attend_direct(const Problem& problem, const Execution& execution);
void attend_packed(const Problem& problem, const Execution& execution);
void attend_f64(const Problem& problem, const Execution& execution);

}  // namespace headwise
