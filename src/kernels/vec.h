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
//   add sub mul div                         lane by lane
//   fma(a,b,c)                              a*b + c with one rounding where the ISA has it
//   max(a,b)                                a > b ? a : b      (so b where either is NaN)
//   less(a,b) -> Mask; first_n(n) -> Mask   a < b; lanes 0..n-1
//   select(mask,a,b)                        mask ? a : b, any payload kept
//   mask_of_bytes(p,n) -> Mask              lane i: i < n and p[i] != 0; reads n bytes only
//   mask_and(a,b) any(mask)                 any: bool
//   round(v)                                nearest even integer, |v| < 2^22
//   times_pow2(v,n)                         v * 2^n for integral lanes n in [-127, 127]; n = -127 may give 0
//   sum(v) max_lane(v)                      fixed halving tree; max_lane ignores NaN only as max() does
//   transpose(Vec (&r)[kLanes])             r[i] lane j <-> r[j] lane i
//   pin(v)                                  forbids the compiler to re-load v from memory (register pressure trap)
//   prefetch(p)                             a hint, any address
#pragma once

#include <stdint.h>
#include <string.h>

#define HEADWISE_INLINE inline __attribute__((always_inline))

// HEADWISE_VEC is the name of the header, given by cmake/isa.cmake beside HEADWISE_ISA.
#include HEADWISE_VEC
