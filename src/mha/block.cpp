// Making a layer: weights are packed, small tensors become f32, tables are built.
#include "mha/block.h"

#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "heads/bands.h"
#include "heads/check.h"
#include "kernels/dispatch.h"
#include "mha/widths.h"

namespace headwise {
namespace {

Tensor as_f32(const ConstTensorView& view) { return view.empty() ? Tensor() : convert(view, DType::f32); }

// The logit of a zero key is 0 whatever q is, and its value adds nothing: it is a sink of logit 0. Beside a sink of
// the model, both make one of logit ln(e^s + e^0).
Tensor sinks_of(const MhaConfig& c, const ConstTensorView& given) {
    if (!c.zero_key) return as_f32(given);
    Tensor sinks(DType::f32, {c.heads});
    for (std::int64_t h = 0; h < c.heads; ++h) {
        const double s = given.empty() ? -std::numeric_limits<double>::infinity()
                                       : load_f64(given.data, given.dtype, h * given.stride(0));
        const double largest = s > 0 ? s : 0;
        const double both = largest + std::log(std::exp(s - largest) + std::exp(-largest));
        sinks.data<float>()[h] = static_cast<float>(s == std::numeric_limits<double>::infinity() ? s : both);
    }
    return sinks;
}

// The norm's factor goes into its weight: one rounding instead of another pass over the row.
Normalization make_merged_norm(const MhaConfig& c, const ConstTensorView& given) {
    constexpr const char* kWhere = "MhaWeights: merged_norm";
    HeadNorm rule = c.merged_norm->norm;
    const double factor = c.merged_norm->factor;
    check_norm(rule, given, {}, merged_heads(c), c.value_dim, kWhere);
    if (factor == 1) return Normalization(rule, given, {}, merged_heads(c), c.value_dim, kWhere);
    Tensor weight = given.empty() ? Tensor(DType::f32, {c.value_dim}) : convert(given, DType::f32);
    for (std::int64_t i = 0; i < weight.count(); ++i) {
        double w = weight.data<float>()[i];
        if (rule.weight == HeadNorm::Weight::none) w = 1;
        if (rule.weight == HeadNorm::Weight::one_plus_w) w += 1;
        weight.data<float>()[i] = static_cast<float>(w * factor);
    }
    rule.weight = HeadNorm::Weight::w;
    return Normalization(rule, weight, {}, merged_heads(c), c.value_dim, kWhere);
}

LatentPart make_latent(const MhaConfig& c, const MhaWeights& w, const KernelTable& kernels) {
    LatentPart part;
    const Latent& latent = *c.latent;
    const HeadNorm rule{.eps = latent.eps};
    part.kv_norm.emplace(rule, w.kv_down_norm, ConstTensorView(), 1, latent.kv_rank, "MhaWeights: kv_down_norm");
    if (latent.q_rank > 0) {
        part.q_norm.emplace(rule, w.q_down_norm, ConstTensorView(), 1, latent.q_rank, "MhaWeights: q_down_norm");
        const LinearBand up[] = {{w.q, w.q_bias}};
        part.q_up.emplace(kernels, up, c.dtype);
    }
    const std::int64_t nope = nope_width(c), rows = nope + c.value_dim;
    std::vector<LinearBand> bands;
    for (std::int64_t h = 0; h < c.heads; ++h)
        bands.push_back({w.kv_up.slice(0, h * rows, nope), {}, latent.rope_dim});
    for (std::int64_t h = 0; h < c.heads; ++h)
        bands.push_back({w.kv_up.slice(0, h * rows + nope, c.value_dim), {}});
    part.kv_up.emplace(kernels, bands, c.dtype);
    if (latent.form == Latent::Form::naive) return part;
    for (std::int64_t h = 0; h < c.heads; ++h) {
        const LinearBand transposed[] = {{bands[static_cast<std::size_t>(h)].weight.swap_axes(0, 1), {}}};
        part.absorb.emplace_back(kernels, transposed, c.dtype);
    }
    return part;
}

// [experts, rows, columns] as one packed linear each.
std::vector<PackedLinear> make_experts(const ConstTensorView& weights, const MhaConfig& c,
                                       const KernelTable& kernels) {
    std::vector<PackedLinear> experts;
    for (std::int64_t e = 0; e < weights.size(0); ++e) {
        const ConstTensorView one(static_cast<const std::byte*>(weights.data) +
                                      e * weights.stride(0) * static_cast<std::int64_t>(size_of(weights.dtype)),
                                  weights.dtype, {weights.size(1), weights.size(2)},
                                  {weights.stride(1), weights.stride(2)});
        const LinearBand band[] = {{one, {}}};
        experts.emplace_back(kernels, band, c.dtype);
    }
    return experts;
}

// [G*Dv] -> [H,Dv]: merge() reads values by query head.
Tensor value_of_heads(const MhaConfig& c, const ConstTensorView& given) {
    Tensor values(DType::f32, {c.heads, c.value_dim});
    for (std::int64_t h = 0; h < c.heads; ++h) {
        const std::int64_t g = kv_head(h, c.heads, c.kv_heads);
        for (std::int64_t i = 0; i < c.value_dim; ++i)
            values.data<float>()[h * c.value_dim + i] =
                static_cast<float>(load_f64(given.data, given.dtype, (g * c.value_dim + i) * given.stride(0)));
    }
    return values;
}

struct Wanted {
    Projection* projection;
    LinearBand band;
    std::int64_t source_width;
};

std::vector<Wanted> wanted_projections(Block& block, const MhaWeights& w) {
    const MhaConfig& c = block.config;
    std::vector<Wanted> wanted;
    if (c.routing) {
        wanted.push_back({&block.first, {w.router, {}}, c.embed_dim});
    } else if (c.latent && c.latent->q_rank > 0) {
        wanted.push_back({&block.first, {w.q_down, w.q_down_bias}, c.embed_dim});
    } else {
        wanted.push_back({&block.first, {w.q, w.q_bias}, c.embed_dim});
    }
    if (c.gate != Gate::none) wanted.push_back({&block.gate, {w.gate, w.gate_bias}, c.embed_dim});
    if (c.latent) {
        wanted.push_back({&block.k, {w.kv_down, w.kv_down_bias}, c.embed_dim});
    } else {
        wanted.push_back({&block.k, {w.k, w.k_bias}, c.key_embed_dim});
        wanted.push_back({&block.v, {w.v, w.v_bias}, c.value_embed_dim});
    }
    return wanted;
}

}  // namespace

Block::Block(const MhaConfig& given, const MhaWeights& weights)
    : config(resolve(given)), kernels(&headwise::kernels()) {
    check_weights(config, weights);
    // Projections whose sources have one width share a buffer of panels: self attention then runs all of them in one
    // pass, cross attention k and v in one.
    const std::vector<Wanted> wanted = wanted_projections(*this, weights);
    std::vector<LinearBand> shared;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        shared.push_back(wanted[i].band);
        *wanted[i].projection = {inputs.size(), static_cast<int>(shared.size()) - 1};
        if (i + 1 < wanted.size() && wanted[i + 1].source_width == wanted[i].source_width) continue;
        inputs.emplace_back(*kernels, shared, config.dtype);
        shared.clear();
    }
    if (config.latent) latent = make_latent(config, weights, *kernels);
    if (config.routing) {
        routed.emplace();
        routed->q = make_experts(weights.expert_q, config, *kernels);
        routed->o = make_experts(weights.expert_o, config, *kernels);
        routed->o_bias = as_f32(weights.o_bias);
    } else {
        const LinearBand out[] = {{weights.o, weights.o_bias}};
        output.emplace(*kernels, out, config.dtype);
    }

    make_norms_and_rotations(weights);
    sinks = sinks_of(config, weights.sinks);
    alibi_slopes = as_f32(weights.alibi_slopes);
    if (config.relative_bias)
        distance_table = headwise::distance_table(*config.relative_bias, weights.relative_bias, config.heads);
    if (!weights.extra_key.empty()) {
        extra_key = convert(weights.extra_key.split_axis(0, config.kv_heads, config.head_dim), config.dtype);
        extra_value = value_of_heads(config, weights.extra_value);
    }
}

void Block::make_norms_and_rotations(const MhaWeights& weights) {
    const MhaConfig& c = config;
    if (c.qk_norm) {
        q_norm.emplace(*c.qk_norm, weights.q_norm, weights.q_norm_bias, c.heads, c.head_dim, "MhaWeights: q_norm");
        k_norm.emplace(*c.qk_norm, weights.k_norm, weights.k_norm_bias, c.kv_heads, c.head_dim,
                       "MhaWeights: k_norm");
    }
    if (c.merged_norm) merged_norm.emplace(make_merged_norm(c, weights.merged_norm));
    if (!c.rope) return;
    rotation.emplace(*c.rope, c.head_dim, "MhaConfig");
    if (!c.latent) return;
    Rope shared = *c.rope;
    shared.offset = 0;
    key_rotation.emplace(shared, c.latent->rope_dim, "MhaConfig");
}

std::int64_t Block::weight_bytes() const noexcept {
    std::int64_t bytes = output ? output->bytes() : 0;
    const auto add = [&](const std::vector<PackedLinear>& linears) {
        for (const PackedLinear& linear : linears) bytes += linear.bytes();
    };
    add(inputs);
    if (latent) {
        bytes += latent->kv_up->bytes() + (latent->q_up ? latent->q_up->bytes() : 0);
        add(latent->absorb);
    }
    if (routed) add(routed->q), add(routed->o);
    return bytes;
}

}  // namespace headwise
