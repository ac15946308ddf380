// What several rows of the table have in common.
#pragma once

#include "weights/rules.h"

namespace headwise::families {

using Sees = Module::Sees;

constexpr Switch by(std::string_view key, bool preset = false) { return {key, preset}; }
inline constexpr Switch kAttentionBias = by("attention_bias");

// hidden_size and its relatives, with the presets of a model class; kv_heads 0: as many as heads, head_dim 0: E / H.
constexpr Sizes sizes(std::int64_t embed_dim, std::int64_t heads, std::int64_t layers, std::int64_t kv_heads = 0,
                      std::int64_t head_dim = 0) {
    return {.embed_dim = {"hidden_size", embed_dim},
            .heads = {"num_attention_heads", heads},
            .kv_heads = {"num_key_value_heads", kv_heads},
            .head_dim = {"head_dim", head_dim},
            .layers = {"num_hidden_layers", layers}};
}

// The same without grouped heads.
constexpr Sizes equal_sizes(std::int64_t embed_dim, std::int64_t heads, std::int64_t layers) {
    return {.embed_dim = {"hidden_size", embed_dim},
            .heads = {"num_attention_heads", heads},
            .layers = {"num_hidden_layers", layers}};
}

constexpr QkNorm head_norm(double eps, HeadNorm::Weight weight = HeadNorm::Weight::w) {
    return {.norm = {.weight = weight, .eps = eps},
            .q = "q_norm",
            .k = "k_norm",
            .eps_key = "rms_norm_eps",
            .on = kAlways};
}

constexpr QkNorm head_norm_if(std::string_view key, double eps) {
    QkNorm norm = head_norm(eps);
    norm.on = by(key);
    return norm;
}

inline constexpr Rope::Pairs kInterleaved = Rope::Pairs::interleaved;

constexpr Rotary half_split(double theta = 10000, double partial = 1) {
    return {.theta = theta, .partial = partial};
}
constexpr Rotary interleaved(double theta = 10000, double partial = 1) {
    return {.pairs = kInterleaved, .theta = theta, .partial = partial};
}

}  // namespace headwise::families
