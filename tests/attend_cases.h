// Attention problems for tests: random operands in any layout, runs on a given table and path, verdicts.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "attend/attend.h"
#include "attend/problem.h"
#include "core/dtype.h"
#include "reference.h"

namespace headwise::test {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

struct Shape {
    std::int64_t B = 1, T = 1, S = 1, H = 1, G = 1, D = 8, Dv = 8;
    DType dtype = DType::f32;

    std::string text() const {
        return headwise::text("B", B, " T", T, " S", S, " H", H, " G", G, " D", D, " Dv", Dv, " ", name_of(dtype));
    }
};

// token-major [B,N,H,D]; head-major [B,H,N,D]; token-major with unused elements after every row, head and token
enum class Layout { bthd, bhtd, gaps };

// Memory and the view of it in the order [B,N,H,D]. All of it starts out as `rest`.
struct Operand {
    Tensor memory;
    TensorView view;

    Operand(std::int64_t B, std::int64_t N, std::int64_t H, std::int64_t D, DType dtype, Layout layout,
            double rest = kNaN) {
        const std::int64_t gap = layout == Layout::gaps ? 1 : 0;
        const std::int64_t row = D + 3 * gap;
        if (layout == Layout::bhtd) {
            memory = Tensor(dtype, {B, H, N, D});
            view = memory.view().swap_axes(1, 2);
        } else {
            memory = Tensor(dtype, {B, N + gap, H + gap, row});
            view = memory.view().slice(1, 0, N).slice(2, 0, H).slice(3, 0, D);
        }
        fill_rest(rest);
    }

    void fill_rest(double value) {
        for (std::int64_t i = 0; i < memory.count(); ++i) store_f64(memory.view().data, memory.dtype(), i, value);
    }

    // value(b, n, h, d) for every element of the view.
    template <class Value>
    void fill(Value value) {
        for (std::int64_t b = 0; b < view.size(0); ++b)
            for (std::int64_t n = 0; n < view.size(1); ++n)
                for (std::int64_t h = 0; h < view.size(2); ++h)
                    for (std::int64_t d = 0; d < view.size(3); ++d) {
                        store_f64(view.data, view.dtype, index4(view, b, n, h, d), value(b, n, h, d));
                    }
    }
    void set(std::int64_t b, std::int64_t n, std::int64_t h, std::int64_t d, double value) {
        store_f64(view.data, view.dtype, index4(view, b, n, h, d), value);
    }
};

// q, k and v of a shape, filled with normal numbers.
struct Operands {
    Shape shape;
    Operand q, k, v;

    explicit Operands(const Shape& s, Layout layout = Layout::bthd, unsigned seed = 1)
        : shape(s),
          q(s.B, s.T, s.H, s.D, s.dtype, layout),
          k(s.B, s.S, s.G, s.D, s.dtype, layout),
          v(s.B, s.S, s.G, s.Dv, s.dtype, layout) {
        std::mt19937 engine(seed);
        std::normal_distribution<double> normal;
        const auto draw = [&](auto...) { return normal(engine); };
        q.fill(draw), k.fill(draw), v.fill(draw);
    }

    AttendInputs inputs() const {
        AttendInputs in;
        in.q = q.view, in.k = k.view, in.v = v.view;
        return in;
    }

    // The structural probe: all visible keys weigh the same, and v spells the key's index in base 8 and its kv head,
    // so that the output tells exactly which keys were seen.
    void make_probe() {
        q.fill([](auto...) { return 0.0; });
        v.fill([](std::int64_t, std::int64_t t, std::int64_t g, std::int64_t c) {
            std::int64_t digits = t;
            for (std::int64_t i = 0; i < c / 8; ++i) digits /= 8;
            return digits % 8 == c % 8 ? static_cast<double>(1 + 16 * g) : 0.0;
        });
    }
};
inline constexpr std::int64_t kProbeColumns = 24;  // three digits: keys below 512

// Lengths, offsets, cu_seqlens.
inline Tensor integers(DType dtype, const std::vector<std::int64_t>& values) {
    Tensor tensor(dtype, {static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (dtype == DType::i32) {
            tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
        } else {
            tensor.data<std::int64_t>()[i] = values[i];
        }
    }
    return tensor;
}

enum class Path { chosen, direct, packed };

inline void run(const KernelTable& table, const AttendInputs& in, const AttendOutputs& out,
                const Execution& execution = {.threads = 1}, Path path = Path::chosen) {
    check_attend(in, out);
    if (path == Path::chosen) return attend(table, in, out, execution);
    const Problem problem(table, in, out);
    path == Path::direct ? attend_direct(problem, execution) : attend_packed(problem, execution);
}

// Everything about how a case is run and judged.
struct How {
    DType out = DType::f32;
    Layout layout = Layout::bthd;
    Path path = Path::chosen;
    Execution execution{.threads = 1};
    bool score_without_bias = false;
};

constexpr double kSentinel = -77.0;

// Out and lse of one run; their memory starts out as the sentinel.
struct Result {
    Operand out;
    Tensor lse;

    Result(const KernelTable& table, const AttendInputs& in, const How& how = {})
        : out(in.q.size(0), in.q.size(1), in.q.size(2), key_shape(in).Dv, how.out, how.layout, kSentinel),
          lse(in.q.dtype == DType::f64 ? DType::f64 : DType::f32, {in.q.size(0), in.q.size(2), in.q.size(1)}) {
        run(table, in, {.out = out.view, .lse = lse.view()}, how.execution, how.path);
    }

    bool gaps_untouched() const {
        Operand rest = Operand(out.view.size(0), out.view.size(1), out.view.size(2), out.view.size(3),
                               out.view.dtype, Layout::gaps, kSentinel);
        if (rest.memory.count() != out.memory.count()) return true;  // there are none
        std::memcpy(rest.memory.view().data, out.memory.view().data,
                    static_cast<std::size_t>(out.memory.count()) * size_of(out.view.dtype));
        rest.fill([](auto...) { return kSentinel; });
        for (std::int64_t i = 0; i < rest.memory.count(); ++i) {
            if (load_f64(rest.memory.view().data, rest.view.dtype, i) != kSentinel) return false;
        }
        return true;
    }
};

// Bytes of out and lse, for comparisons bit by bit.
inline std::string bytes_of(const Result& result) {
    const Tensor dense = convert(result.out.view, result.out.view.dtype);
    return std::string(dense.data<char>(), static_cast<std::size_t>(dense.count()) * size_of(dense.dtype())) +
           std::string(result.lse.data<char>(),
                       static_cast<std::size_t>(result.lse.count()) * size_of(result.lse.dtype()));
}

template <class Real = double>
void expect_matches(const KernelTable& table, const AttendInputs& in, const How& how = {}) {
    const Result result(table, in, how);
    const Expected<Real> expected =
        reference<Real>(in, {.out = how.out, .score_without_bias = how.score_without_bias});
    const Verdict out = judge(ConstTensorView(result.out.view), expected.out, expected.out_bound);
    EXPECT_EQ(out.bad, 0) << "out: " << out.first;
    const Verdict lse = judge(ConstTensorView(result.lse.view()), expected.lse, expected.lse_bound);
    EXPECT_EQ(lse.bad, 0) << "lse: " << lse.first;
    EXPECT_TRUE(result.gaps_untouched());
}

// Both paths, on random numbers and as a structural probe, and the same bits. `shape.Dv` is chosen here.
inline void expect_seen(const KernelTable& table, Shape shape, const Mask& mask, const Positions& positions = {}) {
    shape.Dv = kProbeColumns;
    Operands x(shape);
    for (const bool probe : {false, true}) {
        if (probe) x.make_probe();
        AttendInputs in = x.inputs();
        in.mask = mask, in.positions = positions;
        SCOPED_TRACE(shape.text() + (probe ? " probe" : " random"));
        for (const Path path : {Path::direct, Path::packed}) expect_matches(table, in, {.path = path});
        EXPECT_TRUE(bytes_of(Result(table, in, {.path = Path::direct})) ==
                    bytes_of(Result(table, in, {.path = Path::packed})));
    }
}

}  // namespace headwise::test
