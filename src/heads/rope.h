// Stage 2: rotary positions. Pair i of a head row, (a, b), turns by the angle position * f_i. Angles, cosines and sines
// are computed in f64 and rounded once to f32.
#pragma once

#include <cstdint>
#include <memory>

#include <headwise/cpu.h>
#include <headwise/heads.h>
#include <headwise/tensor.h>

#include "heads/rope_table.h"
#include "kernels/kernel_table.h"

namespace headwise {

// Which columns turn: pairs of offset .. offset + 2 * half - 1.
struct RopeLayout {
    Rope::Pairs pairs = Rope::Pairs::half_split;
    std::int64_t half = 0, offset = 0;
    bool inverse = false;
};
// f_i of a checked rope for i < half, in a call that reckons with `longest` positions.
void fill_frequencies(const Rope& rope, std::int64_t half, std::int64_t longest, double* to) noexcept;
double rope_multiplier(const RopeScaling& scaling) noexcept;  // of cos and sin

// What one layer rotates with, made once: its calls take no lock and allocate nothing.
class Rotation {
public:
    Rotation(const Rope& rope, std::int64_t head_dim, const char* where = "rope");  // throws as check_rope()

    const Rope& rope() const noexcept { return rope_; }
    const RopeLayout& layout() const noexcept { return layout_; }

    // The table for `longest` positions. Null: dynamic scaling beyond its max_position has new frequencies for every
    // length, so they are computed anew instead of filling tables that no later call would read.
    const RopeTable* table(std::int64_t longest) const noexcept;

private:
    Rope rope_;
    RopeLayout layout_;
    std::shared_ptr<const RopeTable> table_, long_table_;  // long_table_: only of longrope
};

// Where the tokens of a call stand.
struct RopePositions {
    ConstTensorView given{};    // i32 or i64 [B,T] or [T]; empty: i + offsets[b]
    ConstTensorView offsets{};  // i32 or i64 [B], the lengths of a cache; empty: 0
    std::int64_t longest = 0;   // positions that dynamic and longrope scaling reckon with; 0: largest position + 1
};

std::int64_t position_of(const RopePositions& positions, std::int64_t b, std::int64_t t) noexcept;

// Turn heads [B,T,N,D] (f32, bf16 or f16, innermost stride 1) in place. Shapes are trusted. Tables have a row for each
// token, or are read by positions.given, which then lie inside them; they ignore positions.offsets.
void rotate(const KernelTable& kernels, const TensorView& heads, const Rotation& rotation,
            const RopePositions& positions, const Execution& execution);
void rotate(const KernelTable& kernels, const TensorView& heads, const RopeLayout& layout,
            const RopeTables& tables, const RopePositions& positions, const Execution& execution);

}  // namespace headwise
