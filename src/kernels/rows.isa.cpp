// RowKernels, see rows.h.
#include "kernels/rows.h"

#include "kernels/exp.h"
#include "kernels/storage.h"

namespace headwise::HEADWISE_ISA {
namespace {

// How many lanes a step of a row takes: all, or the first n of the last step. Two types, so that whole steps have no
// masks.
struct Whole {
    static HEADWISE_INLINE Vec get(const float* p) { return load(p); }
    static HEADWISE_INLINE Vec get(const void* p, Storage s, int64_t i) { return load_as(p, s, i); }
    static HEADWISE_INLINE void put(float* p, Vec v) { store(p, v); }
    static HEADWISE_INLINE void put(void* p, Storage s, int64_t i, Vec v) { store_as(p, s, i, v); }
    static HEADWISE_INLINE int lanes() { return kLanes; }
};
struct First {
    int n;
    HEADWISE_INLINE Vec get(const float* p) const { return load_n(p, n); }
    HEADWISE_INLINE Vec get(const void* p, Storage s, int64_t i) const { return load_as_n(p, s, i, n); }
    HEADWISE_INLINE void put(float* p, Vec v) const { store_n(p, v, n); }
    HEADWISE_INLINE void put(void* p, Storage s, int64_t i, Vec v) const { store_as_n(p, s, i, v, n); }
    HEADWISE_INLINE int lanes() const { return n; }
};

// step(i, lanes) for every register of a row of `count` numbers.
template <class Step>
HEADWISE_INLINE void for_row(int64_t count, Step step) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) step(i, Whole{});
    if (i < count) step(i, First{static_cast<int>(count - i)});
}

// body(storage) with a type for each storage: a test inside the loop would cost as much as the conversion.
template <Storage kStorage>
struct Stored {
    constexpr operator Storage() const { return kStorage; }
};
template <class Body>
HEADWISE_INLINE auto with_storage(Storage storage, Body body) {
    if (storage == Storage::f32) return body(Stored<Storage::f32>{});
    if (storage == Storage::bf16) return body(Stored<Storage::bf16>{});
    return body(Stored<Storage::f16>{});
}

// row[i] = function(row[i], i, lanes)
template <class Function>
HEADWISE_INLINE void map_row(void* row, Storage storage, int64_t count, Function function) {
    with_storage(
        storage, [&](auto s) __attribute__((always_inline)) {
            for_row(
                count, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
                    lanes.put(row, s, i, function(lanes.get(row, s, i), i, lanes));
                });
        });
}

void widen(float* to, const void* from, Storage storage, int64_t count) {
    with_storage(
        storage, [&](auto s) __attribute__((always_inline)) {
            for_row(
                count, [&](int64_t i, auto lanes)
                           __attribute__((always_inline)) { lanes.put(to + i, lanes.get(from, s, i)); });
        });
}

void narrow(void* to, Storage storage, const float* from, int64_t count) {
    with_storage(
        storage, [&](auto s) __attribute__((always_inline)) {
            for_row(
                count, [&](int64_t i, auto lanes)
                           __attribute__((always_inline)) { lanes.put(to, s, i, lanes.get(from + i)); });
        });
}

// No fma: with every product rounded alone, a rotation has the same bits on every ISA.
void rotate_half(void* row, Storage storage, const float* cos, const float* sin, int64_t half) {
    with_storage(
        storage, [&](auto s) __attribute__((always_inline)) {
            for_row(
                half, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
                    const Vec a = lanes.get(row, s, i), b = lanes.get(row, s, half + i);
                    const Vec c = lanes.get(cos + i), d = lanes.get(sin + i);
                    lanes.put(row, s, i, sub(mul(a, c), mul(b, d)));
                    lanes.put(row, s, half + i, add(mul(b, c), mul(a, d)));
                });
        });
}

// A register holds kLanes/2 pairs: x * (c, c) + swapped x * (-s, s).
void rotate_interleaved(void* row, Storage storage, const float* cos, const float* sin, int64_t half) {
    alignas(64) float signs[kLanes];
    for (int i = 0; i < kLanes; ++i) signs[i] = i % 2 == 0 ? -1.0f : 1.0f;
    const Vec sign = load(signs);
    map_row(
        row, storage, 2 * half, [&](Vec x, int64_t i, auto lanes) __attribute__((always_inline)) {
            const int pairs = lanes.lanes() / 2;
            const Vec c = twice(load_n(cos + i / 2, pairs)), s = mul(twice(load_n(sin + i / 2, pairs)), sign);
            return add(mul(x, c), mul(swap_pairs(x), s));
        });
}

// Number i of a row belongs to partial sum i % kSums on every ISA.
constexpr int kSums = 16;

// add(sums, x, n) for every kSums numbers x of the row; in the last step only n <= kSums of them exist.
template <class Add>
HEADWISE_INLINE double sum_row(const void* row, Storage storage, int64_t count, Add add_to) {
    double sums[kSums] = {};
    with_storage(
        storage, [&](auto s) __attribute__((always_inline)) {
            float x[kSums];
            int64_t i = 0;
            for (; i + kSums <= count; i += kSums) {
                unroll<kSums / kLanes>([&](auto v) __attribute__((always_inline)) {
                    store(x + v * kLanes, load_as(row, s, i + v * kLanes));
                });
                for (int j = 0; j < kSums; ++j) sums[j] = add_to(sums[j], static_cast<double>(x[j]));
            }
            widen(x, static_cast<const char*>(row) + i * (s == Storage::f32 ? 4 : 2), s, count - i);
            for (int j = 0; j < count - i; ++j) sums[j] = add_to(sums[j], static_cast<double>(x[j]));
        });
    for (int width = kSums / 2; width > 0; width /= 2) {
        for (int j = 0; j < width; ++j) sums[j] += sums[j + width];
    }
    return sums[0];
}

double sum_numbers(const void* row, Storage storage, int64_t count) {
    return sum_row(
        row, storage, count, [](double sum, double x) __attribute__((always_inline)) { return sum + x; });
}

double sum_squares(const void* row, Storage storage, int64_t count, double mean) {
    return sum_row(
        row, storage, count, [mean](double sum, double x) __attribute__((always_inline)) {
            return sum + (x - mean) * (x - mean);
        });
}

// The mean as two floats: x - high is exact where x is near the mean, which is where a rounded mean would show.
void normalize(void* row, Storage storage, int64_t count, const NormRow& norm) {
    const auto rounded = static_cast<float>(norm.mean);
    const Vec high = set1(rounded), low = set1(static_cast<float>(norm.mean - static_cast<double>(rounded)));
    const Vec factor = set1(norm.factor);
    map_row(
        row, storage, count, [&](Vec x, int64_t i, auto lanes) __attribute__((always_inline)) {
            Vec y = mul(sub(sub(x, high), low), factor);
            if (norm.weight != nullptr) y = mul(y, lanes.get(norm.weight + i));
            return norm.bias == nullptr ? y : add(y, lanes.get(norm.bias + i));
        });
}

void clip(void* row, Storage storage, int64_t count, float limit) {
    const Vec high = set1(limit), low = set1(-limit);
    map_row(
        row, storage, count, [&](Vec x, int64_t, auto) __attribute__((always_inline)) {
            return select(less(high, x), high, select(less(x, low), low, x));
        });
}

// 1 / (1 + exp(-g)) as exp(g) / (1 + exp(g)) for negative g, so that nothing overflows.
void gate(void* row, Storage storage, const void* gates, int64_t count) {
    const Vec one = set1(1.0f);
    map_row(
        row, storage, count, [&](Vec x, int64_t i, auto lanes) __attribute__((always_inline)) {
            const Vec g = lanes.get(gates, storage, i);
            Vec e[1] = {select(less(g, zero()), g, sub(zero(), g))};
            exp_of_nonpositive(e);
            const Vec share = div(select(less(g, zero()), e[0], one), add(one, e[0]));
            return mul(x, share);
        });
}

void subtract(void* row, Storage storage, const void* other, int64_t count, float factor) {
    const Vec by = set1(factor);
    map_row(
        row, storage, count, [&](Vec x, int64_t i, auto lanes) __attribute__((always_inline)) {
            return sub(x, mul(by, lanes.get(other, storage, i)));
        });
}

}  // namespace

extern const RowKernels kRowKernels;
const RowKernels kRowKernels = {
    .widen = widen,
    .narrow = narrow,
    .rotate_half = rotate_half,
    .rotate_interleaved = rotate_interleaved,
    .sum = sum_numbers,
    .sum_squares = sum_squares,
    .normalize = normalize,
    .clip = clip,
    .gate = gate,
    .subtract = subtract,
};

}  // namespace headwise::HEADWISE_ISA
