// The reference that every attention result is judged by: DESIGN section 4 loop by loop, and the error bound of
// section 5 for every element. Nothing here is fast or shared with the library. Real is double, or long double where
// f64 results are judged.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <headwise/attend.h>

#include "core/check.h"
#include "core/dtype.h"
#include "reference_mask.h"

namespace headwise::test {

// The four words of Philox4x32-10 for a counter and a key, as its authors define it: ten rounds of two products.
inline std::array<std::uint32_t, 4> philox_words(std::array<std::uint32_t, 4> c,
                                                 std::array<std::uint32_t, 2> key) {
    const auto high = [](std::uint64_t product) { return static_cast<std::uint32_t>(product >> 32); };
    const auto low = [](std::uint64_t product) { return static_cast<std::uint32_t>(product); };
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
        c = {high(p1) ^ c[1] ^ key[0], low(p1), high(p0) ^ c[3] ^ key[1], low(p0)};
        key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
    }
    return c;
}

// Does dropout keep the weight of key t in row i of (b,h)?
inline bool kept(const Dropout& dropout, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t t) {
    const auto word = [](auto n) { return static_cast<std::uint32_t>(n); };
    const auto draw = philox_words({word(b), word(h), word(i), word(t)},
                                   {word(dropout.seed & 0xffffffffu), word(dropout.seed >> 32)});
    return static_cast<double>(draw[0]) >= dropout.probability * 4294967296.0;
}

template <class Real>
struct Expected {
    std::vector<Real> out, out_bound;  // [B,T,H,Dv], dense
    std::vector<Real> lse, lse_bound;  // [B,H,T], dense
    std::int64_t empty_rows = 0;
};

struct Judge {
    DType out = DType::f32;           // the type that the library writes
    bool score_without_bias = false;  // take |s| in the bound before the additive tensor (finite lowest as a mask)
};

// Element of an optional tensor of factors or logits.
template <class Real>
Real element(const ConstTensorView& x, std::int64_t index) {
    return static_cast<Real>(load_f64(x.data, x.dtype, index));
}

// What is added to the score of key t in row i of (b,h): tensor, ALiBi, bias by distance.
template <class Real>
Real added(const AttendInputs& in, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t t) {
    const Pair at = place(in, b, i, t);
    Real sum = 0;
    if (!in.mask.bias.empty()) sum += element<Real>(in.mask.bias, broadcast_index(in.mask.bias, {b, h, i, t}));
    if (const ConstTensorView& slopes = in.alibi_slopes; !slopes.empty()) {
        sum += element<Real>(slopes, h * slopes.stride(0)) * static_cast<Real>(at.t - at.p);
    }
    if (const ConstTensorView& table = in.distance_bias.table; !table.empty()) {
        const std::int64_t column =
            std::clamp<std::int64_t>(at.t - at.p - in.distance_bias.first, 0, table.size(1) - 1);
        sum += element<Real>(table, h * table.stride(0) + column * table.stride(1));
    }
    return sum;
}

template <class Real>
struct Row {
    std::vector<Real> s, size;  // score of each key; its share of M: |scale tau| sum |q k| + |s|
    std::vector<bool> seen;
    Real max = -std::numeric_limits<Real>::infinity(), sum = 0, M = 0;  // max and sum: of the keys and the sink
    Real sink = -std::numeric_limits<Real>::infinity();
    std::int64_t count = 0;
};

// Scores, their maximum, the sum of exp(s - max) and M of one query row.
template <class Real>
Row<Real> reference_row(const AttendInputs& in, std::int64_t b, std::int64_t h, std::int64_t i,
                        const Judge& judge) {
    const std::int64_t S = in.k.size(1), D = in.q.size(3), g = h / (in.q.size(2) / in.k.size(2));
    Real scale = in.scale ? static_cast<Real>(*in.scale) : 1 / std::sqrt(static_cast<Real>(D));
    if (!in.tau.empty()) scale *= element<Real>(in.tau, b * in.tau.stride(0) + i * in.tau.stride(1));
    const auto n = static_cast<std::size_t>(S);
    Row<Real> row{std::vector<Real>(n), std::vector<Real>(n), std::vector<bool>(n)};
    if (!in.sinks.empty()) row.sink = element<Real>(in.sinks, h * in.sinks.stride(0));
    Real best = row.max;  // of the keys alone
    for (std::size_t t = 0; t < n; ++t) {
        const auto key = static_cast<std::int64_t>(t);
        row.seen[t] = visible(in, b, h, i, key);
        if (!row.seen[t]) continue;
        Real dot = 0, absolute = 0;
        for (std::int64_t d = 0; d < D; ++d) {
            const Real q = load_f64(in.q.data, in.q.dtype, index4(in.q, b, i, h, d));
            const Real k = load_f64(in.k.data, in.k.dtype, index4(in.k, b, key, g, d));
            dot += q * k, absolute += std::abs(q * k);
        }
        row.s[t] = scale * dot;
        if (in.softcap > 0) {
            const auto cap = static_cast<Real>(in.softcap);
            row.s[t] = cap * std::tanh(row.s[t] / cap);
        }
        const Real before = row.s[t];
        row.s[t] += added<Real>(in, b, h, i, key);
        row.size[t] = std::abs(scale) * absolute + std::abs(judge.score_without_bias ? before : row.s[t]);
        best = row.s[t] > best ? row.s[t] : best;
        ++row.count;
    }
    row.max = row.sink > best ? row.sink : best;
    if (row.sink != -std::numeric_limits<Real>::infinity()) row.sum = std::exp(row.sink - row.max);
    for (std::size_t t = 0; t < n; ++t) {
        if (!row.seen[t]) continue;
        row.sum += std::exp(row.s[t] - row.max);
        if (std::exp(row.s[t] - best) > Real(1e-12)) {
            row.M = std::max(row.M, row.size[t] + std::abs(row.s[t] - row.max));
        }
    }
    return row;
}

// One output row, gate and dropout included, with its bound: `length_term` and `score_term` times sum of w |v|.
template <class Real>
struct OutRow {
    Real out = 0, size = 0;
};
template <class Real>
OutRow<Real> reference_out(const AttendInputs& in, const Row<Real>& row, const std::int64_t (&at)[4]) {
    const auto [b, h, i, c] = at;
    const std::int64_t g = h / (in.q.size(2) / in.k.size(2));
    OutRow<Real> result;
    for (std::size_t t = 0; t < row.s.size(); ++t) {
        if (!row.seen[t]) continue;
        const auto key = static_cast<std::int64_t>(t);
        Real weight = std::exp(row.s[t] - row.max) / row.sum;
        if (in.dropout.probability > 0) {
            weight *= kept(in.dropout, b, h, i, key) ? 1 / (1 - static_cast<Real>(in.dropout.probability)) : 0;
        }
        const Real v = load_f64(in.v.data, in.v.dtype, index4(in.v, b, key, g, c));
        result.out += weight * v, result.size += weight * std::abs(v);
    }
    if (const ConstTensorView& gate = in.gate; !gate.empty()) {
        const std::int64_t index = b * gate.stride(0) + i * gate.stride(1) + h * gate.stride(2);
        const Real factor = element<Real>(gate, index + (gate.rank == 4 ? c * gate.stride(3) : 0));
        result.out *= factor, result.size *= std::abs(factor);
    }
    return result;
}

template <class Real = double>
Expected<Real> reference(const AttendInputs& in, const Judge& judge = {}) {
    const std::int64_t B = in.q.size(0), T = in.q.size(1), H = in.q.size(2), D = in.q.size(3);
    const std::int64_t Dv = in.v.size(3);
    const bool f64 = in.q.dtype == DType::f64;
    const Real u = f64 ? Real(0x1p-53) : Real(0x1p-24);
    const Real ut = judge.out == DType::bf16 ? Real(0x1p-8) : judge.out == DType::f16 ? Real(0x1p-11) : u;
    Expected<Real> result;
    result.out.resize(static_cast<std::size_t>(B * T * H * Dv));
    result.out_bound = result.out;
    result.lse.resize(static_cast<std::size_t>(B * H * T));
    result.lse_bound = result.lse;
    for (std::int64_t b = 0; b < B; ++b)
        for (std::int64_t h = 0; h < H; ++h)
            for (std::int64_t i = 0; i < T; ++i) {
                const Row<Real> row = reference_row<Real>(in, b, h, i, judge);
                const auto at = static_cast<std::size_t>((b * H + h) * T + i);
                if (row.count == 0) {  // out stays 0, whatever gate and sink are
                    result.lse[at] = row.sink;
                    ++result.empty_rows;
                    continue;
                }
                const Real length_term = u * (std::sqrt(static_cast<Real>(row.count)) + 8);
                const Real score_term = 2 * u * (std::sqrt(static_cast<Real>(D)) / 4 + 2) * row.M;
                result.lse[at] = row.max + std::log(row.sum);
                result.lse_bound[at] = length_term * (1 + std::abs(result.lse[at])) + score_term;
                for (std::int64_t c = 0; c < Dv; ++c) {
                    const OutRow<Real> element = reference_out<Real>(in, row, {b, h, i, c});
                    const auto to = static_cast<std::size_t>(((b * T + i) * H + h) * Dv + c);
                    result.out[to] = element.out;
                    result.out_bound[to] = (length_term + score_term) * element.size + ut * std::abs(element.out) +
                                           (judge.out == DType::f16 ? Real(0x1p-25) : 0);
                }
            }
    return result;
}

struct Verdict {
    std::int64_t bad = 0;    // elements out of bound, or NaN and Inf that sit elsewhere than expected
    double worst_ratio = 0;  // largest err / bound among the finite ones
    std::string first;       // the first bad element, in words; empty if there is none
};

// Elements of `got`, in row-major order of its axes, against `expected`. NaN must meet NaN, Inf the same Inf.
template <class Real>
Verdict judge(const ConstTensorView& got, const std::vector<Real>& expected, const std::vector<Real>& bound) {
    Verdict verdict;
    for (std::size_t n = 0; n < expected.size(); ++n) {
        std::int64_t index = 0, rest = static_cast<std::int64_t>(n);
        for (int axis = got.rank; axis-- > 0; rest /= got.size(axis))
            index += rest % got.size(axis) * got.stride(axis);
        const Real value = load_f64(got.data, got.dtype, index), want = expected[n];
        const Real err = std::abs(value - want);
        bool ok = err <= bound[n];
        if (std::isnan(want)) ok = std::isnan(value);
        if (std::isinf(want)) ok = value == want;
        if (std::isfinite(want) && std::isfinite(value) && bound[n] > 0) {
            verdict.worst_ratio = std::max(verdict.worst_ratio, static_cast<double>(err / bound[n]));
        }
        if (ok) continue;
        if (verdict.bad++ == 0) {
            verdict.first =
                text("element ", n, ": got ", value, ", expected ", want, ", error ", err, ", bound ", bound[n]);
        }
    }
    return verdict;
}

}  // namespace headwise::test
