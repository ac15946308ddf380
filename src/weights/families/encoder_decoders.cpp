// Encoder-decoders: each layer of the decoder has a self attention and a cross attention.
#include "weights/families/tables.h"

namespace headwise::families {
namespace {

using namespace rules;

constexpr std::array<Module, 3> modules(std::string_view decoder, std::string_view encoder,
                                        std::string_view cross) {
    return {{{.part = "decoder", .path = decoder, .sees = Sees::past},
             {.part = "encoder", .path = encoder, .sees = Sees::all},
             {.part = "cross", .path = cross, .sees = Sees::other_side}}};
}

constexpr Names kBartNames = {.base = "model.",
                              .modules = modules("decoder.layers.#.self_attn.", "encoder.layers.#.self_attn.",
                                                 "decoder.layers.#.encoder_attn."),
                              .q = "q_proj",
                              .k = "k_proj",
                              .v = "v_proj",
                              .o = "out_proj"};

constexpr Names kT5Names = {
    .modules = modules("decoder.block.#.layer.0.SelfAttention.", "encoder.block.#.layer.0.SelfAttention.",
                       "decoder.block.#.layer.1.EncDecAttention."),
    .q = "q",
    .k = "k",
    .v = "v",
    .o = "o",
    .beside = {"relative_attention_bias."}};
constexpr Names kUmt5Names = {.modules = kT5Names.modules, .q = "q", .k = "k", .v = "v", .o = "o"};

constexpr Sizes bart_sizes(std::int64_t embed_dim, std::int64_t heads, std::int64_t layers) {
    return {.embed_dim = {"d_model", embed_dim},
            .heads = {"@_attention_heads", heads},
            .layers = {"@_layers", layers}};
}

constexpr Sizes t5_sizes(std::int64_t embed_dim, std::int64_t heads, std::int64_t layers) {
    return {.embed_dim = {"d_model|hidden_size", embed_dim},
            .heads = {"num_heads|num_attention_heads", heads},
            .head_dim = {"d_kv|head_dim", 64},
            .layers = {"num_layers|num_hidden_layers", layers},
            .decoder_layers = {"num_decoder_layers", 0}};
}

constexpr KeyList kBartHarmless =
    "encoder_ffn_dim decoder_ffn_dim num_hidden_layers num_attention_heads hidden_size normalize_before "
    "normalize_embedding add_final_layer_norm add_bias_logits static_position_embeddings extra_pos_embeddings "
    "decoder_vocab_size share_encoder_decoder_embeddings max_source_positions max_target_positions num_mel_bins "
    "apply_spec_augment mask_time_prob mask_time_length mask_time_min_masks mask_feature_prob mask_feature_length "
    "mask_feature_min_masks median_filter_width classifier_proj_size use_weighted_layer_sum lang_ids "
    "encoder_layers "
    "decoder_layers encoder_attention_heads decoder_attention_heads adaptive_embedding add_final_layernorm "
    "layernorm_variant do_blenderbot_90_layernorm force_bos_token_to_be_generated extra_layer_norm "
    "save_step variant_name";
constexpr KeyList kT5Harmless =
    "d_ff feed_forward_proj dense_act_fn is_gated_act scale_decoder_outputs n_positions "
    "encoder_no_repeat_ngram_size";

constexpr Family bart_like(std::string_view model_type, const Sizes& s) {
    return {.model_type = model_type,
            .names = kBartNames,
            .sizes = s,
            .qkv_bias = kAlways,
            .o_bias = kAlways,
            .harmless = kBartHarmless};
}

constexpr Family kRows[] = {
    // clang-format off
    {.model_type = "t5", .names = kT5Names, .sizes = t5_sizes(512, 8, 6), .rules = {unscaled, bucketed_bias},
     .harmless = kT5Harmless},
    {.model_type = "mt5", .names = kT5Names, .sizes = t5_sizes(512, 6, 8), .rules = {unscaled, bucketed_bias},
     .harmless = kT5Harmless},
    {.model_type = "umt5", .names = kUmt5Names, .sizes = t5_sizes(512, 6, 8),
     .rules = {unscaled, bucketed_bias_of_every_layer}, .harmless = kT5Harmless},
    {.model_type = "whisper", .names = kBartNames, .sizes = bart_sizes(384, 6, 4),
     .qkv_bias = kAlways, .o_bias = kAlways, .rules = {no_key_bias}, .harmless = kBartHarmless},
    bart_like("bart", bart_sizes(1024, 16, 12)),
    bart_like("mbart", bart_sizes(1024, 16, 12)),
    bart_like("pegasus", bart_sizes(1024, 16, 12)),
    bart_like("marian", bart_sizes(1024, 16, 12)),
    bart_like("m2m_100", bart_sizes(1024, 16, 12)),
    bart_like("plbart", bart_sizes(768, 12, 6)),
    bart_like("blenderbot", {.embed_dim = {"d_model", 2560}, .heads = {"@_attention_heads", 32},
                             .layers = {"encoder_layers", 2}, .decoder_layers = {"decoder_layers", 24}}),
    bart_like("blenderbot-small", bart_sizes(512, 16, 8)),
    // clang-format on
};

}  // namespace

const std::span<const Family> kEncoderDecoders = kRows;

}  // namespace headwise::families
