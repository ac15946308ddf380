// Random weights for any MhaConfig, kept alive beside their views.
#pragma once

#include <cmath>
#include <deque>
#include <random>
#include <utility>

#include <headwise/mha.h>

#include "mha/widths.h"

namespace headwise::test {

struct LayerParts {
    bool biases = true;
    bool norm_bias = false, sinks = false, alibi = false, extra = false;
    unsigned seed = 1;
};

struct Layer {
    MhaConfig config;
    MhaWeights weights;

    explicit Layer(const MhaConfig& given, const LayerParts& parts) : config(resolve(given)), random(parts.seed) {
        const MhaConfig& c = config;
        if (c.latent) make_latent(parts);
        if (c.routing) make_experts();
        if (!c.latent && !c.routing) weights.q = matrix(c.heads * c.head_dim, c.embed_dim);
        if (!c.latent) {
            weights.k = matrix(c.kv_heads * c.head_dim, c.key_embed_dim);
            weights.v = matrix(c.kv_heads * c.value_dim, c.value_embed_dim);
        }
        if (!c.routing) weights.o = matrix(c.out_dim, merged_width(c));
        if (parts.biases) {
            weights.o_bias = vector(c.out_dim);
            if (!c.routing) weights.q_bias = vector(c.heads * c.head_dim);
            if (!c.latent) weights.k_bias = vector(c.kv_heads * c.head_dim);
            if (!c.latent) weights.v_bias = vector(c.kv_heads * c.value_dim);
        }
        make_parts(parts);
    }
    explicit Layer(const MhaConfig& given, bool biases = true, unsigned seed = 1)
        : Layer(given, LayerParts{.biases = biases, .seed = seed}) {}
    Layer(const Layer&) = delete;

    Tensor rows(std::int64_t batch, std::int64_t tokens, std::int64_t width) {
        Tensor x(DType::f32, {batch, tokens, width});
        fill(x, 1.0f);
        return x;
    }

    ConstTensorView matrix(std::int64_t rows_, std::int64_t columns) {
        return add({rows_, columns}, 1 / std::sqrt(static_cast<float>(columns)));
    }
    ConstTensorView vector(std::int64_t length, float size = 0.2f, float middle = 0) {
        return add({length}, size, middle);
    }

private:
    void make_latent(const LayerParts& parts) {
        const MhaConfig& c = config;
        const Latent& latent = *c.latent;
        weights.q = matrix(c.heads * c.head_dim, latent.q_rank > 0 ? latent.q_rank : c.embed_dim);
        if (latent.q_rank > 0) {
            weights.q_down = matrix(latent.q_rank, c.embed_dim);
            weights.q_down_norm = vector(latent.q_rank, 0.2f, 1);
            if (parts.biases) weights.q_down_bias = vector(latent.q_rank);
        }
        weights.kv_down = matrix(latent_width(c), c.embed_dim);
        weights.kv_down_norm = vector(latent.kv_rank, 0.2f, 1);
        if (parts.biases) weights.kv_down_bias = vector(latent_width(c));
        weights.kv_up = matrix(c.heads * (nope_width(c) + c.value_dim), latent.kv_rank);
    }
    void make_experts() {
        const MhaConfig& c = config;
        weights.router = matrix(c.routing->experts, c.embed_dim);
        weights.expert_q = add({c.routing->experts, c.kv_heads * c.head_dim, c.embed_dim}, 0.2f);
        weights.expert_o = add({c.routing->experts, c.out_dim, c.kv_heads * c.value_dim}, 0.2f);
    }
    void make_parts(const LayerParts& parts) {
        const MhaConfig& c = config;
        if (c.qk_norm && c.qk_norm->weight != HeadNorm::Weight::none) {
            const bool row = c.qk_norm->extent == HeadNorm::Extent::row;
            weights.q_norm = vector(row ? c.heads * c.head_dim : c.head_dim, 0.3f, 1);
            weights.k_norm = vector(row ? c.kv_heads * c.head_dim : c.head_dim, 0.3f, 1);
        }
        if (c.qk_norm && parts.norm_bias)
            weights.q_norm_bias = vector(c.head_dim), weights.k_norm_bias = vector(c.head_dim);
        if (parts.sinks) weights.sinks = vector(c.heads, 1.0f);
        if (parts.alibi) weights.alibi_slopes = vector(c.heads);
        if (c.relative_bias) weights.relative_bias = add({c.relative_bias->buckets, c.heads}, 1.0f);
        if (c.gate != Gate::none) {
            weights.gate = matrix(gate_width(c), c.embed_dim);
            if (parts.biases) weights.gate_bias = vector(gate_width(c));
        }
        if (c.merged_norm && c.merged_norm->norm.weight != HeadNorm::Weight::none) {
            const bool row = c.merged_norm->norm.extent == HeadNorm::Extent::row;
            weights.merged_norm = vector(row ? merged_width(c) : c.value_dim, 0.3f, 1);
        }
        if (parts.extra) {
            weights.extra_key = vector(c.kv_heads * c.head_dim, 1.0f);
            weights.extra_value = vector(c.kv_heads * c.value_dim, 1.0f);
        }
    }

    void fill(Tensor& tensor, float size, float middle = 0) {
        std::normal_distribution<float> normal(middle, size);
        for (std::int64_t i = 0; i < tensor.count(); ++i) tensor.data<float>()[i] = normal(random);
    }
    ConstTensorView add(std::initializer_list<std::int64_t> sizes, float size, float middle = 0) {
        Tensor& tensor = tensors.emplace_back(DType::f32, sizes);
        fill(tensor, size, middle);
        return std::as_const(tensor).view();
    }

    std::deque<Tensor> tensors;
    std::mt19937 random;
};

}  // namespace headwise::test
