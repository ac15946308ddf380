// Decoders with names or layouts of their own.
#include "weights/families/tables.h"

namespace headwise::families {
namespace {

using namespace rules;

constexpr Module kSelf(std::string_view path) { return {.part = "self", .path = path, .sees = Sees::past}; }

constexpr Sizes kGpt2Sizes(std::int64_t embed_dim, std::int64_t heads, std::int64_t layers) {
    return {.embed_dim = {"n_embd|hidden_size", embed_dim},
            .heads = {"n_head|num_attention_heads", heads},
            .layers = {"n_layer|num_hidden_layers", layers}};
}

constexpr Sizes kMptSizes(std::int64_t embed_dim, std::int64_t heads, std::int64_t layers) {
    return {.embed_dim = {"d_model|hidden_size", embed_dim},
            .heads = {"n_heads|num_attention_heads", heads},
            .layers = {"n_layers|num_hidden_layers", layers}};
}

constexpr Names kPhiNames = {.base = "model.",
                             .modules = {kSelf("layers.#.self_attn.")},
                             .q = "q_proj",
                             .k = "k_proj",
                             .v = "v_proj",
                             .o = "dense",
                             .fused = "query_key_value",
                             .beside = {"rotary_emb.inv_freq"}};
constexpr Names kGpt2Names = {.base = "transformer.",
                              .modules = {kSelf("h.#.attn.")},
                              .o = "c_proj",
                              .fused = "c_attn",
                              .beside = {"bias", "masked_bias"}};
constexpr Names kGptJNames = {.base = "transformer.",
                              .modules = {kSelf("h.#.attn.")},
                              .q = "q_proj",
                              .k = "k_proj",
                              .v = "v_proj",
                              .o = "out_proj",
                              .fused = "qkv_proj",
                              .beside = {"bias", "masked_bias", "causal_mask"}};
constexpr Names kBloomNames = {.base = "transformer.",
                               .modules = {kSelf("h.#.self_attention.")},
                               .o = "dense",
                               .fused = "query_key_value",
                               .beside = {"rotary_emb.inv_freq", "maybe_rotary.inv_freq"}};
constexpr Names kDeepSeekNames = {
    .base = "model.", .modules = {kSelf("layers.#.self_attn.")}, .o = "o_proj", .beside = {"rotary_emb.inv_freq"}};

constexpr QkNorm kLayerNormOfHeads(bool preset) {
    return {.norm = {.kind = HeadNorm::Kind::layer_norm, .eps = 1e-5},
            .q = "q_layernorm",
            .k = "k_layernorm",
            .eps_key = "layer_norm_eps",
            .on = by("qk_layernorm", preset),
            .bias = true};
}

constexpr KeyList kGpt2Harmless =
    "n_ctx n_positions n_inner reorder_and_upcast_attn attention_softmax_in_fp32 scale_attention_softmax_in_fp32 "
    "rotary "
    "afn predict_special_tokens runner_max_sequence_length validate_runner_input inference_runner "
    "pre_allocate_kv_cache "
    "max_batch_size max_sequence_length gpt2_type";

constexpr Family kRows[] = {
    // clang-format off
    {.model_type = "deepseek_v2", .names = kDeepSeekNames, .sizes = equal_sizes(4096, 32, 32),
     .layout = Layout::latent, .o_bias = kAttentionBias, .rotary = interleaved(), .rules = {latent_attention}},
    {.model_type = "deepseek_v3", .names = kDeepSeekNames, .sizes = equal_sizes(7168, 128, 61),
     .layout = Layout::latent, .o_bias = kAttentionBias, .rotary = interleaved(),
     .rules = {latent_attention, rotate_alternately_unless_told}},
    {.model_type = "phi", .names = kPhiNames, .sizes = sizes(2048, 32, 24),
     .qkv_bias = kAlways, .o_bias = kAlways, .rotary = half_split(10000, 0.5), .qk_norm = kLayerNormOfHeads(false)},
    {.model_type = "phi3", .names = {.base = "model.", .modules = {kSelf("layers.#.self_attn.")}, .o = "o_proj",
                                     .fused = "qkv_proj", .beside = {"rotary_emb.inv_freq"}},
     .sizes = sizes(3072, 32, 32), .layout = Layout::joined, .rotary = half_split(), .preset_window = 0,
     .rules = {window}, .harmless = "attention_bias"},
    {.model_type = "persimmon", .names = kPhiNames, .sizes = equal_sizes(4096, 64, 36), .layout = Layout::by_kv_head,
     .qkv_bias = kAlways, .o_bias = kAlways, .rotary = half_split(10000, 0.5), .qk_norm = kLayerNormOfHeads(true)},
    {.model_type = "gpt2", .names = kGpt2Names, .sizes = kGpt2Sizes(768, 12, 12), .layout = Layout::joined_in_out,
     .qkv_bias = kAlways, .o_bias = kAlways, .rules = {scale_switches_of_gpt2}, .harmless = kGpt2Harmless},
    {.model_type = "imagegpt", .names = kGpt2Names, .sizes = kGpt2Sizes(512, 8, 24), .layout = Layout::joined_in_out,
     .qkv_bias = kAlways, .o_bias = kAlways, .rules = {scale_switches_of_gpt2}, .harmless = kGpt2Harmless},
    {.model_type = "openai-gpt", .names = kGpt2Names, .sizes = kGpt2Sizes(768, 12, 12),
     .layout = Layout::joined_in_out, .qkv_bias = kAlways, .o_bias = kAlways, .harmless = kGpt2Harmless},
    {.model_type = "gpt_bigcode", .names = kGpt2Names, .sizes = kGpt2Sizes(768, 12, 12),
     .qkv_bias = kAlways, .o_bias = kAlways, .rules = {bigcode_heads, scale_switches_of_gpt2},
     .harmless = kGpt2Harmless},
    {.model_type = "gpt_neo",
     .names = {.base = "transformer.", .modules = {kSelf("h.#.attn.attention.")},
               .q = "q_proj", .k = "k_proj", .v = "v_proj", .o = "out_proj", .beside = {"bias", "masked_bias"}},
     .sizes = {.embed_dim = {"hidden_size", 2048}, .heads = {"num_heads|num_attention_heads", 16},
               .layers = {"num_layers|num_hidden_layers", 24}},
     .o_bias = kAlways, .rules = {gpt_neo_attention_types, unscaled}},
    {.model_type = "gpt_neox",
     .names = {.base = "gpt_neox.", .modules = {kSelf("layers.#.attention.")}, .o = "dense",
               .fused = "query_key_value", .beside = {"bias", "masked_bias", "rotary_emb.inv_freq"}},
     .sizes = equal_sizes(6144, 64, 44), .layout = Layout::by_kv_head,
     .qkv_bias = by("attention_bias", true), .o_bias = by("attention_bias", true),
     .rotary = {.theta = 10000, .partial = 0.25, .theta_key = "rotary_emb_base", .partial_key = "rotary_pct"}},
    {.model_type = "gptj", .names = kGptJNames, .sizes = kGpt2Sizes(4096, 16, 28), .rotary = interleaved(),
     .rules = {rotary_dim}, .fixed = {{{"scale_attn_weights", "true"}}}, .harmless = kGpt2Harmless},
    {.model_type = "codegen", .names = kGptJNames, .sizes = kGpt2Sizes(4096, 16, 28),
     .layout = Layout::four_blocks_qvk, .rotary = interleaved(), .rules = {rotary_dim},
     .fixed = {{{"scale_attn_weights", "true"}}}, .harmless = kGpt2Harmless},
    {.model_type = "falcon", .names = kBloomNames,
     .sizes = {.embed_dim = {"hidden_size", 4544}, .heads = {"num_attention_heads|n_head", 71},
               .layers = {"num_hidden_layers|n_layer", 32}},
     .qkv_bias = by("bias"), .o_bias = by("bias"), .rotary = half_split(),
     .rules = {falcon_heads, alibi_instead_of_rotation},
     .harmless = "parallel_attn num_ln_in_parallel_attn ffn_hidden_size apply_residual_connection_post_layernorm"},
    {.model_type = "bloom", .names = kBloomNames,
     .sizes = {.embed_dim = {"hidden_size|n_embed", 64}, .heads = {"n_head|num_attention_heads", 8},
               .layers = {"n_layer|num_hidden_layers", 2}},
     .layout = Layout::by_kv_head, .qkv_bias = kAlways, .o_bias = kAlways, .rules = {rules::alibi},
     .harmless = "apply_residual_connection_post_layernorm slow_but_exact n_inner offset_alibi seq_length "
                 "skip_bias_add skip_bias_add_qkv attention_softmax_in_fp32 masked_softmax_fusion bias_dropout_fusion "
                 "unk_token_id"},
    {.model_type = "mpt",
     .names = {.base = "transformer.", .modules = {kSelf("blocks.#.attn.")}, .o = "out_proj", .fused = "Wqkv"},
     .sizes = kMptSizes(2048, 16, 24), .layout = Layout::joined, .rules = {mpt_attn_config},
     .fixed = {{{"no_bias", "true"}}},
     .harmless = "expansion_ratio max_seq_len learned_pos_emb embedding_fraction norm_type init_config verbose"},
    {.model_type = "dbrx",
     .names = {.base = "transformer.", .modules = {kSelf("blocks.#.norm_attn_norm.attn.")}, .o = "out_proj",
               .fused = "Wqkv"},
     .sizes = kMptSizes(2048, 16, 24), .layout = Layout::joined, .rotary = half_split(), .rules = {dbrx_attn_config},
     .harmless = "max_seq_len ffn_config"},
    {.model_type = "opt",
     .names = {.base = "decoder.", .modules = {kSelf("layers.#.self_attn.")},
               .q = "q_proj", .k = "k_proj", .v = "v_proj", .o = "out_proj"},
     .sizes = equal_sizes(768, 12, 12), .qkv_bias = by("enable_bias", true), .o_bias = by("enable_bias", true),
     .harmless = "ffn_dim do_layer_norm_before word_embed_proj_dim layer_norm_elementwise_affine"},
    {.model_type = "biogpt",
     .names = {.base = "biogpt.", .modules = {kSelf("layers.#.self_attn.")},
               .q = "q_proj", .k = "k_proj", .v = "v_proj", .o = "out_proj"},
     .sizes = equal_sizes(1024, 16, 24), .qkv_bias = kAlways, .o_bias = kAlways},
    {.model_type = "xglm",
     .names = {.base = "model.", .modules = {kSelf("layers.#.self_attn.")},
               .q = "q_proj", .k = "k_proj", .v = "v_proj", .o = "out_proj"},
     .sizes = {.embed_dim = {"d_model|hidden_size", 1024}, .heads = {"attention_heads|num_attention_heads", 16},
               .layers = {"num_layers|num_hidden_layers", 24}},
     .qkv_bias = kAlways, .o_bias = kAlways, .harmless = "ffn_dim"},
    {.model_type = "jetmoe",
     .names = {.base = "model.", .modules = {kSelf("layers.#.self_attention.")}, .o = {}, .fused = "kv_proj",
               .beside = {"rotary_emb.inv_freq"}},
     .sizes = {.embed_dim = {"hidden_size", 2048}, .heads = {"num_key_value_heads", 16},
               .head_dim = {"kv_channels|head_dim", 128}, .layers = {"num_hidden_layers", 12}},
     .layout = Layout::routed, .rotary = half_split(), .rules = {routed_attention}},
    // clang-format on
};

}  // namespace

const std::span<const Family> kOtherDecoders = kRows;

}  // namespace headwise::families
