// The exponential of the softmax. Only for *.isa.cpp files.
#pragma once

#include "kernels/vec.h"

namespace headwise::HEADWISE_ISA {
namespace {

// exp(x) for x <= 0 within 3 units in the last place; exactly 1 at 0, exactly 0 below about -88, NaN stays NaN.
// exp(x) = 2^n * 2^f with n the integer nearest to x * log2(e); the polynomial has relative error 1.1e-7 on |f| <= 1/2
// and the constant term 1. Degree 4 has 2.8e-6, which is outside the error bound.
HEADWISE_INLINE Vec exp_of_nonpositive(Vec x) {
    const Vec y = max(set1(-127.0f), mul(x, set1(0x1.715476p0f)));  // in this order max keeps NaN
    const Vec n = round(y);
    const Vec f = sub(y, n);
    Vec p = fma(set1(0x1.5bba14p-10f), f, set1(0x1.3cea88p-7f));
    p = fma(p, f, set1(0x1.c6b752p-5f));
    p = fma(p, f, set1(0x1.ebf9bcp-3f));
    p = fma(p, f, set1(0x1.62e42ap-1f));
    p = fma(p, f, set1(1.0f));
    return times_pow2(p, n);
}

}  // namespace
}  // namespace headwise::HEADWISE_ISA
