// MhaWeights: the shape of every tensor, by the config.
#include "core/check.h"
#include "kernels/storage_of.h"
#include "mha/block.h"
#include "mha/widths.h"

namespace headwise {
namespace {

void check_matrix(const ConstTensorView& weight, const char* name, std::int64_t rows, std::int64_t columns) {
    check(weight.rank == 2 && weight.size(0) == rows && weight.size(1) == columns && has_storage(weight.dtype),
          "MhaWeights: ", name, " is ", weight, ", expected f32, bf16 or f16 [", rows, ", ", columns, "]");
}

void check_cube(const ConstTensorView& weight, const char* name, std::int64_t count, std::int64_t rows,
                std::int64_t columns) {
    check(weight.rank == 3 && weight.size(0) == count && weight.size(1) == rows && weight.size(2) == columns &&
              has_storage(weight.dtype),
          "MhaWeights: ", name, " is ", weight, ", expected f32, bf16 or f16 [", count, ", ", rows, ", ", columns,
          "]");
}

void check_vector(const ConstTensorView& vector, const char* name, std::int64_t length, bool optional) {
    check((optional && vector.empty()) ||
              (vector.rank == 1 && vector.size(0) == length && has_storage(vector.dtype)),
          "MhaWeights: ", name, " is ", vector, ", expected f32, bf16 or f16 [", length, "]",
          optional ? " or nothing" : "");
}

// A tensor that belongs to a part which the config does not have is never ignored.
void check_absent(const ConstTensorView& tensor, const char* name, const char* why) {
    check(tensor.empty(), "MhaWeights: ", name, " is given, but ", why);
}

// Norms check their own weights when they are made.
void check_no_norms(const MhaConfig& c, const MhaWeights& w) {
    if (!c.merged_norm) check_absent(w.merged_norm, "merged_norm", "the config has no merged_norm");
    if (c.qk_norm) return;
    constexpr const char* kWhy = "the config has no qk_norm";
    check_absent(w.q_norm, "q_norm", kWhy), check_absent(w.k_norm, "k_norm", kWhy);
    check_absent(w.q_norm_bias, "q_norm_bias", kWhy), check_absent(w.k_norm_bias, "k_norm_bias", kWhy);
}

void check_latent(const MhaConfig& c, const MhaWeights& w) {
    constexpr const char* kWhy = "the config is not latent";
    if (!c.latent) {
        check_absent(w.q_down, "q_down", kWhy), check_absent(w.q_down_bias, "q_down_bias", kWhy);
        check_absent(w.q_down_norm, "q_down_norm", kWhy), check_absent(w.kv_down, "kv_down", kWhy);
        check_absent(w.kv_down_bias, "kv_down_bias", kWhy), check_absent(w.kv_down_norm, "kv_down_norm", kWhy);
        return check_absent(w.kv_up, "kv_up", kWhy);
    }
    const Latent& latent = *c.latent;
    if (latent.q_rank > 0) {
        check_matrix(w.q_down, "q_down", latent.q_rank, c.embed_dim);
        check_vector(w.q_down_bias, "q_down_bias", latent.q_rank, true);
        check_vector(w.q_down_norm, "q_down_norm", latent.q_rank, false);
    } else {
        constexpr const char* kDirect = "latent.q_rank is 0: q is projected directly";
        check_absent(w.q_down, "q_down", kDirect), check_absent(w.q_down_bias, "q_down_bias", kDirect);
        check_absent(w.q_down_norm, "q_down_norm", kDirect);
    }
    check_matrix(w.q, "q", c.heads * c.head_dim, latent.q_rank > 0 ? latent.q_rank : c.embed_dim);
    check_matrix(w.kv_down, "kv_down", latent_width(c), c.embed_dim);
    check_vector(w.kv_down_bias, "kv_down_bias", latent_width(c), true);
    check_vector(w.kv_down_norm, "kv_down_norm", latent.kv_rank, false);
    check_matrix(w.kv_up, "kv_up", c.heads * (nope_width(c) + c.value_dim), latent.kv_rank);
    constexpr const char* kLatent = "a latent layer makes k and v from kv_down and kv_up";
    check_absent(w.k, "k", kLatent), check_absent(w.v, "v", kLatent);
    check_absent(w.k_bias, "k_bias", kLatent), check_absent(w.v_bias, "v_bias", kLatent);
    check_absent(w.extra_key, "extra_key", kLatent), check_absent(w.extra_value, "extra_value", kLatent);
}

void check_routing(const MhaConfig& c, const MhaWeights& w) {
    if (!c.routing) {
        constexpr const char* kWhy = "the config has no routing";
        check_absent(w.router, "router", kWhy), check_absent(w.expert_q, "expert_q", kWhy);
        return check_absent(w.expert_o, "expert_o", kWhy);
    }
    const std::int64_t experts = c.routing->experts;
    check_matrix(w.router, "router", experts, c.embed_dim);
    check_cube(w.expert_q, "expert_q", experts, c.kv_heads * c.head_dim, c.embed_dim);
    check_cube(w.expert_o, "expert_o", experts, c.out_dim, c.kv_heads * c.value_dim);
    constexpr const char* kWhy = "a routed layer has expert_q and expert_o instead";
    check_absent(w.q, "q", kWhy), check_absent(w.q_bias, "q_bias", kWhy), check_absent(w.o, "o", kWhy);
}

void check_parts(const MhaConfig& c, const MhaWeights& w) {
    check_vector(w.sinks, "sinks", c.heads, true);
    check_vector(w.alibi_slopes, "alibi_slopes", c.heads, true);
    if (c.relative_bias) {
        check_matrix(w.relative_bias, "relative_bias", c.relative_bias->buckets, c.heads);
    } else {
        check_absent(w.relative_bias, "relative_bias", "the config has no relative_bias");
    }
    if (c.gate != Gate::none) {
        check_matrix(w.gate, "gate", gate_width(c), c.embed_dim);
        check_vector(w.gate_bias, "gate_bias", gate_width(c), true);
    } else {
        check_absent(w.gate, "gate", "the config has no gate");
        check_absent(w.gate_bias, "gate_bias", "the config has no gate");
    }
    check(w.extra_key.empty() == w.extra_value.empty(), "MhaWeights: extra_key is ", w.extra_key,
          " and extra_value is ", w.extra_value, "; give both or none");
    check_vector(w.extra_key, "extra_key", c.kv_heads * c.head_dim, true);
    check_vector(w.extra_value, "extra_value", c.kv_heads * c.value_dim, true);
}

}  // namespace

void check_weights(const MhaConfig& c, const MhaWeights& w) {
    if (!c.latent && !c.routing) check_matrix(w.q, "q", c.heads * c.head_dim, c.embed_dim);
    if (!c.latent) {
        check_matrix(w.k, "k", c.kv_heads * c.head_dim, c.key_embed_dim);
        check_matrix(w.v, "v", c.kv_heads * c.value_dim, c.value_embed_dim);
    }
    check_latent(c, w);
    check_routing(c, w);
    if (!c.routing) check_matrix(w.o, "o", c.out_dim, merged_width(c));
    check_vector(w.q_bias, "q_bias", c.heads * c.head_dim, true);
    check_vector(w.k_bias, "k_bias", c.kv_heads * c.head_dim, true);
    check_vector(w.v_bias, "v_bias", c.kv_heads * c.value_dim, true);
    check_vector(w.o_bias, "o_bias", c.out_dim, true);
    check_no_norms(c, w);
    check_parts(c, w);
}

}  // namespace headwise
