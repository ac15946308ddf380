// The soft cap of scores. Only for *.isa.cpp files.
#pragma once

#include "kernels/exp.h"

namespace headwise::HEADWISE_ISA {
namespace {

// s[i] = cap * tanh(s[i] / cap), cap > 0: relative error at most 4 units of 2^-24, NaN stays NaN.
// Below 5/8 of the cap: s + s x^2 P(x^2) with x = s / cap, where P is minimax with error 0.15 units of the result; so a score
// far below its cap is not touched at all, and no rounding of x reaches it. Above: cap (1 - e) / (1 + e), e = exp(-2|x|).
template <int kVecs>
HEADWISE_INLINE void soft_cap(Vec (&s)[kVecs], float cap) {
    const Vec limit = set1(cap);
    Vec size[kVecs], near[kVecs], e[kVecs];
    const auto each_vec = [&](auto step) __attribute__((always_inline)) { unroll<kVecs>(step); };
    each_vec([&](auto i) __attribute__((always_inline)) {
        const Vec x = div(s[i], limit), square = mul(x, x);
        size[i] = max(x, sub(zero(), x));
        Vec p = fma(set1(-0x1.75e1cep-8f), square, set1(0x1.52269cp-6f));
        p = fma(p, square, set1(-0x1.b83c5ap-5f));
        p = fma(p, square, set1(0x1.110726p-3f));
        p = fma(p, square, set1(-0x1.555532p-2f));
        near[i] = fma(mul(s[i], square), p, s[i]);
        e[i] = mul(set1(-2.0f), size[i]);
    });
    exp_of_nonpositive(e);
    each_vec([&](auto i) __attribute__((always_inline)) {
        const Vec far = div(mul(limit, sub(set1(1.0f), e[i])), add(set1(1.0f), e[i]));
        const Vec signed_far = select(less(s[i], zero()), sub(zero(), far), far);
        s[i] = select(less(size[i], set1(0.625f)), near[i], signed_far);
    });
}

}  // namespace
}  // namespace headwise::HEADWISE_ISA
