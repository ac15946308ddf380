// Vec on AVX2 + FMA + F16C: 8 lanes, 16 registers.
#pragma once

#include <immintrin.h>

namespace headwise::HEADWISE_ISA {
namespace {

constexpr int kLanes = 8;
constexpr int kTileRows = 6;  // 6 x 2 accumulators + 2 loads + 1 broadcast = 15 of 16 registers

struct Vec {
    __m256 v;
};
struct Mask {
    __m256i m;  // all ones or all zeros per lane
};

HEADWISE_INLINE Vec zero() { return {_mm256_setzero_ps()}; }
HEADWISE_INLINE Vec set1(float x) { return {_mm256_set1_ps(x)}; }
HEADWISE_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
HEADWISE_INLINE void store(float* p, Vec v) { _mm256_storeu_ps(p, v.v); }

HEADWISE_INLINE Mask first_n(int n) {
    return {_mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))};
}
HEADWISE_INLINE Vec load_n(const float* p, int n) { return {_mm256_maskload_ps(p, first_n(n).m)}; }
// Not vmaskmovps: as a store it is microcode on Zen, 6 to 10 ns against 2 to 4 for these pieces (Zen 3, measured).
HEADWISE_INLINE void store_n(float* p, Vec v, int n) {
    if (n >= kLanes) return store(p, v);
    __m128 part = _mm256_castps256_ps128(v.v);
    if (n & 4) {
        _mm_storeu_ps(p, part);
        part = _mm256_extractf128_ps(v.v, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_castps_si128(part));
        part = _mm_movehl_ps(part, part);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, part);
}

HEADWISE_INLINE Vec widen_bf16(__m128i bits) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}
HEADWISE_INLINE __m128i narrow_bf16(Vec v) {
    const __m256i bits = _mm256_castps_si256(v.v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v.v, v.v, _CMP_UNORD_Q));
    const __m256i half = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}
HEADWISE_INLINE Vec widen_f16(__m128i bits) { return {_mm256_cvtph_ps(bits)}; }
HEADWISE_INLINE __m128i narrow_f16(Vec v) {
    return _mm256_cvtps_ph(v.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// AVX2 has no masked 16-bit access.
HEADWISE_INLINE __m128i load_halves(const uint16_t* p, int n) {
    if (n <= 4) return _mm_cvtsi64_si128(static_cast<int64_t>(load_bytes(p, 2 * n)));
    const auto low = static_cast<int64_t>(load_bytes(p, 8)),
               high = static_cast<int64_t>(load_bytes(p + 4, 2 * n - 8));
    return _mm_set_epi64x(high, low);
}
HEADWISE_INLINE void store_halves(uint16_t* p, __m128i halves, int n) {
    const auto low = static_cast<uint64_t>(_mm_cvtsi128_si64(halves));
    if (n <= 4) return store_bytes(p, low, 2 * n);
    store_bytes(p, low, 8);
    store_bytes(p + 4, static_cast<uint64_t>(_mm_extract_epi64(halves, 1)), 2 * n - 8);
}
HEADWISE_INLINE Vec load_bf16(const uint16_t* p) {
    return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEADWISE_INLINE Vec load_f16(const uint16_t* p) {
    return widen_f16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEADWISE_INLINE Vec load_bf16_n(const uint16_t* p, int n) { return widen_bf16(load_halves(p, n)); }
HEADWISE_INLINE Vec load_f16_n(const uint16_t* p, int n) { return widen_f16(load_halves(p, n)); }
HEADWISE_INLINE void store_bf16(uint16_t* p, Vec v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(v));
}
HEADWISE_INLINE void store_f16(uint16_t* p, Vec v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_f16(v));
}
HEADWISE_INLINE void store_bf16_n(uint16_t* p, Vec v, int n) { store_halves(p, narrow_bf16(v), n); }
HEADWISE_INLINE void store_f16_n(uint16_t* p, Vec v, int n) { store_halves(p, narrow_f16(v), n); }

HEADWISE_INLINE Vec widen_i8(__m128i bytes) { return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))}; }
HEADWISE_INLINE Vec load_i8(const int8_t* p) {
    return widen_i8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
HEADWISE_INLINE Vec load_i8_n(const int8_t* p, int n) {
    return widen_i8(_mm_cvtsi64_si128(static_cast<int64_t>(load_bytes(p, n))));
}
HEADWISE_INLINE void store_i8_n(int8_t* p, Vec v, int n) {
    const __m256i wide = _mm256_cvtps_epi32(v.v);
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    store_bytes(p, static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packs_epi16(halves, halves))), n);
}

HEADWISE_INLINE Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
HEADWISE_INLINE Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
HEADWISE_INLINE Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
HEADWISE_INLINE Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
HEADWISE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
HEADWISE_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }

HEADWISE_INLINE Mask less(Vec a, Vec b) { return {_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))}; }
HEADWISE_INLINE Mask mask_of_bytes(const uint8_t* p, int n) {
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(load_bytes(p, n))));
    return {_mm256_cmpgt_epi32(wide, _mm256_setzero_si256())};
}
HEADWISE_INLINE Mask mask_and(Mask a, Mask b) { return {_mm256_and_si256(a.m, b.m)}; }
HEADWISE_INLINE bool any(Mask mask) { return _mm256_movemask_ps(_mm256_castsi256_ps(mask.m)) != 0; }
HEADWISE_INLINE Vec select(Mask mask, Vec a, Vec b) {
    return {_mm256_blendv_ps(b.v, a.v, _mm256_castsi256_ps(mask.m))};
}

HEADWISE_INLINE Vec round(Vec v) { return {_mm256_round_ps(v.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
HEADWISE_INLINE Vec times_pow2(Vec v, Vec n) {
    const __m256i biased = _mm256_castps_si256(_mm256_add_ps(n.v, _mm256_set1_ps(kExponentMagic)));
    return {_mm256_mul_ps(v.v, _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23)))};
}
HEADWISE_INLINE float sum(Vec v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v.v), _mm256_extractf128_ps(v.v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}
HEADWISE_INLINE float max_lane(Vec v) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(v.v), _mm256_extractf128_ps(v.v, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}
HEADWISE_INLINE Vec twice(Vec v) {
    return {_mm256_permutevar8x32_ps(v.v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3))};
}
HEADWISE_INLINE Vec swap_pairs(Vec v) { return {_mm256_permute_ps(v.v, 0xb1)}; }
HEADWISE_INLINE void transpose(Vec (&r)[kLanes]) {
    __m256 pairs[8], quads[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(r[i].v, r[i + 1].v);
        pairs[i + 1] = _mm256_unpackhi_ps(r[i].v, r[i + 1].v);
    }
    for (int i = 0; i < 8; i += 4) {
        quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
        quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
        quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
        quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
        r[i].v = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
        r[i + 4].v = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
    }
}
HEADWISE_INLINE void pin(Vec& v) { __asm__("" : "+x"(v.v)); }
HEADWISE_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace headwise::HEADWISE_ISA
