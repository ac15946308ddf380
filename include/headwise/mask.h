// Which keys a query sees. A mask is two answers, not a matrix: which key intervals are visible to a row, and
// (rarely) what to add to a score. All parts intersect; docs/semantics.md is the law.
#pragma once

#include <cstdint>

#include <headwise/export.h>
#include <headwise/tensor.h>

namespace headwise {

// Query row i of sequence b stands at the absolute position p = i + offset_b; keys stand at t = 0 .. S-1.
// A negative offset is legal and never clamped: its leading causal rows see nothing.
struct Positions {
    enum class Align {
        bottom_right,  // offset = S - T: the last query sees the last key (default)
        top_left,      // offset = 0: PyTorch's is_causal
        per_sequence,  // offset_b = offsets[b]
    };
    Align align = Align::bottom_right;
    ConstTensorView offsets{};  // i32 or i64 [B], only with per_sequence

    static Positions top_left() { return {Align::top_left, {}}; }
    static Positions at(const ConstTensorView& offsets) { return {Align::per_sequence, offsets}; }
};

struct Mask {
    bool causal = false;             // t <= p
    std::int64_t window_left = -1;   // p - window_left <= t; -1 = open. "Window W" keeping W keys is W - 1.
    std::int64_t window_right = -1;  // t <= p + window_right; -1 = open
    ConstTensorView key_lengths{};   // i32 or i64 [B]: keys t >= key_lengths[b] are hidden; a count
    ConstTensorView keep{};          // bool, true = attend; right-aligned to [B,H,T,S], size-1 axes broadcast
    ConstTensorView bias{};  // f32, bf16, f16 or f64; added to the scaled score; -inf hides; broadcast alike
};

HEADWISE_API Mask causal();
HEADWISE_API Mask window(std::int64_t left, std::int64_t right);  // throws invalid_argument below -1
HEADWISE_API Mask key_lengths(const ConstTensorView& lengths);
HEADWISE_API Mask keep(const ConstTensorView& tensor);
HEADWISE_API Mask bias(const ConstTensorView& tensor);

// Intersection: `causal() & window(255, 0)`. Two windows give the narrower one. Throws invalid_argument if both
// sides carry a tensor of the same kind (combine those before).
HEADWISE_API Mask operator&(const Mask& a, const Mask& b);

}  // namespace headwise
