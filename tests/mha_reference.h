// The whole block in f64, for small shapes: projections, rotation, attention (reference.h), W_O; and its error bound for
// f32 arithmetic, which carries absolute values through the block.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <headwise/mha.h>

#include "core/dtype.h"
#include "reference.h"

namespace headwise::test {

// f64 matrix product with bias: rows [n,K] x weight [N,K] -> [n,N]. With `absolute`, of absolute values.
struct DenseRows {
    std::int64_t batch = 0, tokens = 0, width = 0;
    std::vector<double> values;
    double& at(std::int64_t b, std::int64_t t, std::int64_t i) {
        return values[static_cast<std::size_t>((b * tokens + t) * width + i)];
    }
    ConstTensorView heads(std::int64_t count) const {
        return ConstTensorView(values.data(), DType::f64,
                               {batch, tokens, count, width / std::max<std::int64_t>(1, count)});
    }
};

inline DenseRows project(const ConstTensorView& x, const ConstTensorView& weight, const ConstTensorView& bias,
                         bool absolute) {
    DenseRows y{x.size(0), x.size(1), weight.size(0), {}};
    y.values.resize(static_cast<std::size_t>(y.batch * y.tokens * y.width));
    const auto value = [&](double v) { return absolute ? std::abs(v) : v; };
    for (std::int64_t b = 0; b < y.batch; ++b)
        for (std::int64_t t = 0; t < y.tokens; ++t)
            for (std::int64_t n = 0; n < y.width; ++n) {
                double sum = 0;
                for (std::int64_t k = 0; k < weight.size(1); ++k) {
                    const double left =
                        load_f64(x.data, x.dtype, b * x.stride(0) + t * x.stride(1) + k * x.stride(2));
                    const double right =
                        load_f64(weight.data, weight.dtype, n * weight.stride(0) + k * weight.stride(1));
                    sum += value(left) * value(right);
                }
                if (!bias.empty()) sum += value(load_f64(bias.data, bias.dtype, n * bias.stride(0)));
                y.at(b, t, n) = sum;
            }
    return y;
}

// Half-split rotation of heads of width `dim`; with `absolute`, |a| + |b| in both columns.
inline void rotate(DenseRows& rows, std::int64_t dim, double theta, const ConstTensorView& positions,
                   bool absolute) {
    for (std::int64_t b = 0; b < rows.batch; ++b)
        for (std::int64_t t = 0; t < rows.tokens; ++t) {
            std::int64_t position = t;
            if (positions.rank == 2)
                position =
                    load_i64(positions.data, positions.dtype, b * positions.stride(0) + t * positions.stride(1));
            if (positions.rank == 1) position = load_i64(positions.data, positions.dtype, t * positions.stride(0));
            for (std::int64_t start = 0; start < rows.width; start += dim)
                for (std::int64_t i = 0; i < dim / 2; ++i) {
                    double &a = rows.at(b, t, start + i), &c = rows.at(b, t, start + i + dim / 2);
                    const double angle = static_cast<double>(position) *
                                         std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
                    const double x = a, y = c;
                    a = absolute ? x + y : x * std::cos(angle) - y * std::sin(angle);
                    c = absolute ? x + y : y * std::cos(angle) + x * std::sin(angle);
                }
        }
}

struct ExpectedBlock {
    std::vector<double> y, bound;  // [B,T,out_dim]
};

// x, key, value are [B,tokens,width].
inline ExpectedBlock reference_block(const MhaConfig& given, const MhaWeights& w, const ConstTensorView& x,
                                     const ForwardOptions& options = {}) {
    const MhaConfig c = resolve(given);
    const ConstTensorView key = options.key.empty() ? x : options.key;
    const ConstTensorView value = options.value.empty() ? key : options.value;
    DenseRows q = project(x, w.q, w.q_bias, false), k = project(key, w.k, w.k_bias, false);
    DenseRows v = project(value, w.v, w.v_bias, false);
    DenseRows aq = project(x, w.q, w.q_bias, true), ak = project(key, w.k, w.k_bias, true);
    DenseRows av = project(value, w.v, w.v_bias, true);
    if (c.rope) {
        for (DenseRows* rows : {&q, &k}) rotate(*rows, c.head_dim, c.rope->theta, options.rope_positions, false);
        for (DenseRows* rows : {&aq, &ak}) rotate(*rows, c.head_dim, c.rope->theta, options.rope_positions, true);
    }
    AttendInputs in{.q = q.heads(c.heads),
                    .k = k.heads(c.kv_heads),
                    .v = v.heads(c.kv_heads),
                    .mask = c.mask & options.mask,
                    .positions = options.positions,
                    .scale = c.scale};
    const Expected<double> attended = reference<double>(in);
    in.v = av.heads(c.kv_heads);
    const Expected<double> sizes = reference<double>(in);  // sum of p |v| per head

    // M of the block: 2 * the largest |scale| sum |q||k| that a row can meet, from absolute projections.
    const double scale = std::abs(c.scale.value_or(1 / std::sqrt(static_cast<double>(c.head_dim))));
    double M = 0;
    for (std::int64_t b = 0; b < q.batch; ++b)
        for (std::int64_t t = 0; t < q.tokens; ++t)
            for (std::int64_t s = 0; s < k.tokens; ++s)
                for (std::int64_t h = 0; h < c.heads; ++h) {
                    const std::int64_t g = h / (c.heads / c.kv_heads);
                    double dot = 0;
                    for (std::int64_t d = 0; d < c.head_dim; ++d)
                        dot += aq.at(b, t, h * c.head_dim + d) * ak.at(b, s, g * c.head_dim + d);
                    M = std::max(M, 2 * scale * dot);
                }

    const std::int64_t merged = c.heads * c.value_dim;
    const ConstTensorView z(attended.out.data(), DType::f64, {q.batch, q.tokens, merged});
    const ConstTensorView az(sizes.out.data(), DType::f64, {q.batch, q.tokens, merged});
    ExpectedBlock expected{project(z, w.o, w.o_bias, false).values, project(az, w.o, {}, true).values};
    const double E = static_cast<double>(std::max({c.embed_dim, c.key_embed_dim, c.value_embed_dim, merged}));
    const double S = static_cast<double>(k.tokens), u = 0x1p-24;
    for (std::size_t i = 0; i < expected.y.size(); ++i) {
        const auto n = static_cast<std::int64_t>(i) % c.out_dim;
        const double bias =
            w.o_bias.empty() ? 0 : std::abs(load_f64(w.o_bias.data, w.o_bias.dtype, n * w.o_bias.stride(0)));
        expected.bound[i] *= u * (2 * std::sqrt(E) + std::sqrt(S) + 16 + 2 * (std::sqrt(E) / 4 + 2) * M);
        expected.bound[i] += 16 * u * bias + u * std::abs(expected.y[i]);
    }
    return expected;
}

}  // namespace headwise::test
