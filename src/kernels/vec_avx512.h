// Vec on AVX-512 (F, BW, DQ, VL): 16 lanes, 32 registers, mask registers. Serves `avx512` and `avx512_bf16`; the latter
// keeps these conversions too, because vcvtneps2bf16 flushes denormals to zero.
#pragma once

#include <immintrin.h>

namespace headwise::HEADWISE_ISA {
namespace {

constexpr int kLanes = 16;
constexpr int kTileRows = 8;  // 8 x 2 accumulators hide the latency of two FMA units; broadcasts come from memory

struct Vec {
    __m512 v;
};
struct Mask {
    __mmask16 m;  // bit i for lane i
};

HEADWISE_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
HEADWISE_INLINE Vec set1(float x) { return {_mm512_set1_ps(x)}; }
HEADWISE_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
HEADWISE_INLINE void store(float* p, Vec v) { _mm512_storeu_ps(p, v.v); }

HEADWISE_INLINE Mask first_n(int n) { return {static_cast<__mmask16>((1u << n) - 1u)}; }
HEADWISE_INLINE Vec load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_n(n).m, p)}; }
HEADWISE_INLINE void store_n(float* p, Vec v, int n) { _mm512_mask_storeu_ps(p, first_n(n).m, v.v); }

HEADWISE_INLINE Vec widen_bf16(__m256i bits) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
HEADWISE_INLINE __m256i narrow_bf16(Vec v) {
    const __m512i bits = _mm512_castps_si512(v.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(v.v, v.v, _CMP_UNORD_Q);
    const __m512i kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}
HEADWISE_INLINE Vec widen_f16(__m256i bits) { return {_mm512_cvtph_ps(bits)}; }
HEADWISE_INLINE __m256i narrow_f16(Vec v) {
    return _mm512_cvtps_ph(v.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

HEADWISE_INLINE Vec load_bf16(const uint16_t* p) {
    return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HEADWISE_INLINE Vec load_f16(const uint16_t* p) {
    return widen_f16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HEADWISE_INLINE Vec load_bf16_n(const uint16_t* p, int n) {
    return widen_bf16(_mm256_maskz_loadu_epi16(first_n(n).m, p));
}
HEADWISE_INLINE Vec load_f16_n(const uint16_t* p, int n) {
    return widen_f16(_mm256_maskz_loadu_epi16(first_n(n).m, p));
}
HEADWISE_INLINE void store_bf16(uint16_t* p, Vec v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(v));
}
HEADWISE_INLINE void store_f16(uint16_t* p, Vec v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_f16(v));
}
HEADWISE_INLINE void store_bf16_n(uint16_t* p, Vec v, int n) {
    _mm256_mask_storeu_epi16(p, first_n(n).m, narrow_bf16(v));
}
HEADWISE_INLINE void store_f16_n(uint16_t* p, Vec v, int n) {
    _mm256_mask_storeu_epi16(p, first_n(n).m, narrow_f16(v));
}

HEADWISE_INLINE Vec widen_i8(__m128i bytes) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))}; }
HEADWISE_INLINE Vec load_i8(const int8_t* p) {
    return widen_i8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEADWISE_INLINE Vec load_i8_n(const int8_t* p, int n) { return widen_i8(_mm_maskz_loadu_epi8(first_n(n).m, p)); }
HEADWISE_INLINE void store_i8_n(int8_t* p, Vec v, int n) {
    _mm_mask_storeu_epi8(p, first_n(n).m, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v.v)));
}

HEADWISE_INLINE Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
HEADWISE_INLINE Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
HEADWISE_INLINE Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
HEADWISE_INLINE Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
HEADWISE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
HEADWISE_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }

HEADWISE_INLINE Mask less(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
HEADWISE_INLINE Mask mask_of_bytes(const uint8_t* p, int n) {
    const __m128i bytes = _mm_maskz_loadu_epi8(first_n(n).m, p);
    return {_mm_test_epi8_mask(bytes, bytes)};
}
HEADWISE_INLINE Mask mask_and(Mask a, Mask b) { return {static_cast<__mmask16>(a.m & b.m)}; }
HEADWISE_INLINE bool any(Mask mask) { return mask.m != 0; }
HEADWISE_INLINE Vec select(Mask mask, Vec a, Vec b) { return {_mm512_mask_blend_ps(mask.m, b.v, a.v)}; }

HEADWISE_INLINE Vec round(Vec v) {
    return {_mm512_roundscale_ps(v.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// Not vscalefps: it makes denormals of n = -127, and a mask against them would also drop a NaN of v.
HEADWISE_INLINE Vec times_pow2(Vec v, Vec n) {
    const __m512i biased = _mm512_castps_si512(_mm512_add_ps(n.v, _mm512_set1_ps(kExponentMagic)));
    return {_mm512_mul_ps(v.v, _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23)))};
}

HEADWISE_INLINE __m256 upper_half(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }
HEADWISE_INLINE float sum(Vec v) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v.v), upper_half(v.v));
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}
HEADWISE_INLINE float max_lane(Vec v) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v.v), upper_half(v.v));
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}
// Four 4x4 blocks per register: first inside the blocks of four rows, then the blocks among each other.
HEADWISE_INLINE Vec twice(Vec v) {
    const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return {_mm512_permutexvar_ps(index, v.v)};
}
HEADWISE_INLINE Vec swap_pairs(Vec v) { return {_mm512_permute_ps(v.v, 0xb1)}; }
HEADWISE_INLINE void transpose(Vec (&r)[kLanes]) {
    __m512 pairs[16], quads[16], halves[16];
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_ps(r[i].v, r[i + 1].v);
        pairs[i + 1] = _mm512_unpackhi_ps(r[i].v, r[i + 1].v);
    }
    for (int i = 0; i < 16; i += 4) {
        quads[i] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
        quads[i + 1] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
        quads[i + 2] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
        quads[i + 3] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    // quads[4g + j] holds, in block b, column 4b + j of rows 4g..4g+3.
    for (int j = 0; j < 4; ++j) {
        halves[j] = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0x88);           // blocks 0, 2 of row groups 0, 1
        halves[4 + j] = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0xdd);       // blocks 1, 3
        halves[8 + j] = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0x88);  // the same of row groups 2, 3
        halves[12 + j] = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0xdd);
    }
    for (int j = 0; j < 4; ++j) {
        r[j].v = _mm512_shuffle_f32x4(halves[j], halves[8 + j], 0x88);
        r[4 + j].v = _mm512_shuffle_f32x4(halves[4 + j], halves[12 + j], 0x88);
        r[8 + j].v = _mm512_shuffle_f32x4(halves[j], halves[8 + j], 0xdd);
        r[12 + j].v = _mm512_shuffle_f32x4(halves[4 + j], halves[12 + j], 0xdd);
    }
}
HEADWISE_INLINE void pin(Vec& v) { __asm__("" : "+v"(v.v)); }
HEADWISE_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace headwise::HEADWISE_ISA
