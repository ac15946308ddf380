// The reference that every attention result is judged by: DESIGN section 4 loop by loop, and the error bound of
// section 5 for every element. Nothing here is fast or shared with the library. Real is double, or long double where
// f64 results are judged.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <headwise/attend.h>

#include "core/check.h"
#include "core/dtype.h"

namespace headwise::test {

inline std::int64_t index4(const ConstTensorView& x, std::int64_t a, std::int64_t b, std::int64_t c,
                           std::int64_t d) {
    return a * x.stride(0) + b * x.stride(1) + c * x.stride(2) + d * x.stride(3);
}

// Element (b,h,i,t) of a tensor that is right-aligned to [B,H,T,S]; size-1 axes broadcast.
inline std::int64_t broadcast_index(const ConstTensorView& x, const std::int64_t (&at)[4]) {
    std::int64_t index = 0;
    for (int axis = 0; axis < x.rank; ++axis) {
        if (x.size(axis) != 1) index += at[4 - x.rank + axis] * x.stride(axis);
    }
    return index;
}

// Is key t of (b,h) visible to query row i?
inline bool visible(const AttendInputs& in, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t t) {
    const Mask& mask = in.mask;
    std::int64_t offset = 0;
    if (in.positions.align == Positions::Align::bottom_right) offset = in.k.size(1) - in.q.size(1);
    if (in.positions.align == Positions::Align::per_sequence) {
        offset =
            load_i64(in.positions.offsets.data, in.positions.offsets.dtype, b * in.positions.offsets.stride(0));
    }
    const std::int64_t p = i + offset;
    if (mask.causal && t > p) return false;
    if (mask.window_left >= 0 && t < p - mask.window_left) return false;
    if (mask.window_right >= 0 && t > p + mask.window_right) return false;
    const ConstTensorView& lengths = mask.key_lengths;
    if (!lengths.empty() && t >= load_i64(lengths.data, lengths.dtype, b * lengths.stride(0))) return false;
    if (!mask.keep.empty()) {
        if (static_cast<const std::uint8_t*>(mask.keep.data)[broadcast_index(mask.keep, {b, h, i, t})] == 0)
            return false;
    }
    if (!mask.bias.empty()) {
        const double added = load_f64(mask.bias.data, mask.bias.dtype, broadcast_index(mask.bias, {b, h, i, t}));
        if (added == -std::numeric_limits<double>::infinity()) return false;
    }
    return true;
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

template <class Real>
struct Row {
    std::vector<Real> s, size;  // score of each key; its share of M: |scale| sum |q k| + |s|
    std::vector<bool> seen;
    Real max = -std::numeric_limits<Real>::infinity(), sum = 0, M = 0;
    std::int64_t count = 0;
};

// Scores, their maximum, the sum of exp(s - max) and M of one query row.
template <class Real>
Row<Real> reference_row(const AttendInputs& in, std::int64_t b, std::int64_t h, std::int64_t i,
                        const Judge& judge) {
    const std::int64_t S = in.k.size(1), D = in.q.size(3), g = h / (in.q.size(2) / in.k.size(2));
    const Real scale = in.scale ? static_cast<Real>(*in.scale) : 1 / std::sqrt(static_cast<Real>(D));
    const auto n = static_cast<std::size_t>(S);
    Row<Real> row{std::vector<Real>(n), std::vector<Real>(n), std::vector<bool>(n)};
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
        row.size[t] = std::abs(scale) * absolute + std::abs(row.s[t]);
        if (!in.mask.bias.empty()) {
            const ConstTensorView& bias = in.mask.bias;
            row.s[t] += static_cast<Real>(load_f64(bias.data, bias.dtype, broadcast_index(bias, {b, h, i, key})));
            if (!judge.score_without_bias) row.size[t] = std::abs(scale) * absolute + std::abs(row.s[t]);
        }
        row.max = row.s[t] > row.max ? row.s[t] : row.max;
        ++row.count;
    }
    for (std::size_t t = 0; t < n; ++t) {
        if (!row.seen[t]) continue;
        const Real p = std::exp(row.s[t] - row.max);  // relative to the largest weight, which is 1
        row.sum += p;
        if (p > Real(1e-12)) row.M = std::max(row.M, row.size[t] + std::abs(row.s[t] - row.max));
    }
    return row;
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
                if (row.count == 0) {  // out stays 0
                    result.lse[at] = -std::numeric_limits<Real>::infinity();
                    ++result.empty_rows;
                    continue;
                }
                const std::int64_t g = h / (H / in.k.size(2));
                const Real length_term = u * (std::sqrt(static_cast<Real>(row.count)) + 8);
                const Real score_term = 2 * u * (std::sqrt(static_cast<Real>(D)) / 4 + 2) * row.M;
                result.lse[at] = row.max + std::log(row.sum);
                result.lse_bound[at] = length_term * (1 + std::abs(result.lse[at])) + score_term;
                for (std::int64_t c = 0; c < Dv; ++c) {
                    Real out = 0, size = 0;
                    for (std::size_t t = 0; t < row.s.size(); ++t) {
                        if (!row.seen[t]) continue;
                        const Real p = std::exp(row.s[t] - row.max) / row.sum;
                        const auto key = static_cast<std::int64_t>(t);
                        const Real v = load_f64(in.v.data, in.v.dtype, index4(in.v, b, key, g, c));
                        out += p * v, size += p * std::abs(v);
                    }
                    const auto to = static_cast<std::size_t>(((b * T + i) * H + h) * Dv + c);
                    result.out[to] = out;
                    result.out_bound[to] = (length_term + score_term) * size + ut * std::abs(out) +
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
