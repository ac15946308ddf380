#include "attend/mask.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "core/dtype.h"

namespace headwise {

Mask causal() { return {.causal = true}; }

Mask window(std::int64_t left, std::int64_t right, std::int64_t keep_first) {
    check(left >= -1 && right >= -1, "window: left ", left, ", right ", right,
          "; give how many keys before and after the query are seen, or -1 for no limit");
    return {.window_left = left, .window_right = right, .keep_first = keep_first};
}

Mask key_lengths(const ConstTensorView& lengths) { return {.key_lengths = lengths}; }
Mask keep(const ConstTensorView& tensor) { return {.keep = tensor}; }
Mask bias(const ConstTensorView& tensor) { return {.bias = tensor}; }

namespace {

std::int64_t narrower(std::int64_t a, std::int64_t b) {
    if (a < 0 || b < 0) return std::max(a, b);  // -1 is open
    return std::min(a, b);
}

ConstTensorView only_one(const ConstTensorView& a, const ConstTensorView& b, const char* name) {
    check(a.empty() || b.empty(), "mask: both sides of & carry ", name,
          "; combine the two tensors into one before");
    return a.empty() ? b : a;
}

}  // namespace

Mask operator&(const Mask& a, const Mask& b) {
    return {.causal = a.causal || b.causal,
            .window_left = narrower(a.window_left, b.window_left),
            .window_right = narrower(a.window_right, b.window_right),
            .key_lengths = only_one(a.key_lengths, b.key_lengths, "key lengths"),
            .keep = only_one(a.keep, b.keep, "a boolean tensor"),
            .bias = only_one(a.bias, b.bias, "an additive tensor")};
}

namespace {

// Positions are the caller's and may be anything: sums stop at the ends of 64 bits.
std::int64_t add_clamped(std::int64_t a, std::int64_t b) noexcept {
    std::int64_t sum = 0;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return a < 0 ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
}

// A finite f64 stays finite in f32: only -inf hides.
float bias_of(double value) noexcept {
    constexpr double kLargest = std::numeric_limits<float>::max();
    return static_cast<float>(std::isfinite(value) ? std::clamp(value, -kLargest, kLargest) : value);
}

}  // namespace

Visibility::Broadcast::Broadcast(const ConstTensorView& view) noexcept {
    if (view.empty()) return;
    data = view.data, dtype = view.dtype;
    for (int axis = 0; axis < view.rank; ++axis) {
        strides[4 - view.rank + axis] = view.size(axis) == 1 ? 0 : view.stride(axis);
    }
}

Visibility::Visibility(const Mask& mask, const Positions& positions, const ScoreShape& shape) noexcept
    : mask_(mask), positions_(positions), shape_(shape), keep_(mask.keep), bias_(mask.bias) {}

KeyRange Visibility::row(std::int64_t b, std::int64_t i) const noexcept {
    KeyRange range{0, shape_.S};
    if (!mask_.key_lengths.empty()) {
        const ConstTensorView& lengths = mask_.key_lengths;
        range.end = load_i64(lengths.data, lengths.dtype, b * lengths.stride(0));
    }
    std::int64_t offset = 0;
    if (positions_.align == Positions::Align::bottom_right) offset = shape_.S - shape_.T;
    if (positions_.align == Positions::Align::per_sequence) {
        offset = load_i64(positions_.offsets.data, positions_.offsets.dtype, b * positions_.offsets.stride(0));
    }
    const std::int64_t p = add_clamped(i, offset);
    if (mask_.window_left >= 0) range.begin = std::max(range.begin, add_clamped(p, -mask_.window_left));
    std::int64_t last = std::numeric_limits<std::int64_t>::max() - 1;
    if (mask_.window_right >= 0) last = std::min(last, add_clamped(p, mask_.window_right));
    if (mask_.causal) last = std::min(last, p);
    range.end = std::min(range.end, last + 1);
    return range;
}

KeyRange Visibility::rows(std::int64_t b, std::int64_t first, std::int64_t last) const noexcept {
    return {row(b, first).begin, row(b, last).end};
}

void Visibility::read(const Row& row, std::int64_t first, int count, std::uint8_t* visible,
                      float* bias) const noexcept {
    if (has_keep()) {
        const auto* from = static_cast<const std::uint8_t*>(keep_.data) + keep_.at(row, first);
        const std::int64_t step = keep_.strides[3];
        if (step == 1) {
            std::memcpy(visible, from, static_cast<std::size_t>(count));
        } else {
            for (int n = 0; n < count; ++n) visible[n] = from[n * step];
        }
    } else {
        std::memset(visible, 1, static_cast<std::size_t>(count));
    }
    if (!has_bias()) return;
    const std::int64_t at = bias_.at(row, first), step = bias_.strides[3];
    if (bias_.dtype == DType::f32) {
        const float* from = static_cast<const float*>(bias_.data) + at;
        for (int n = 0; n < count; ++n) bias[n] = from[n * step];
    } else {
        for (int n = 0; n < count; ++n) bias[n] = bias_of(load_f64(bias_.data, bias_.dtype, at + n * step));
    }
    for (int n = 0; n < count; ++n) {
        if (bias[n] == -std::numeric_limits<float>::infinity()) visible[n] = 0;
    }
}

bool Visibility::read_f64(const Row& row, std::int64_t key, double& bias) const noexcept {
    bias = has_bias() ? load_f64(bias_.data, bias_.dtype, bias_.at(row, key)) : 0.0;
    const bool kept = !has_keep() || static_cast<const std::uint8_t*>(keep_.data)[keep_.at(row, key)] != 0;
    return kept && bias != -std::numeric_limits<double>::infinity();
}

bool Visibility::hides_all(const Row& row) const noexcept {
    const KeyRange range = this->row(row.b, row.i);
    if (range.empty() || !has_tensors()) return range.empty();
    constexpr int kPiece = 256;
    std::uint8_t visible[kPiece];
    float bias[kPiece];
    for (std::int64_t key = range.begin; key < range.end; key += kPiece) {
        const int count = static_cast<int>(std::min<std::int64_t>(kPiece, range.end - key));
        read(row, key, count, visible, bias);
        if (std::any_of(visible, visible + count, [](std::uint8_t shown) { return shown != 0; })) return false;
    }
    return true;
}

}  // namespace headwise
