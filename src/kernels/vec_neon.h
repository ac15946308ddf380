// Vec on AArch64 Advanced SIMD (baseline armv8-a): 4 lanes, 32 registers.
#pragma once

#include <arm_neon.h>

namespace headwise::HEADWISE_ISA {
namespace {

constexpr int kLanes = 4;
constexpr int kTileRows = 8;  // 8 x 2 accumulators + 2 loads + broadcasts in 32 registers

struct Vec {
    float32x4_t v;
};
struct Mask {
    uint32x4_t m;  // all ones or all zeros per lane
};

HEADWISE_INLINE Vec zero() { return {vdupq_n_f32(0.0f)}; }
HEADWISE_INLINE Vec set1(float x) { return {vdupq_n_f32(x)}; }
HEADWISE_INLINE Vec load(const float* p) { return {vld1q_f32(p)}; }
HEADWISE_INLINE void store(float* p, Vec v) { vst1q_f32(p, v.v); }

HEADWISE_INLINE Mask first_n(int n) {
    const int32x4_t index = {0, 1, 2, 3};
    return {vcltq_s32(index, vdupq_n_s32(n))};
}
// No masked access: whole, or the even part and then the odd lane.
HEADWISE_INLINE Vec load_n(const float* p, int n) {
    if (n >= kLanes) return load(p);
    if (n < 2) return {vsetq_lane_f32(n == 1 ? *p : 0.0f, vdupq_n_f32(0.0f), 0)};
    const float32x2_t high = vset_lane_f32(n == 3 ? p[2] : 0.0f, vdup_n_f32(0.0f), 0);
    return {vcombine_f32(vld1_f32(p), high)};
}
HEADWISE_INLINE void store_n(float* p, Vec v, int n) {
    if (n >= kLanes) return store(p, v);
    if (n >= 2) vst1_f32(p, vget_low_f32(v.v));
    if (n == 1) vst1q_lane_f32(p, v.v, 0);
    if (n == 3) vst1q_lane_f32(p + 2, v.v, 2);
}

HEADWISE_INLINE Vec widen_bf16(uint16x4_t bits) { return {vreinterpretq_f32_u32(vshll_n_u16(bits, 16))}; }
HEADWISE_INLINE uint16x4_t narrow_bf16(Vec v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v.v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    const uint32x4_t number = vceqq_f32(v.v, v.v);
    return vshrn_n_u32(vbslq_u32(number, rounded, quiet), 16);
}
HEADWISE_INLINE Vec widen_f16(uint16x4_t bits) { return {vcvt_f32_f16(vreinterpret_f16_u16(bits))}; }
HEADWISE_INLINE uint16x4_t narrow_f16(Vec v) { return vreinterpret_u16_f16(vcvt_f16_f32(v.v)); }

HEADWISE_INLINE uint16x4_t load_halves(const uint16_t* p, int n) { return vcreate_u16(load_bytes(p, 2 * n)); }
HEADWISE_INLINE void store_halves(uint16_t* p, uint16x4_t halves, int n) {
    store_bytes(p, vget_lane_u64(vreinterpret_u64_u16(halves), 0), 2 * n);
}
HEADWISE_INLINE Vec load_bf16(const uint16_t* p) { return widen_bf16(vld1_u16(p)); }
HEADWISE_INLINE Vec load_f16(const uint16_t* p) { return widen_f16(vld1_u16(p)); }
HEADWISE_INLINE Vec load_bf16_n(const uint16_t* p, int n) { return widen_bf16(load_halves(p, n)); }
HEADWISE_INLINE Vec load_f16_n(const uint16_t* p, int n) { return widen_f16(load_halves(p, n)); }
HEADWISE_INLINE void store_bf16(uint16_t* p, Vec v) { vst1_u16(p, narrow_bf16(v)); }
HEADWISE_INLINE void store_f16(uint16_t* p, Vec v) { vst1_u16(p, narrow_f16(v)); }
HEADWISE_INLINE void store_bf16_n(uint16_t* p, Vec v, int n) { store_halves(p, narrow_bf16(v), n); }
HEADWISE_INLINE void store_f16_n(uint16_t* p, Vec v, int n) { store_halves(p, narrow_f16(v), n); }

HEADWISE_INLINE Vec load_i8_n(const int8_t* p, int n) {
    const int16x8_t halves = vmovl_s8(vcreate_s8(load_bytes(p, n)));
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(halves)))};
}
HEADWISE_INLINE Vec load_i8(const int8_t* p) { return load_i8_n(p, kLanes); }
HEADWISE_INLINE void store_i8_n(int8_t* p, Vec v, int n) {
    const int16x4_t halves = vmovn_s32(vcvtnq_s32_f32(v.v));
    store_bytes(p, vget_lane_u64(vreinterpret_u64_s8(vmovn_s16(vcombine_s16(halves, halves))), 0), n);
}

HEADWISE_INLINE Vec add(Vec a, Vec b) { return {vaddq_f32(a.v, b.v)}; }
HEADWISE_INLINE Vec sub(Vec a, Vec b) { return {vsubq_f32(a.v, b.v)}; }
HEADWISE_INLINE Vec mul(Vec a, Vec b) { return {vmulq_f32(a.v, b.v)}; }
HEADWISE_INLINE Vec div(Vec a, Vec b) { return {vdivq_f32(a.v, b.v)}; }
HEADWISE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
// fmax would return the NaN of either side, and +0 of two zeros.
HEADWISE_INLINE Vec max(Vec a, Vec b) { return {vbslq_f32(vcgtq_f32(a.v, b.v), a.v, b.v)}; }

HEADWISE_INLINE Mask less(Vec a, Vec b) { return {vcltq_f32(a.v, b.v)}; }
HEADWISE_INLINE Mask mask_of_bytes(const uint8_t* p, int n) {
    const uint8x8_t bytes = vcreate_u8(load_bytes(p, n));
    const uint32x4_t wide = vmovl_u16(vget_low_u16(vmovl_u8(bytes)));
    return {vtstq_u32(wide, wide)};
}
HEADWISE_INLINE Mask mask_and(Mask a, Mask b) { return {vandq_u32(a.m, b.m)}; }
HEADWISE_INLINE bool any(Mask mask) { return vmaxvq_u32(mask.m) != 0; }
HEADWISE_INLINE Vec select(Mask mask, Vec a, Vec b) { return {vbslq_f32(mask.m, a.v, b.v)}; }

HEADWISE_INLINE Vec round(Vec v) { return {vrndnq_f32(v.v)}; }
HEADWISE_INLINE Vec times_pow2(Vec v, Vec n) {
    const uint32x4_t biased = vreinterpretq_u32_f32(vaddq_f32(n.v, vdupq_n_f32(kExponentMagic)));
    return {vmulq_f32(v.v, vreinterpretq_f32_u32(vshlq_n_u32(biased, 23)))};
}
HEADWISE_INLINE float sum(Vec v) {
    const float32x2_t half = vadd_f32(vget_low_f32(v.v), vget_high_f32(v.v));
    return vget_lane_f32(half, 0) + vget_lane_f32(half, 1);
}
HEADWISE_INLINE float max_lane(Vec v) {
    const float32x2_t low = vget_low_f32(v.v), high = vget_high_f32(v.v);
    const float32x2_t half = vbsl_f32(vcgt_f32(low, high), low, high);
    const float a = vget_lane_f32(half, 0), b = vget_lane_f32(half, 1);
    return a > b ? a : b;
}
HEADWISE_INLINE Vec twice(Vec v) { return {vzip1q_f32(v.v, v.v)}; }
HEADWISE_INLINE Vec swap_pairs(Vec v) { return {vrev64q_f32(v.v)}; }
HEADWISE_INLINE void transpose(Vec (&r)[kLanes]) {
    const float64x2_t even01 = vreinterpretq_f64_f32(vtrn1q_f32(r[0].v, r[1].v));
    const float64x2_t odd01 = vreinterpretq_f64_f32(vtrn2q_f32(r[0].v, r[1].v));
    const float64x2_t even23 = vreinterpretq_f64_f32(vtrn1q_f32(r[2].v, r[3].v));
    const float64x2_t odd23 = vreinterpretq_f64_f32(vtrn2q_f32(r[2].v, r[3].v));
    r[0].v = vreinterpretq_f32_f64(vtrn1q_f64(even01, even23));
    r[1].v = vreinterpretq_f32_f64(vtrn1q_f64(odd01, odd23));
    r[2].v = vreinterpretq_f32_f64(vtrn2q_f64(even01, even23));
    r[3].v = vreinterpretq_f32_f64(vtrn2q_f64(odd01, odd23));
}
HEADWISE_INLINE void pin(Vec& v) { __asm__("" : "+w"(v.v)); }
HEADWISE_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace
}  // namespace headwise::HEADWISE_ISA
