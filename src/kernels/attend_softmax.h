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

// Adds the bias to the scores of keys [from, to), multiples of kStep, and returns the largest visible one.
template <class Show>
HEADWISE_INLINE float largest_score(float* p, const float* bias, int from, int to, Show show) {
    for (int j = from; bias != nullptr && j < to; j += kLanes) store(p + j, add(load(p + j), load(bias + j)));
    const Vec none = set1(-kInfinity);
    Vec parts[kSums];
    unroll<kSums>([&](auto i) __attribute__((always_inline)) { parts[i] = none; });
    for (int j = from; j < to; j += kStep) {
        unroll<kSums>([&](auto i) __attribute__((always_inline)) {
            const int key = j + i * kLanes;
            parts[i] = max(show(key, load(p + key), none), parts[i]);  // in this order max ignores NaN
        });
    }
    return max_lane(join(
        parts, [](Vec a, Vec b) __attribute__((always_inline)) { return max(a, b); }));
}

// Turns the scores of keys [from, to) into weights exp(score - reference), hidden ones into -0, and returns their sum.
template <class Show>
HEADWISE_INLINE float weigh(float* p, float reference, int from, int to, Show show) {
    const Vec origin = set1(reference), hidden = set1(-0.0f);
    Vec parts[kSums];
    unroll<kSums>([&](auto i) __attribute__((always_inline)) { parts[i] = zero(); });
    for (int j = from; j < to; j += kStep) {
        Vec x[kSums];
        unroll<kSums>([&](auto i)
                          __attribute__((always_inline)) { x[i] = sub(load(p + j + i * kLanes), origin); });
        exp_of_nonpositive(x);
        unroll<kSums>([&](auto i) __attribute__((always_inline)) {
            const int key = j + i * kLanes;
            const Vec weight = show(key, x[i], hidden);
            store(p + key, weight);
            parts[i] = add(parts[i], weight);
        });
    }
    return sum(join(
        parts, [](Vec a, Vec b) __attribute__((always_inline)) { return add(a, b); }));
}

// exp(by) times everything that the row has summed up so far.
inline void rescale_row(const AttendTile& tile, int row, float by) {
    Vec factor[] = {set1(by)};
    exp_of_nonpositive(factor);
    float* const o = tile.o + row * tile.o_stride;
    for (int64_t c = 0; c < tile.Dv; c += kLanes) store(o + c, mul(load(o + c), factor[0]));
    tile.sum[row] *= max_lane(factor[0]);
}

}  // namespace
}  // namespace headwise::HEADWISE_ISA
