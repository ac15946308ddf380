// Loops that are unrolled before the optimiser sees them: GCC 12 unrolls a `for` over an array of Vec too late and keeps
// the array in memory. Only for *.isa.cpp files.
#pragma once

#include "kernels/vec.h"

namespace headwise::HEADWISE_ISA {
namespace {

template <int I>
struct Index {
    constexpr operator int() const { return I; }
};
template <int... I>
struct Indices {};
template <int N, int... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I>
struct MakeIndices<0, I...> {
    using Type = Indices<I...>;
};

template <class Body, int... I>
HEADWISE_INLINE void unroll(Indices<I...>, Body& body) {
    (body(Index<I>{}), ...);
}

// body(Index<0>{}), ..., body(Index<N - 1>{}); `body` is a lambda [&](auto i) __attribute__((always_inline)) { ... }.
template <int N, class Body>
HEADWISE_INLINE void unroll(Body body) {
    unroll(typename MakeIndices<N>::Type{}, body);
}

}  // namespace
}  // namespace headwise::HEADWISE_ISA
