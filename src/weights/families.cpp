#include "weights/families.h"

#include <iterator>
#include <vector>

#include "core/check.h"
#include "weights/config.h"
#include "weights/quote.h"
#include "weights/rope_config.h"

namespace headwise {
namespace {

// Keys of any config.json that attention does not depend on: bookkeeping, tokens, text generation, other stages.
constexpr std::string_view kHarmlessAnywhere[] = {
    "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache",
    // model wrapper
    "return_dict", "output_hidden_states", "output_attentions", "output_past", "torchscript", "use_bfloat16",
    "tie_word_embeddings", "tie_encoder_decoder", "is_encoder_decoder", "add_cross_attention",
    "cross_attention_hidden_size", "chunk_size_feed_forward", "gradient_checkpointing", "initializer_range",
    "finetuning_task", "id2label", "label2id", "num_labels", "problem_type", "task_specific_params",
    "tf_legacy_loss", "transformers.js_config", "unsloth_version", "unsloth_fixed", "sentence_transformers",
    // tokens
    "vocab_size", "tokenizer_class", "prefix", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
    "mask_token_id", "unk_token_id", "cls_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids",
    // generation
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "num_return_sequences", "output_scores", "return_dict_in_generate",
    "exponential_decay_length_penalty", "remove_invalid_values",
    // other stages
    "hidden_act", "intermediate_size", "max_position_embeddings"};

// clang-format off
constexpr std::string_view kBertHarmless[] = {
    "attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout", "layer_norm_eps", "type_vocab_size",
    "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type"};

// pretraining_tp only cuts the same products into pieces.
constexpr std::string_view kLlamaHarmless[] = {
    "attention_dropout", "mlp_bias", "rms_norm_eps", "pretraining_tp", "max_sequence_length", "is_llama_config",
    "original_max_position_embeddings"};

constexpr FixedKey kBertFixed[] = {{"position_embedding_type", "absolute"}};
constexpr FixedKey kLlamaFixed[] = {
    {"rope_interleaved", "false"}, {"is_causal", "true"}, {"use_sliding_window", "false"}, {"use_qk_norm", "false"}};

constexpr std::string_view kBertBeside[] = {"output.LayerNorm."};
constexpr std::string_view kLlamaBeside[] = {"rotary_emb.inv_freq"};

constexpr Family kFamilies[] = {
    {
        .model_type = "bert",
        .base = "bert.", .module = "encoder.layer.#.attention.",
        .q = "self.query", .k = "self.key", .v = "self.value", .o = "output.dense", .beside = kBertBeside,
        .heads = HeadRule::equal, .bias = BiasRule::always,
        .causal = CausalRule::unless_asked, .rotation = RotationRule::none,
        .default_embed_dim = 768, .default_heads = 12, .default_layers = 12,
        .fixed = kBertFixed, .harmless = kBertHarmless},
    {
        .model_type = "roberta",
        .base = "roberta.", .module = "encoder.layer.#.attention.",
        .q = "self.query", .k = "self.key", .v = "self.value", .o = "output.dense", .beside = kBertBeside,
        .heads = HeadRule::equal, .bias = BiasRule::always,
        .causal = CausalRule::unless_asked, .rotation = RotationRule::none,
        .default_embed_dim = 768, .default_heads = 12, .default_layers = 12,
        .fixed = kBertFixed, .harmless = kBertHarmless},
    {
        .model_type = "llama",
        .base = "model.", .module = "layers.#.self_attn.",
        .q = "q_proj", .k = "k_proj", .v = "v_proj", .o = "o_proj", .beside = kLlamaBeside,
        .heads = HeadRule::grouped, .bias = BiasRule::attention_bias,
        .causal = CausalRule::always, .rotation = RotationRule::half_split,
        .default_embed_dim = 4096, .default_heads = 32, .default_layers = 32,
        .fixed = kLlamaFixed, .harmless = kLlamaHarmless},
};
// clang-format on

const Family& find_family(Config& config) {
    std::string supported;
    for (const Family& family : kFamilies) supported += text(supported.empty() ? "" : ", ", family.model_type);
    const auto model_type = config.string("model_type");
    if (!model_type) fail(ErrorCode::bad_data, config.where(), ": model_type is missing; supported: ", supported);
    for (const Family& family : kFamilies) {
        if (family.model_type == *model_type) return family;
    }
    fail(ErrorCode::unsupported, config.where(), ": the model family ", quote(*model_type),
         " is not supported; supported: ", supported);
}

void read_heads(Config& config, const Family& family, MhaConfig& mha) {
    const std::int64_t E = config.size("hidden_size").value_or(family.default_embed_dim);
    const std::int64_t H = config.size("num_attention_heads").value_or(family.default_heads);
    std::int64_t G = H;
    std::optional<std::int64_t> D;
    if (family.heads == HeadRule::grouped) {
        G = config.size("num_key_value_heads").value_or(H);
        D = config.size("head_dim");
    }
    if (!D && E % H != 0) {
        fail(ErrorCode::bad_data, config.where(), ": hidden_size ", E,
             " is not a multiple of num_attention_heads ", H);
    }
    if (H % G != 0) {
        fail(ErrorCode::bad_data, config.where(), ": num_attention_heads ", H,
             " is not a multiple of num_key_value_heads ", G);
    }
    mha.embed_dim = E;
    mha.heads = H;
    mha.kv_heads = G;
    mha.head_dim = D.value_or(E / H);
}

bool read_causal(Config& config, const Family& family, std::optional<bool> asked) {
    if (family.causal == CausalRule::always) {
        check(asked.value_or(true), "load_layer: ", family.model_type,
              " models are causal; leave LayerOptions::causal out");
        return true;
    }
    return asked.value_or(config.flag("is_decoder").value_or(false));
}

void refuse_other_settings(Config& config, const Family& family) {
    for (const FixedKey& fixed : family.fixed) {
        const auto found = config.spelling(fixed.key);
        if (found && *found != fixed.setting) {
            fail(ErrorCode::unsupported, config.where(), ": ", fixed.key, " is ", quote(*found),
                 ", which headwise does not support; supported: ", quote(fixed.setting));
        }
    }
    const Json* pruned = config.find("pruned_heads");
    if (pruned != nullptr && !pruned->items.empty()) {
        fail(ErrorCode::unsupported, config.where(),
             ": pruned_heads is not empty; headwise needs all heads of a layer");
    }
}

}  // namespace

ModelPlan plan_model(const Json& root, const std::string& where, std::optional<bool> causal) {
    Config config(root, where);
    const Family& family = find_family(config);
    ModelPlan plan;
    plan.family = &family;
    plan.layers = config.size("num_hidden_layers").value_or(family.default_layers);
    plan.biases = family.bias == BiasRule::always || config.flag("attention_bias").value_or(false);
    read_heads(config, family, plan.config);
    if (family.rotation == RotationRule::half_split) {
        if (plan.config.head_dim % 2 != 0) {
            fail(ErrorCode::bad_data, where, ": head width ", plan.config.head_dim,
                 " is odd, but rotation works on pairs");
        }
        plan.config.rope = read_rope(config);
    }
    plan.config.mask.causal = read_causal(config, family, causal);
    config.flag("is_decoder");
    refuse_other_settings(config, family);
    std::vector<std::string_view> harmless(family.harmless.begin(), family.harmless.end());
    harmless.insert(harmless.end(), std::begin(kHarmlessAnywhere), std::end(kHarmlessAnywhere));
    config.refuse_unknown(harmless);
    return plan;
}

}  // namespace headwise
