#include "weights/plan_tensors.h"

#include "core/check.h"

namespace headwise {
namespace {

void add_latent(LayerPlan& plan, const std::string& where) {
    const MhaConfig& c = plan.config;
    const Latent& latent = *c.latent;
    const std::int64_t E = c.embed_dim, q_rows = c.heads * c.head_dim;
    const std::int64_t nope = c.head_dim - latent.rope_dim;
    const auto add = [&](const char* name, std::vector<std::int64_t> shape, Tensor LayerWeights::*to) {
        plan.tensors.push_back({.name = name, .shape = std::move(shape), .to = to});
    };
    if (latent.q_rank > 0) {
        add("q_a_proj.weight", {latent.q_rank, E}, &LayerWeights::q_down);
        if (plan.q_bias) add("q_a_proj.bias", {latent.q_rank}, &LayerWeights::q_down_bias);
        add("q_a_layernorm.weight", {latent.q_rank}, &LayerWeights::q_down_norm);
        add("q_b_proj.weight", {q_rows, latent.q_rank}, &LayerWeights::q);
    } else {
        add("q_proj.weight", {q_rows, E}, &LayerWeights::q);
    }
    const std::int64_t down = latent.kv_rank + latent.rope_dim;
    add("kv_a_proj_with_mqa.weight", {down, E}, &LayerWeights::kv_down);
    if (plan.kv_down_bias) add("kv_a_proj_with_mqa.bias", {down}, &LayerWeights::kv_down_bias);
    add("kv_a_layernorm.weight", {latent.kv_rank}, &LayerWeights::kv_down_norm);
    add("kv_b_proj.weight", {checked_rows(where, c.heads, nope + c.value_dim), latent.kv_rank},
        &LayerWeights::kv_up);
    plan.q_bias = plan.k_bias = plan.v_bias = false;
    plan.matrices.push_back(
        {.name = plan.family->names.o, .rows = E, .columns = c.heads * c.value_dim, .bias = plan.o_bias});
}

void add_routed(LayerPlan& plan) {
    const MhaConfig& c = plan.config;
    const std::int64_t E = c.embed_dim, N = c.routing->experts, rows = c.kv_heads * c.head_dim;
    const auto add = [&](const char* name, std::vector<std::int64_t> shape, Tensor LayerWeights::*to) {
        plan.tensors.push_back({.name = name, .shape = std::move(shape), .to = to});
    };
    add("experts.router.layer.weight", {N, E}, &LayerWeights::router);
    add("experts.input_linear.weight", {N, rows, E}, &LayerWeights::expert_q);
    add("experts.output_linear.weight", {N, E, rows}, &LayerWeights::expert_o);
    add("experts.bias", {E}, &LayerWeights::o_bias);
    plan.matrices.push_back({.name = plan.family->names.fused, .rows = 2 * rows, .columns = E});
}

void add_difference(LayerPlan& plan) {
    const auto add = [&](const char* name, Tensor LayerWeights::*to) {
        plan.tensors.push_back({.name = name, .shape = {plan.config.head_dim}, .to = to});
    };
    add("lambda_q1", &LayerWeights::lambda_q1);
    add("lambda_k1", &LayerWeights::lambda_k1);
    add("lambda_q2", &LayerWeights::lambda_q2);
    add("lambda_k2", &LayerWeights::lambda_k2);
}

void add_qk_norm(LayerPlan& plan) {
    const MhaConfig& c = plan.config;
    const QkNorm& row = plan.family->qk_norm;
    if (!c.qk_norm || c.qk_norm->weight == HeadNorm::Weight::none) return;
    const bool whole_row = c.qk_norm->extent == HeadNorm::Extent::row;
    const auto add = [&](std::string_view name, std::int64_t heads, Tensor LayerWeights::*weight,
                         Tensor LayerWeights::*bias) {
        PlannedTensor tensor{.name = text(name, ".weight"), .shape = {c.head_dim}, .to = weight};
        if (whole_row) tensor.shape = {heads * c.head_dim};
        if (row.weight_per_head) tensor.shape = {heads, c.head_dim};
        if (row.tensor_per_head) {
            tensor.name = text(name, ".norms.#.weight");
            tensor.stack = heads;
        }
        plan.tensors.push_back(tensor);
        if (row.bias) plan.tensors.push_back({.name = text(name, ".bias"), .shape = tensor.shape, .to = bias});
    };
    add(row.q, c.heads, &LayerWeights::q_norm, &LayerWeights::q_norm_bias);
    add(row.k, c.kv_heads, &LayerWeights::k_norm, &LayerWeights::k_norm_bias);
}

}  // namespace

void plan_tensors(LayerPlan& plan, const std::string& where) {
    if (plan.config.latent) {
        add_latent(plan, where);
        return;
    }
    if (plan.config.routing) {
        add_routed(plan);
        return;
    }
    const MhaConfig& c = plan.config;
    const Names& names = plan.family->names;
    const std::int64_t E = c.embed_dim, q_rows = c.heads * c.head_dim, kv_rows = c.kv_heads * c.head_dim;
    const std::int64_t merged = plan.layout == Layout::difference_values ? q_rows : c.heads * c.value_dim;
    const bool in_out = plan.layout == Layout::joined_in_out;
    const bool fused = in_out || plan.layout == Layout::joined || plan.layout == Layout::by_kv_head ||
                       plan.layout == Layout::four_blocks_qvk;
    const auto add = [&](std::string_view name, std::int64_t rows, std::int64_t columns, bool bias) {
        plan.matrices.push_back({.name = name, .rows = rows, .columns = columns, .bias = bias, .in_out = in_out});
    };
    if (fused) {
        add(names.fused, q_rows + 2 * kv_rows, E, plan.q_bias);
    } else {
        add(names.q, plan.layout == Layout::query_with_gate ? 2 * q_rows : q_rows, E, plan.q_bias);
        add(names.k, kv_rows, E, plan.k_bias);
        add(names.v, kv_rows, E, plan.v_bias);
    }
    add(names.o, E, merged, plan.o_bias);
    if (plan.difference) add_difference(plan);
    add_qk_norm(plan);
}

}  // namespace headwise
