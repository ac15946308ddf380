// The vector vocabulary of the kernels: one type Vec of kLanes floats and about forty operations on it, written once
// per ISA in vec_<isa>.h. These files hold the only intrinsics of the project.
//
// A kernel file (*.isa.cpp) is compiled once per ISA with HEADWISE_ISA=<name>; it includes this header and C headers
// only, and puts everything into namespace headwise::HEADWISE_ISA with helpers in an anonymous namespace inside it, so
// that an ISA object defines no weak symbol that the linker could hand to another ISA's code (tests/tree checks that).
//
// What every ISA provides (all `inline`, in the anonymous namespace of namespace headwise::HEADWISE_ISA):
//   struct Vec; struct Mask;                one register of kLanes floats; kLanes truth values
//   kLanes                                  floats per register
//   kTileRows                               rows of the kTileRows x (2 Vec) register tile of the GEMM-like loops
//   zero() set1(x) load(p) store(p,v)       unaligned is fine
//   load_n(p,n) store_n(p,v,n)              first n lanes, 0 <= n <= kLanes: nothing else is read or written; others 0
//   load_bf16 load_f16 load_bf16_n load_f16_n (const uint16_t*)      exact
//   store_bf16 store_f16 store_bf16_n store_f16_n (uint16_t*, v)     nearest even; NaN stays NaN; denormals kept
//   load_i8 load_i8_n (const int8_t*)       exact
//   store_i8_n (int8_t*, v, n)              of integral values from -128 to 127
//   add sub mul div                         lane by lane
//   fma(a,b,c)                              a*b + c with one rounding where the ISA has it
//   max(a,b)                                a > b ? a : b      (so b where either is NaN)
//   less(a,b) -> Mask; first_n(n) -> Mask   a < b; lanes 0..n-1
//   select(mask,a,b)                        mask ? a : b, any payload kept
//   mask_of_bytes(p,n) -> Mask              lane i: i < n and p[i] != 0; reads n bytes only
//   mask_and(a,b) any(mask)                 any: bool
//   round(v)                                nearest even integer, |v| < 2^22
//   times_pow2(v,n)                         v * 2^n for integral n in [-127, 127]; n = -127 gives 0 for finite v; NaN v
//                                           stays NaN whatever n is
//   sum(v) max_lane(v)                      fixed halving tree; max_lane ignores NaN only as max() does
//   twice(v) swap_pairs(v)                 v0 v0 v1 v1 ... of the first half of v; v1 v0 v3 v2 ...
//   transpose(Vec (&r)[kLanes])             r[i] lane j <-> r[j] lane i
//   pin(v)                                  forbids the compiler to re-load v from memory (register pressure trap)
//   prefetch(p)                             a hint, any address
#pragma once

#include <stdint.h>
#include <string.h>

#define HEADWISE_INLINE inline __attribute__((always_inline))

namespace headwise::HEADWISE_ISA {
namespace {

// The sum n + kExponentMagic ends in the bits of n + 127, whatever a conversion to int would do with a NaN in n.
constexpr float kExponentMagic = 0x1.8p23f + 127.0f;

// Words of which only the first `count` bytes exist, 0 <= count <= 8, for ISAs without masked access: two overlapping
// halves or single pieces instead of a memcpy of variable length, which would be a call.
HEADWISE_INLINE uint64_t load_bytes(const void* p, int count) {
    const char* from = static_cast<const char*>(p);
    if (count >= 4) {
        uint32_t low, high;
        memcpy(&low, from, 4);
        memcpy(&high, from + count - 4, 4);
        return low | static_cast<uint64_t>(high) << (8 * (count - 4));
    }
    uint16_t low = 0;
    uint8_t last = 0;
    if (count & 2) memcpy(&low, from, 2);
    if (count & 1) memcpy(&last, from + count - 1, 1);
    return low | static_cast<uint64_t>(last) << (8 * (count & 2));
}
HEADWISE_INLINE void store_bytes(void* p, uint64_t word, int count) {
    char* to = static_cast<char*>(p);
    if (count >= 4) {
        const auto low = static_cast<uint32_t>(word);
        const auto high = static_cast<uint32_t>(word >> (8 * (count - 4)));
        memcpy(to, &low, 4);
        memcpy(to + count - 4, &high, 4);
        return;
    }
    const auto low = static_cast<uint16_t>(word);
    const auto last = static_cast<uint8_t>(word >> (8 * (count & 2)));
    if (count & 2) memcpy(to, &low, 2);
    if (count & 1) memcpy(to + count - 1, &last, 1);
}

}  // namespace
}  // namespace headwise::HEADWISE_ISA

// HEADWISE_VEC is the name of the header, given by cmake/isa.cmake beside HEADWISE_ISA.
#include HEADWISE_VEC
