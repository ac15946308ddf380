// The softmax of one row over one tile of keys, with a reference of the row's own. Only for attend.isa.cpp.
#pragma once

#include "kernels/attend.h"
#include "kernels/exp.h"
#include "kernels/unroll.h"

namespace headwise::HEADWISE_ISA {
namespace {

constexpr int kSums = 4;  // partial sums and maxima: vector n of a tile belongs to number n % kSums
constexpr int kStep = kSums * kLanes;
constexpr float kInfinity = __builtin_inff();

// x where key lanes j, j + 1, ... are visible, else `hidden`.
struct ShowAll {
    HEADWISE_INLINE Vec operator()(int, Vec x, Vec) const { return x; }
};
struct ShowSome {
    int begin, end;
    const uint8_t* visible;  // may be null

    HEADWISE_INLINE Vec operator()(int j, Vec x, Vec hidden) const {
        Vec shown = select(first_n(lanes(end - j)), x, hidden);
        if (begin > j) shown = select(first_n(lanes(begin - j)), hidden, shown);
        return visible == nullptr ? shown : select(mask_of_bytes(visible + j, kLanes), shown, hidden);
    }
    static HEADWISE_INLINE int lanes(int n) { return n < 0 ? 0 : n > kLanes ? kLanes : n; }
};

template <class Function>
HEADWISE_INLINE Vec join(const Vec (&parts)[kSums], Function function) {
    return function(function(parts[0], parts[1]), function(parts[2], parts[3]));
}

// Keys [from, to), multiples of kStep; what lies beyond [begin, end) of the row becomes hidden.
template <class Show>
void softmax_row(const AttendTile& tile, int row, int from, int to, Show show) {
    float* const p = tile.p + row * kKeyTile;
    if (tile.bias != nullptr) {
        const float* bias = tile.bias + row * kKeyTile;
        for (int j = from; j < to; j += kLanes) store(p + j, add(load(p + j), load(bias + j)));
    }
    const Vec none = set1(-kInfinity);
    Vec parts[kSums];
    unroll<kSums>([&](auto i) __attribute__((always_inline)) { parts[i] = none; });
    for (int j = from; j < to; j += kStep) {
        unroll<kSums>([&](auto i) __attribute__((always_inline)) {
            const int key = j + i * kLanes;
            parts[i] = max(show(key, load(p + key), none), parts[i]);  // in this order max ignores NaN
        });
    }
    const float before = tile.max[row];
    const float largest = max_lane(join(parts, [](Vec a, Vec b) { return max(a, b); }));
    const float now = largest > before ? largest : before;

    // With nothing but -inf so far the reference is 0: the weights are 0, or NaN where a score is.
    const Vec reference = set1(now == -kInfinity ? 0.0f : now), hidden = set1(-0.0f);
    unroll<kSums>([&](auto i) __attribute__((always_inline)) { parts[i] = zero(); });
    for (int j = from; j < to; j += kStep) {
        unroll<kSums>([&](auto i) __attribute__((always_inline)) {
            const int key = j + i * kLanes;
            const Vec weight = show(key, exp_of_nonpositive(sub(load(p + key), reference)), hidden);
            store(p + key, weight);
            parts[i] = add(parts[i], weight);
        });
    }
    const float total = sum(join(parts, [](Vec a, Vec b) { return add(a, b); }));
    if (now > before) {
        const Vec factor = exp_of_nonpositive(set1(before - now));
        float* const o = tile.o + row * tile.o_stride;
        for (int64_t c = 0; c < tile.Dv; c += kLanes) store(o + c, mul(load(o + c), factor));
        tile.sum[row] *= max_lane(factor);
        tile.max[row] = now;
    }
    tile.sum[row] += total;
}

}  // namespace
}  // namespace headwise::HEADWISE_ISA
