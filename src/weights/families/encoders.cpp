// Encoders of text, images and sound.
#include "weights/families/tables.h"

namespace headwise::families {
namespace {

using namespace rules;

constexpr KeyList kBertHarmless = "directionality use_pooler";
constexpr KeyList kImageHarmless =
    "image_size patch_size num_channels encoder_stride layerscale_value use_swiglu_ffn apply_layernorm "
    "reshape_hidden_states use_mask_token out_features out_indices stage_names num_register_tokens "
    "num_detection_tokens use_mid_position_embeddings auxiliary_loss class_cost bbox_cost giou_cost "
    "bbox_loss_coefficient giou_loss_coefficient eos_coefficient interpolate_antialias interpolate_offset "
    "time_stride frequency_stride num_mel_bins decoder_num_attention_heads decoder_hidden_size "
    "decoder_num_hidden_layers decoder_intermediate_size mask_ratio norm_pix_loss";
constexpr KeyList kSoundHarmless =
    "feat_extract_norm feat_extract_activation feat_extract_dropout feat_proj_layer_norm feat_proj_dropout "
    "feat_quantizer_dropout conv_dim conv_stride conv_kernel conv_bias num_conv_pos_embeddings "
    "num_conv_pos_embedding_groups conv_pos_batch_norm conv_pos_kernel_size do_stable_layer_norm "
    "apply_spec_augment "
    "mask_time_prob mask_time_length mask_time_min_masks mask_time_selection mask_time_other mask_feature_prob "
    "mask_feature_length mask_feature_min_masks mask_feature_selection mask_feature_other mask_channel_length "
    "mask_channel_min_space mask_channel_other mask_channel_prob mask_channel_selection mask_min_space "
    "mask_time_min_space no_mask_channel_overlap no_mask_time_overlap ctc_loss_reduction ctc_zero_infinity "
    "use_weighted_layer_sum classifier_proj_size num_feat_extract_layers num_codevectors_per_group "
    "num_codevector_groups contrastive_logits_temperature num_negatives codevector_dim proj_codevector_dim "
    "diversity_loss_weight tdnn_dim tdnn_kernel tdnn_dilation xvector_output_dim add_adapter adapter_kernel_size "
    "adapter_stride num_adapter_layers output_hidden_size num_ctc_classes num_clusters replace_prob";
constexpr KeyList kClipHarmless =
    "image_size patch_size num_channels initializer_factor projection_size "
    "vision_use_head spatial_merge_size pad_token_id";

constexpr std::array<Module, 3> kBertModules = {
    {{.part = "self", .path = "encoder.layer.#.attention.", .sees = Sees::asked},
     {.part = "cross", .path = "encoder.layer.#.crossattention.", .sees = Sees::other_side}}};

constexpr Names bert_names(std::string_view base) {
    return {.base = base,
            .modules = kBertModules,
            .q = "self.query",
            .k = "self.key",
            .v = "self.value",
            .o = "output.dense",
            .beside = {"output.LayerNorm."}};
}

// Stored names; the modules of transformers 5 have others.
constexpr Names image_names(std::string_view base) {
    return {.base = base,
            .modules = {{{.part = "self", .path = "encoder.layer.#.attention.", .sees = Sees::all}}},
            .q = "attention.query",
            .k = "attention.key",
            .v = "attention.value",
            .o = "output.dense"};
}

constexpr Names sound_names(std::string_view base) {
    return {.base = base,
            .modules = {{{.part = "self", .path = "encoder.layers.#.attention.", .sees = Sees::all}}},
            .q = "q_proj",
            .k = "k_proj",
            .v = "v_proj",
            .o = "out_proj"};
}

constexpr Family bert_like(std::string_view model_type, std::string_view base, const Sizes& s,
                           KeyList harmless = kBertHarmless) {
    return {.model_type = model_type,
            .names = bert_names(base),
            .sizes = s,
            .qkv_bias = kAlways,
            .o_bias = kAlways,
            .fixed = {{{"position_embedding_type", "absolute"}}},
            .harmless = harmless};
}

constexpr Family vit_like(std::string_view model_type, std::string_view base) {
    return {.model_type = model_type,
            .names = image_names(base),
            .sizes = equal_sizes(768, 12, 12),
            .qkv_bias = by("qkv_bias", true),
            .o_bias = kAlways,
            .harmless = kImageHarmless};
}

constexpr Family wav2vec2_like(std::string_view model_type, std::string_view base) {
    return {.model_type = model_type,
            .names = sound_names(base),
            .sizes = equal_sizes(768, 12, 12),
            .qkv_bias = kAlways,
            .o_bias = kAlways,
            .harmless = kSoundHarmless};
}

constexpr Names tower_names(std::string_view base, Module first, Module second = {}) {
    return {
        .base = base, .modules = {first, second}, .q = "q_proj", .k = "k_proj", .v = "v_proj", .o = "out_proj"};
}

constexpr Module kText(Sees sees, std::string_view path = "text_model.encoder.layers.#.self_attn.",
                       std::string_view section = "text_config") {
    return {.part = "text", .path = path, .sees = sees, .section = section};
}
constexpr Module kVision(std::string_view path = "vision_model.encoder.layers.#.self_attn.",
                         std::string_view section = "vision_config") {
    return {.part = "vision", .path = path, .sees = Sees::all, .section = section};
}
constexpr std::string_view kTower = "encoder.layers.#.self_attn.";

constexpr Family kRows[] = {
    // clang-format off
    bert_like("bert", "bert.", equal_sizes(768, 12, 12)),
    bert_like("roberta", "roberta.", equal_sizes(768, 12, 12)),
    bert_like("camembert", "roberta.", equal_sizes(768, 12, 12)),
    bert_like("xlm-roberta", "roberta.", equal_sizes(768, 12, 12)),
    bert_like("electra", "electra.", equal_sizes(256, 4, 12)),
    bert_like("data2vec-text", "data2vec_text.", equal_sizes(768, 12, 12)),
    bert_like("ernie", "ernie.", equal_sizes(768, 12, 12), "task_type_vocab_size use_task_id"),
    {.model_type = "distilbert",
     .names = {.base = "distilbert.",
               .modules = {{{.part = "self", .path = "transformer.layer.#.attention.", .sees = Sees::all}}},
               .q = "q_lin", .k = "k_lin", .v = "v_lin", .o = "out_lin"},
     .sizes = {.embed_dim = {"dim|hidden_size", 768}, .heads = {"n_heads|num_attention_heads", 12},
               .layers = {"n_layers|num_hidden_layers", 6}},
     .qkv_bias = kAlways, .o_bias = kAlways, .harmless = "hidden_dim sinusoidal_pos_embds"},
    {.model_type = "albert",
     .names = {.base = "albert.",
               .modules = {{{.part = "self", .path = "encoder.albert_layer_groups.#.albert_layers.0.attention.",
                             .sees = Sees::all}}},
               .q = "query", .k = "key", .v = "value", .o = "dense", .beside = {"LayerNorm."}},
     .sizes = equal_sizes(4096, 64, 12), .qkv_bias = kAlways, .o_bias = kAlways, .rules = {layer_groups},
     .fixed = {{{"position_embedding_type", "absolute"}}},
     .harmless = "net_structure_type num_memory_blocks gap_size down_scale_factor"},
    {.model_type = "mpnet",
     .names = {.base = "mpnet.",
               .modules = {{{.part = "self", .path = "encoder.layer.#.attention.", .sees = Sees::all}}},
               .q = "attn.q", .k = "attn.k", .v = "attn.v", .o = "attn.o", .beside = {"LayerNorm."}},
     .sizes = equal_sizes(768, 12, 12), .qkv_bias = kAlways, .o_bias = kAlways,
     .rules = {bucketed_bias_of_the_stack}},
    {.model_type = "modernbert",
     .names = {.base = "model.", .modules = {{{.part = "self", .path = "layers.#.attn.", .sees = Sees::all}}},
               .o = "Wo", .fused = "Wqkv"},
     .sizes = equal_sizes(768, 12, 22), .layout = Layout::joined,
     .qkv_bias = kAttentionBias, .o_bias = kAttentionBias,
     .rotary = {.theta = 160000, .windowed_theta = 10000, .theta_key = "global_rope_theta", .partial_key = {},
                .windowed_theta_key = "local_rope_theta"},
     .rules = {two_sided_local_attention}, .fixed = {{{"position_embedding_type", "absolute"}}},
     .harmless = "deterministic_flash_attn sparse_prediction sparse_pred_ignore_index reference_compile "
                 "repad_logits_with_grad"},
    {.model_type = "eurobert",
     .names = {.base = "model.", .modules = {{{.part = "self", .path = "layers.#.self_attn.", .sees = Sees::all}}},
               .q = "q_proj", .k = "k_proj", .v = "v_proj", .o = "o_proj"},
     .sizes = sizes(768, 12, 12), .qkv_bias = kAttentionBias, .o_bias = kAttentionBias, .rotary = half_split()},
    vit_like("vit", "vit."),
    vit_like("deit", "deit."),
    vit_like("dinov2", "dinov2."),
    vit_like("dinov2_with_registers", "dinov2_with_registers."),
    vit_like("ijepa", "ijepa."),
    vit_like("vit_msn", "vit."),
    vit_like("vit_mae", "vit."),
    vit_like("yolos", "vit."),
    vit_like("audio-spectrogram-transformer", "audio_spectrogram_transformer."),
    wav2vec2_like("wav2vec2", "wav2vec2."),
    wav2vec2_like("hubert", "hubert."),
    wav2vec2_like("unispeech", "unispeech."),
    wav2vec2_like("unispeech-sat", "unispeech_sat."),
    wav2vec2_like("data2vec-audio", "data2vec_audio."),
    {.model_type = "clip", .names = tower_names("", kText(Sees::past), kVision()), .sizes = equal_sizes(512, 8, 12),
     .qkv_bias = kAlways, .o_bias = kAlways, .harmless = kClipHarmless},
    {.model_type = "clip_text_model", .names = tower_names("text_model.", kText(Sees::past, kTower, "")),
     .sizes = equal_sizes(512, 8, 12), .qkv_bias = kAlways, .o_bias = kAlways, .harmless = kClipHarmless},
    {.model_type = "clip_vision_model", .names = tower_names("vision_model.", kVision(kTower, "")),
     .sizes = equal_sizes(768, 12, 12), .qkv_bias = kAlways, .o_bias = kAlways, .harmless = kClipHarmless},
    {.model_type = "siglip", .names = tower_names("", kText(Sees::all), kVision()), .sizes = equal_sizes(768, 12, 12),
     .qkv_bias = kAlways, .o_bias = kAlways, .harmless = kClipHarmless},
    {.model_type = "siglip_text_model", .names = tower_names("text_model.", kText(Sees::all, kTower, "")),
     .sizes = equal_sizes(768, 12, 12), .qkv_bias = kAlways, .o_bias = kAlways, .harmless = kClipHarmless},
    {.model_type = "siglip_vision_model", .names = tower_names("vision_model.", kVision(kTower, "")),
     .sizes = equal_sizes(768, 12, 12), .qkv_bias = kAlways, .o_bias = kAlways, .harmless = kClipHarmless},
    // clang-format on
};

}  // namespace

const std::span<const Family> kEncoders = kRows;

}  // namespace headwise::families
