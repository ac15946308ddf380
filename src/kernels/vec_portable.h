// Vec in plain C++: an array of kPortableLanes floats. With 4 lanes it is the ISA `scalar`, which runs anywhere; with
// 16 it is `portable16`, which proves the 16-lane kernels on machines that lack AVX-512.
#pragma once

#include <math.h>

namespace headwise::HEADWISE_ISA {
namespace {

constexpr int kLanes = HEADWISE_PORTABLE_LANES;
constexpr int kTileRows = 4;

struct Vec {
    float lane[kLanes];
};
struct Mask {
    bool lane[kLanes];
};

// One result lane per i. The loops have fixed length, so the compiler turns them into what the baseline has.
template <class Function>
HEADWISE_INLINE Vec each(Function function) {
    Vec result;
    for (int i = 0; i < kLanes; ++i) result.lane[i] = function(i);
    return result;
}

HEADWISE_INLINE float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
HEADWISE_INLINE uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

HEADWISE_INLINE Vec zero() {
    return each([](int) { return 0.0f; });
}
HEADWISE_INLINE Vec set1(float x) {
    return each([&](int) { return x; });
}
HEADWISE_INLINE Vec load(const float* p) {
    return each([&](int i) { return p[i]; });
}
HEADWISE_INLINE void store(float* p, Vec v) {
    for (int i = 0; i < kLanes; ++i) p[i] = v.lane[i];
}
HEADWISE_INLINE Vec load_n(const float* p, int n) {
    return each([&](int i) { return i < n ? p[i] : 0.0f; });
}
HEADWISE_INLINE void store_n(float* p, Vec v, int n) {
    for (int i = 0; i < n; ++i) p[i] = v.lane[i];
}

// The one-element conversions of core/dtype.h, repeated here because kernels include C headers only; a test compares.
HEADWISE_INLINE float bf16_lane(uint16_t bits) { return from_bits(static_cast<uint32_t>(bits) << 16); }
HEADWISE_INLINE uint16_t lane_bf16(float value) {
    const uint32_t bits = to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
HEADWISE_INLINE float f16_lane(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 0x1fu) return from_bits(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));
    if (exponent == 0) return from_bits(sign | to_bits(static_cast<float>(mantissa) * 0x1p-24f));
    return from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}
HEADWISE_INLINE uint16_t lane_f16(float value) {
    const uint32_t bits = to_bits(value), magnitude = bits & 0x7fffffffu;
    const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        return static_cast<uint16_t>(sign | (to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000u));
    }
    return static_cast<uint16_t>(sign | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13));
}
HEADWISE_INLINE Vec load_bf16(const uint16_t* p) {
    return each([&](int i) { return bf16_lane(p[i]); });
}
HEADWISE_INLINE Vec load_f16(const uint16_t* p) {
    return each([&](int i) { return f16_lane(p[i]); });
}
HEADWISE_INLINE Vec load_bf16_n(const uint16_t* p, int n) {
    return each([&](int i) { return i < n ? bf16_lane(p[i]) : 0.0f; });
}
HEADWISE_INLINE Vec load_f16_n(const uint16_t* p, int n) {
    return each([&](int i) { return i < n ? f16_lane(p[i]) : 0.0f; });
}
HEADWISE_INLINE void store_bf16_n(uint16_t* p, Vec v, int n) {
    for (int i = 0; i < n; ++i) p[i] = lane_bf16(v.lane[i]);
}
HEADWISE_INLINE void store_f16_n(uint16_t* p, Vec v, int n) {
    for (int i = 0; i < n; ++i) p[i] = lane_f16(v.lane[i]);
}
HEADWISE_INLINE void store_bf16(uint16_t* p, Vec v) { store_bf16_n(p, v, kLanes); }
HEADWISE_INLINE void store_f16(uint16_t* p, Vec v) { store_f16_n(p, v, kLanes); }

HEADWISE_INLINE Vec load_i8(const int8_t* p) {
    return each([&](int i) { return static_cast<float>(p[i]); });
}
HEADWISE_INLINE Vec load_i8_n(const int8_t* p, int n) {
    return each([&](int i) { return i < n ? static_cast<float>(p[i]) : 0.0f; });
}
HEADWISE_INLINE void store_i8_n(int8_t* p, Vec v, int n) {
    for (int i = 0; i < n; ++i) p[i] = static_cast<int8_t>(v.lane[i]);
}

HEADWISE_INLINE Vec add(Vec a, Vec b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
}
HEADWISE_INLINE Vec sub(Vec a, Vec b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
}
HEADWISE_INLINE Vec mul(Vec a, Vec b) {
    return each([&](int i) { return a.lane[i] * b.lane[i]; });
}
HEADWISE_INLINE Vec div(Vec a, Vec b) {
    return each([&](int i) { return a.lane[i] / b.lane[i]; });
}
// Two roundings: without FMA instructions fmaf() is a library call that costs 5 to 8 times as much.
HEADWISE_INLINE Vec fma(Vec a, Vec b, Vec c) {
    return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
HEADWISE_INLINE Vec max(Vec a, Vec b) {
    return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}

HEADWISE_INLINE Mask less(Vec a, Vec b) {
    Mask mask;
    for (int i = 0; i < kLanes; ++i) mask.lane[i] = a.lane[i] < b.lane[i];
    return mask;
}
HEADWISE_INLINE Mask first_n(int n) {
    Mask mask;
    for (int i = 0; i < kLanes; ++i) mask.lane[i] = i < n;
    return mask;
}
HEADWISE_INLINE Mask mask_of_bytes(const uint8_t* p, int n) {
    Mask mask;
    for (int i = 0; i < kLanes; ++i) mask.lane[i] = i < n && p[i] != 0;
    return mask;
}
HEADWISE_INLINE Mask mask_and(Mask a, Mask b) {
    for (int i = 0; i < kLanes; ++i) a.lane[i] = a.lane[i] && b.lane[i];
    return a;
}
HEADWISE_INLINE bool any(Mask mask) {
    bool result = false;
    for (int i = 0; i < kLanes; ++i) result = result || mask.lane[i];
    return result;
}
HEADWISE_INLINE Vec select(Mask mask, Vec a, Vec b) {
    return each([&](int i) { return mask.lane[i] ? a.lane[i] : b.lane[i]; });
}

HEADWISE_INLINE Vec round(Vec v) {
    constexpr float kMagic = 0x1.8p23f;  // adding it leaves no bits below the unit: nearest even
    return each([&](int i) { return (v.lane[i] + kMagic) - kMagic; });
}
HEADWISE_INLINE Vec times_pow2(Vec v, Vec n) {
    return each([&](int i) { return v.lane[i] * from_bits(to_bits(n.lane[i] + kExponentMagic) << 23); });
}
HEADWISE_INLINE float sum(Vec v) {
    for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) v.lane[i] += v.lane[i + width];
    }
    return v.lane[0];
}
HEADWISE_INLINE float max_lane(Vec v) {
    for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) v.lane[i] = v.lane[i] > v.lane[i + width] ? v.lane[i] : v.lane[i + width];
    }
    return v.lane[0];
}
HEADWISE_INLINE Vec twice(Vec v) {
    return each([&](int i) { return v.lane[i / 2]; });
}
HEADWISE_INLINE Vec swap_pairs(Vec v) {
    return each([&](int i) { return v.lane[i ^ 1]; });
}
HEADWISE_INLINE void transpose(Vec (&rows)[kLanes]) {
    for (int i = 0; i < kLanes; ++i) {
        for (int j = 0; j < i; ++j) {
            const float swapped = rows[i].lane[j];
            rows[i].lane[j] = rows[j].lane[i];
            rows[j].lane[i] = swapped;
        }
    }
}
HEADWISE_INLINE void pin(Vec&) {}
HEADWISE_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace
}  // namespace headwise::HEADWISE_ISA
