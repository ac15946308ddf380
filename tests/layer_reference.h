// The whole block in f64, loop by loop, with every part that MhaConfig knows. Slow, and shares nothing with the library
// but the visibility rules of reference.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <headwise/mha.h>

#include "mha_reference.h"

namespace headwise::test {

inline double entry(const ConstTensorView& view, std::int64_t i) {
    return load_f64(view.data, view.dtype, i * view.stride(view.rank - 1));
}

// x W^T + b of rows [first, first + count) of a weight.
inline DenseRows project_part(const DenseRows& x, const ConstTensorView& weight, std::int64_t first,
                              std::int64_t count, const ConstTensorView& bias = {}) {
    const ConstTensorView rows(x.values.data(), DType::f64, {x.batch, x.tokens, x.width});
    return project(rows, weight.slice(0, first, count), bias, false);
}

inline DenseRows dense(const ConstTensorView& x) {
    DenseRows rows{x.size(0), x.size(1), x.size(2), {}};
    for (std::int64_t b = 0; b < rows.batch; ++b)
        for (std::int64_t t = 0; t < rows.tokens; ++t)
            for (std::int64_t i = 0; i < rows.width; ++i)
                rows.values.push_back(
                    load_f64(x.data, x.dtype, b * x.stride(0) + t * x.stride(1) + i * x.stride(2)));
    return rows;
}

// Columns [first, first + width) of every token, in groups of `dim` where statistics are over a head.
inline void norm_rows(DenseRows& rows, std::int64_t first, std::int64_t width, std::int64_t dim,
                      const HeadNorm& rule, const ConstTensorView& weight, const ConstTensorView& bias = {}) {
    const std::int64_t extent = rule.extent == HeadNorm::Extent::head ? dim : width;
    const auto value = [&](const ConstTensorView& view, std::int64_t i) {
        return view.rank == 2
                   ? load_f64(view.data, view.dtype, i / dim * view.stride(0) + i % dim * view.stride(1))
                   : entry(view, i % view.size(0));
    };
    for (std::int64_t b = 0; b < rows.batch; ++b)
        for (std::int64_t t = 0; t < rows.tokens; ++t)
            for (std::int64_t start = 0; start < width; start += extent) {
                double mean = 0, square = 0;
                for (std::int64_t i = 0; i < extent; ++i) mean += rows.at(b, t, first + start + i);
                mean = rule.kind == HeadNorm::Kind::layer_norm ? mean / static_cast<double>(extent) : 0;
                for (std::int64_t i = 0; i < extent; ++i)
                    square += std::pow(rows.at(b, t, first + start + i) - mean, 2);
                const double size = std::sqrt(square / static_cast<double>(extent) + rule.eps);
                for (std::int64_t i = 0; i < extent; ++i) {
                    double& x = rows.at(b, t, first + start + i);
                    x = (x - mean) / size;
                    if (rule.weight == HeadNorm::Weight::w) x *= value(weight, start + i);
                    if (rule.weight == HeadNorm::Weight::one_plus_w) x *= 1 + value(weight, start + i);
                    if (!bias.empty()) x += value(bias, start + i);
                }
            }
}

// Every head of `dim` columns from `first` on; rope.offset counts inside the head. Theta alone: no scaling.
inline void rotate_rows(DenseRows& rows, std::int64_t first, std::int64_t count, std::int64_t dim,
                        const Rope& rope, const std::vector<std::int64_t>& positions) {
    const std::int64_t width = rope.width > 0 ? rope.width : dim - rope.offset, half = width / 2;
    for (std::int64_t b = 0; b < rows.batch; ++b)
        for (std::int64_t t = 0; t < rows.tokens; ++t)
            for (std::int64_t h = 0; h < count; ++h)
                for (std::int64_t i = 0; i < half; ++i) {
                    const std::int64_t start = first + h * dim + rope.offset;
                    const bool split = rope.pairs == Rope::Pairs::half_split;
                    double& x = rows.at(b, t, start + (split ? i : 2 * i));
                    double& y = rows.at(b, t, start + (split ? i + half : 2 * i + 1));
                    const double angle =
                        static_cast<double>(positions[static_cast<std::size_t>(b * rows.tokens + t)]) *
                        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(width)) *
                        (rope.inverse ? -1 : 1);
                    const double a = x * std::cos(angle) - y * std::sin(angle);
                    y = y * std::cos(angle) + x * std::sin(angle);
                    x = a;
                }
}

inline std::int64_t t5_bucket(const RelativeBias& rule, std::int64_t d) {
    std::int64_t nb = rule.buckets, start = 0, n = std::max<std::int64_t>(-d, 0);
    if (rule.bidirectional) nb /= 2, start = d > 0 ? nb : 0, n = d < 0 ? -d : d;
    const std::int64_t half = nb / 2;
    if (n < half) return start + n;
    // The largest j with (n / half)^(nb - half) >= (m / half)^j, in logarithms with room for their rounding.
    const double ratio = std::log(static_cast<double>(n) / static_cast<double>(half)) /
                         std::log(static_cast<double>(rule.max_distance) / static_cast<double>(half));
    std::int64_t j = 0;
    while (half + j < nb - 1 && ratio * static_cast<double>(nb - half) >= static_cast<double>(j + 1) - 1e-9) ++j;
    return start + half + j;
}

class LayerReference {
public:
    LayerReference(const MhaConfig& config, const MhaWeights& given) : c(resolve(config)), w(given) {}

    // What the queries of one call see. Positions count from 0 where none are given; with a cache in the library, the
    // reference takes all tokens at once instead.
    DenseRows run(const ConstTensorView& x, const ForwardOptions& options = {}) {
        const DenseRows from = dense(x);
        const ConstTensorView key = options.key.empty() ? x : options.key;
        const ConstTensorView value = options.value.empty() ? key : options.value;
        positions.clear();
        for (std::int64_t b = 0; b < from.batch; ++b)
            for (std::int64_t t = 0; t < from.tokens; ++t) positions.push_back(rope_position(options, b, t));
        make_heads(from, dense(key), dense(value));
        DenseRows heads = attend(options);
        apply_gate(from, heads);
        if (c.routing) return experts_back(heads);
        if (c.difference) heads = difference(heads);
        if (c.merged_norm) {
            norm_rows(heads, 0, heads.width, c.value_dim, c.merged_norm->norm, w.merged_norm);
            for (double& each : heads.values) each *= c.merged_norm->factor;
        }
        return project_part(heads, w.o, 0, c.out_dim, w.o_bias);
    }

    // softmax weights of the last run, [B,H,T,S'] with the extra key and the zero key last
    std::vector<double> attention;

private:
    std::int64_t rope_position(const ForwardOptions& options, std::int64_t b, std::int64_t t) const {
        const ConstTensorView& given = options.rope_positions;
        if (given.empty()) return t;
        return load_i64(given.data, given.dtype,
                        given.rank == 2 ? b * given.stride(0) + t * given.stride(1) : t * given.stride(0));
    }

    void make_heads(const DenseRows& x, const DenseRows& key, const DenseRows& value) {
        if (c.latent) return make_latent_heads(x);
        q = c.routing ? expert_queries(x) : project_part(x, w.q, 0, c.heads * c.head_dim, w.q_bias);
        k = project_part(key, w.k, 0, c.kv_heads * c.head_dim, w.k_bias);
        v = project_part(value, w.v, 0, c.kv_heads * c.value_dim, w.v_bias);
        if (c.clip_qkv > 0)
            for (DenseRows* rows : {&q, &k, &v})
                for (double& each : rows->values) each = std::clamp(each, -c.clip_qkv, c.clip_qkv);
        const auto norm = [&] {
            norm_rows(q, 0, q.width, c.head_dim, *c.qk_norm, w.q_norm, w.q_norm_bias);
            norm_rows(k, 0, k.width, c.head_dim, *c.qk_norm, w.k_norm, w.k_norm_bias);
        };
        if (c.qk_norm && !c.qk_norm->after_rope) norm();
        if (c.rope) {
            rotate_rows(q, 0, c.heads, c.head_dim, *c.rope, positions);
            rotate_rows(k, 0, c.kv_heads, c.head_dim, *c.rope, positions);
        }
        if (c.qk_norm && c.qk_norm->after_rope) norm();
    }

    void make_latent_heads(const DenseRows& x) {
        const Latent& latent = *c.latent;
        const HeadNorm rule{.eps = latent.eps};
        DenseRows low = x;
        if (latent.q_rank > 0) {
            low = project_part(x, w.q_down, 0, latent.q_rank, w.q_down_bias);
            norm_rows(low, 0, latent.q_rank, latent.q_rank, rule, w.q_down_norm);
        }
        q = project_part(low, w.q, 0, c.heads * c.head_dim, w.q_bias);
        DenseRows down = project_part(x, w.kv_down, 0, latent.kv_rank + latent.rope_dim, w.kv_down_bias);
        norm_rows(down, 0, latent.kv_rank, latent.kv_rank, rule, w.kv_down_norm);
        if (c.rope) {
            rotate_rows(q, 0, c.heads, c.head_dim, *c.rope, positions);
            Rope shared = *c.rope;
            shared.offset = 0;
            rotate_rows(down, latent.kv_rank, 1, latent.rope_dim, shared, positions);
        }
        const std::int64_t nope = c.head_dim - latent.rope_dim;
        k = DenseRows{x.batch, x.tokens, c.heads * c.head_dim, std::vector<double>(q.values.size())};
        v = DenseRows{x.batch, x.tokens, c.heads * c.value_dim, {}};
        v.values.resize(static_cast<std::size_t>(x.batch * x.tokens * v.width));
        for (std::int64_t b = 0; b < x.batch; ++b)
            for (std::int64_t t = 0; t < x.tokens; ++t)
                for (std::int64_t h = 0; h < c.heads; ++h) {
                    for (std::int64_t i = 0; i < nope + c.value_dim; ++i) {
                        double sum = 0;
                        for (std::int64_t r = 0; r < latent.kv_rank; ++r)
                            sum += down.at(b, t, r) * load_f64(w.kv_up.data, w.kv_up.dtype,
                                                               (h * (nope + c.value_dim) + i) * w.kv_up.stride(0) +
                                                                   r * w.kv_up.stride(1));
                        if (i < nope) k.at(b, t, h * c.head_dim + i) = sum;
                        if (i >= nope) v.at(b, t, h * c.value_dim + i - nope) = sum;
                    }
                    for (std::int64_t i = 0; i < latent.rope_dim; ++i)
                        k.at(b, t, h * c.head_dim + nope + i) = down.at(b, t, latent.kv_rank + i);
                }
    }

    ConstTensorView expert(const ConstTensorView& all, std::int64_t e) const {
        const auto* data = static_cast<const float*>(all.data) + e * all.stride(0);
        return ConstTensorView(data, DType::f32, {all.size(1), all.size(2)}, {all.stride(1), all.stride(2)});
    }

    DenseRows expert_queries(const DenseRows& x) {
        const std::int64_t K = c.routing->top_k;
        const DenseRows logits = project_part(x, w.router, 0, c.routing->experts);
        DenseRows made{x.batch, x.tokens, c.heads * c.head_dim, {}};
        made.values.resize(static_cast<std::size_t>(x.batch * x.tokens * made.width));
        chosen.clear(), gates.clear();
        for (std::int64_t n = 0; n < x.batch * x.tokens; ++n) {
            std::vector<std::int64_t> order(static_cast<std::size_t>(c.routing->experts));
            std::iota(order.begin(), order.end(), 0);
            const auto logit = [&](std::int64_t e) {
                return logits.values[static_cast<std::size_t>(n * c.routing->experts + e)];
            };
            std::stable_sort(order.begin(), order.end(),
                             [&](std::int64_t a, std::int64_t b) { return logit(a) > logit(b); });
            double sum = 0;
            for (std::int64_t j = 0; j < K; ++j)
                sum += std::exp(logit(order[static_cast<std::size_t>(j)]) - logit(order[0]));
            for (std::int64_t j = 0; j < K; ++j) {
                const std::int64_t e = order[static_cast<std::size_t>(j)];
                chosen.push_back(e), gates.push_back(std::exp(logit(e) - logit(order[0])) / sum);
                const DenseRows one{
                    1, 1, x.width, {x.values.begin() + n * x.width, x.values.begin() + (n + 1) * x.width}};
                DenseRows head = project_part(one, expert(w.expert_q, e), 0, c.kv_heads * c.head_dim);
                for (std::int64_t g = 0; g < c.kv_heads; ++g)
                    for (std::int64_t d = 0; d < c.head_dim; ++d)
                        made.values[static_cast<std::size_t>(n * made.width + (g * K + j) * c.head_dim + d)] =
                            head.at(0, 0, g * c.head_dim + d);
            }
        }
        return made;
    }

    DenseRows experts_back(const DenseRows& heads) {
        const std::int64_t K = c.routing->top_k;
        DenseRows y{heads.batch, heads.tokens, c.out_dim, {}};
        for (std::int64_t n = 0; n < heads.batch * heads.tokens; ++n)
            for (std::int64_t o = 0; o < c.out_dim; ++o) {
                double sum = w.o_bias.empty() ? 0 : entry(w.o_bias, o);
                for (std::int64_t j = 0; j < K; ++j) {
                    const ConstTensorView weight = expert(w.expert_o, chosen[static_cast<std::size_t>(n * K + j)]);
                    double part = 0;
                    for (std::int64_t g = 0; g < c.kv_heads; ++g)
                        for (std::int64_t d = 0; d < c.value_dim; ++d)
                            part += heads.values[static_cast<std::size_t>(n * heads.width +
                                                                          (g * K + j) * c.value_dim + d)] *
                                    load_f64(weight.data, weight.dtype,
                                             o * weight.stride(0) + (g * c.value_dim + d) * weight.stride(1));
                    sum += gates[static_cast<std::size_t>(n * K + j)] * part;
                }
                y.values.push_back(sum);
            }
        return y;
    }

    DenseRows attend(const ForwardOptions& options);
    void apply_gate(const DenseRows& x, DenseRows& heads);

    DenseRows difference(DenseRows& heads) const {
        DenseRows made{heads.batch, heads.tokens, heads.width / 2, {}};
        for (std::int64_t b = 0; b < heads.batch; ++b)
            for (std::int64_t t = 0; t < heads.tokens; ++t)
                for (std::int64_t i = 0; i < made.width; ++i)
                    made.values.push_back(heads.at(b, t, i) -
                                          c.difference->lambda * heads.at(b, t, made.width + i));
        return made;
    }

    MhaConfig c;
    MhaWeights w;
    DenseRows q, k, v;
    std::vector<std::int64_t> positions, chosen;
    std::vector<double> gates;
};

// Scores, softmax and weighted values of every row; keys beside those of the tensors come last.
inline DenseRows LayerReference::attend(const ForwardOptions& options) {
    const std::int64_t B = q.batch, T = q.tokens, S = k.tokens, H = c.heads, G = c.kv_heads, D = c.head_dim;
    AttendInputs in{.q = q.heads(H),
                    .k = k.heads(G),
                    .v = v.heads(G),
                    .mask = c.mask & options.mask,
                    .positions = options.positions};
    const double scale = c.scale.value_or(1 / std::sqrt(static_cast<double>(D)));
    DenseRows out{B, T, H * c.value_dim, std::vector<double>(static_cast<std::size_t>(B * T * H * c.value_dim))};
    const bool extra = !w.extra_key.empty();
    const std::int64_t keys = S + (extra ? 1 : 0) + (c.zero_key ? 1 : 0);
    attention.assign(static_cast<std::size_t>(B * H * T * keys), 0.0);
    for (std::int64_t b = 0; b < B; ++b)
        for (std::int64_t h = 0; h < H; ++h)
            for (std::int64_t i = 0; i < T; ++i) {
                const std::int64_t g = h / (H / G);
                std::int64_t p = i + S - T;
                if (options.positions.align == Positions::Align::top_left) p = i;
                if (options.positions.align == Positions::Align::per_sequence)
                    p = i + load_i64(options.positions.offsets.data, options.positions.offsets.dtype,
                                     b * options.positions.offsets.stride(0));
                double tau = 1;
                if (c.temperature)
                    tau += c.temperature->scale *
                           std::log(1 + std::floor(static_cast<double>(p + 1) / c.temperature->floor_scale));
                const auto cap = [&](double s) {
                    return c.softcap > 0 ? c.softcap * std::tanh(s / c.softcap) : s;
                };
                std::vector<double> s(static_cast<std::size_t>(keys), -std::numeric_limits<double>::infinity());
                for (std::int64_t t = 0; t < S; ++t) {
                    if (!visible(in, b, h, i, t)) continue;
                    double dot = 0;
                    for (std::int64_t d = 0; d < D; ++d) dot += q.at(b, i, h * D + d) * k.at(b, t, g * D + d);
                    double& score = s[static_cast<std::size_t>(t)];
                    score = cap(scale * tau * dot);
                    if (!in.mask.bias.empty())
                        score += load_f64(in.mask.bias.data, in.mask.bias.dtype,
                                          broadcast_index(in.mask.bias, {b, h, i, t}));
                    if (!w.alibi_slopes.empty()) score += entry(w.alibi_slopes, h) * static_cast<double>(t - p);
                    if (c.relative_bias) {
                        const std::int64_t bucket = t5_bucket(*c.relative_bias, t - p);
                        score += load_f64(w.relative_bias.data, w.relative_bias.dtype,
                                          bucket * w.relative_bias.stride(0) + h * w.relative_bias.stride(1));
                    }
                }
                if (extra) {
                    double dot = 0;
                    for (std::int64_t d = 0; d < D; ++d)
                        dot += q.at(b, i, h * D + d) * entry(w.extra_key, g * D + d);
                    s[static_cast<std::size_t>(S)] = cap(scale * tau * dot);
                }
                if (c.zero_key) s.back() = 0;
                double largest = *std::max_element(s.begin(), s.end());
                if (!w.sinks.empty()) largest = std::max(largest, entry(w.sinks, h));
                if (largest == -std::numeric_limits<double>::infinity()) continue;
                double sum = w.sinks.empty() ? 0 : std::exp(entry(w.sinks, h) - largest);
                for (const double each : s) sum += std::exp(each - largest);
                for (std::int64_t t = 0; t < keys; ++t) {
                    const double p_t = std::exp(s[static_cast<std::size_t>(t)] - largest) / sum;
                    attention[static_cast<std::size_t>(((b * H + h) * T + i) * keys + t)] = p_t;
                    if (p_t == 0) continue;
                    for (std::int64_t d = 0; d < c.value_dim; ++d) {
                        double value = 0;
                        if (t < S) value = v.at(b, t, g * c.value_dim + d);
                        if (t == S && extra) value = entry(w.extra_value, g * c.value_dim + d);
                        out.at(b, i, h * c.value_dim + d) += p_t * value;
                    }
                }
            }
    return out;
}

inline void LayerReference::apply_gate(const DenseRows& x, DenseRows& heads) {
    if (c.gate == Gate::none) return;
    DenseRows logits = project_part(x, w.gate, 0, w.gate.size(0), w.gate_bias);
    for (std::int64_t b = 0; b < heads.batch; ++b)
        for (std::int64_t t = 0; t < heads.tokens; ++t)
            for (std::int64_t i = 0; i < heads.width; ++i)
                heads.at(b, t, i) /= 1 + std::exp(-logits.at(b, t, c.gate == Gate::head ? i / c.value_dim : i));
}

}  // namespace headwise::test
