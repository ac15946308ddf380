// Heads [B,T,N,D] in rows that hold more than them, for tests of what changes heads in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <headwise/tensor.h>

#include "core/dtype.h"
#include "matrix.h"

namespace headwise {

// The D of the numeric tests of stage 2.
inline const std::vector<std::int64_t>& head_widths() {
    static const std::vector<std::int64_t> widths = {1,  2,  3,  5,  8,   15,  16,  17,  32,  40, 63,
                                                     64, 65, 80, 96, 127, 128, 160, 192, 256, 576};
    return widths;
}

// Every head is followed by a gap of 3 numbers, every token by one of 5, all with the value 7. Reads and writes go
// through f64.
struct HeadRows {
    DType dtype;
    std::int64_t B, T, N, D, head_step, token_step;
    std::vector<std::byte> bytes;

    HeadRows(DType type, std::int64_t batch, std::int64_t tokens, std::int64_t heads, std::int64_t width,
             std::uint64_t seed, double scale = 1)
        : dtype(type), B(batch), T(tokens), N(heads), D(width), head_step(D + 3), token_step(N * head_step + 5) {
        bytes.resize(static_cast<std::size_t>(B * T * token_step) * size_of(dtype));
        for (std::int64_t i = 0; i < B * T * token_step; ++i) store_f64(bytes.data(), dtype, i, 7);
        Numbers numbers(seed);
        for_each([&](std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t i) {
            store_f64(bytes.data(), dtype, place(b, t, n, i), scale * numbers.next());
        });
    }

    std::int64_t place(std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t i) const {
        return (b * T + t) * token_step + n * head_step + i;
    }
    double at(std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t i) const {
        return load_f64(bytes.data(), dtype, place(b, t, n, i));
    }
    TensorView view() { return {bytes.data(), dtype, {B, T, N, D}, {T * token_step, token_step, head_step, 1}}; }
    template <class Visit>
    void for_each(Visit visit) const {
        for (std::int64_t b = 0; b < B; ++b)
            for (std::int64_t t = 0; t < T; ++t)
                for (std::int64_t n = 0; n < N; ++n)
                    for (std::int64_t i = 0; i < D; ++i) visit(b, t, n, i);
    }
    // How many numbers between the heads are no longer 7.
    std::int64_t gaps_changed() const {
        std::int64_t sevens = 0, inside = 0;
        for (std::int64_t i = 0; i < B * T * token_step; ++i) sevens += load_f64(bytes.data(), dtype, i) == 7;
        for_each([&](std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t i) {
            inside += at(b, t, n, i) == 7;
        });
        return B * T * (token_step - N * D) - (sevens - inside);
    }
};

inline double unit_roundoff(DType dtype) {
    return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

}  // namespace headwise
