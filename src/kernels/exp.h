// The exponential of the softmax. Only for *.isa.cpp files.
#pragma once

#include "kernels/unroll.h"
#include "kernels/vec.h"

namespace headwise::HEADWISE_ISA {
namespace {

// x[i] = exp(x[i]) for x[i] <= 0: exactly 1 at 0, exactly 0 below about -88, NaN stays NaN; relative error at most
// (2 + |x|) units of 2^-24, of which |x| comes from rounding x * log2(e).
// exp(x) = 2^n * 2^f with n the integer nearest to x * log2(e); the polynomial has relative error 1.1e-7 on |f| <= 1/2
// and the constant term 1. Degree 4 has 2.8e-6, which is outside the error bound.
// Several vectors take each step together: one alone would wait for its own chain of some 45 cycles.
template <int kVecs>
HEADWISE_INLINE void exp_of_nonpositive(Vec (&x)[kVecs]) {
    Vec n[kVecs], p[kVecs];
    const auto each_vec = [&](auto step) __attribute__((always_inline)) { unroll<kVecs>(step); };
    each_vec([&](auto i) __attribute__((always_inline)) { x[i] = mul(x[i], set1(0x1.715476p0f)); });
    each_vec([&](auto i) __attribute__((always_inline)) { x[i] = max(set1(-127.0f), x[i]); });  // keeps NaN
    each_vec([&](auto i) __attribute__((always_inline)) { n[i] = round(x[i]); });
    each_vec([&](auto i) __attribute__((always_inline)) { x[i] = sub(x[i], n[i]); });
    each_vec([&](auto i) __attribute__((always_inline)) {
        p[i] = fma(set1(0x1.5bba14p-10f), x[i], set1(0x1.3cea88p-7f));
    });
    each_vec([&](auto i) __attribute__((always_inline)) { p[i] = fma(p[i], x[i], set1(0x1.c6b752p-5f)); });
    each_vec([&](auto i) __attribute__((always_inline)) { p[i] = fma(p[i], x[i], set1(0x1.ebf9bcp-3f)); });
    each_vec([&](auto i) __attribute__((always_inline)) { p[i] = fma(p[i], x[i], set1(0x1.62e42ap-1f)); });
    each_vec([&](auto i) __attribute__((always_inline)) { p[i] = fma(p[i], x[i], set1(1.0f)); });
    each_vec([&](auto i) __attribute__((always_inline)) { x[i] = times_pow2(p[i], n[i]); });
}

}  // namespace
}  // namespace headwise::HEADWISE_ISA
