#include "weights/families.h"

#include <algorithm>
#include <array>

#include "core/check.h"
#include "weights/config.h"
#include "weights/quote.h"
#include "weights/rope_config.h"

namespace headwise {
namespace {

using Names = std::string_view;

// Keys of any config.json that attention does not depend on: bookkeeping, tokens, text generation, other stages.
constexpr std::array kHarmlessAnywhere = {
    Names("architectures"), Names("transformers_version"), Names("torch_dtype"), Names("dtype"),
    Names("use_cache"),
    // model wrapper
    Names("return_dict"), Names("output_hidden_states"), Names("output_attentions"), Names("output_past"),
    Names("torchscript"), Names("use_bfloat16"), Names("tie_word_embeddings"), Names("tie_encoder_decoder"),
    Names("is_encoder_decoder"), Names("add_cross_attention"), Names("cross_attention_hidden_size"),
    Names("chunk_size_feed_forward"), Names("gradient_checkpointing"), Names("initializer_range"),
    Names("finetuning_task"), Names("id2label"), Names("label2id"), Names("num_labels"), Names("problem_type"),
    Names("task_specific_params"), Names("tf_legacy_loss"), Names("transformers.js_config"),
    Names("unsloth_version"), Names("unsloth_fixed"), Names("sentence_transformers"),
    // tokens
    Names("vocab_size"), Names("tokenizer_class"), Names("prefix"), Names("bos_token_id"), Names("eos_token_id"),
    Names("pad_token_id"), Names("sep_token_id"), Names("cls_token_id"), Names("decoder_start_token_id"),
    Names("forced_bos_token_id"), Names("forced_eos_token_id"), Names("suppress_tokens"),
    Names("begin_suppress_tokens"), Names("bad_words_ids"),
    // generation
    Names("max_length"), Names("min_length"), Names("do_sample"), Names("early_stopping"), Names("num_beams"),
    Names("num_beam_groups"), Names("diversity_penalty"), Names("temperature"), Names("top_k"), Names("top_p"),
    Names("typical_p"), Names("repetition_penalty"), Names("length_penalty"), Names("no_repeat_ngram_size"),
    Names("encoder_no_repeat_ngram_size"), Names("num_return_sequences"), Names("output_scores"),
    Names("return_dict_in_generate"), Names("exponential_decay_length_penalty"), Names("remove_invalid_values"),
    // other stages
    Names("hidden_act"), Names("intermediate_size"), Names("max_position_embeddings")};

constexpr std::array kBertHarmless = {Names("attention_probs_dropout_prob"),
                                      Names("hidden_dropout_prob"),
                                      Names("classifier_dropout"),
                                      Names("layer_norm_eps"),
                                      Names("type_vocab_size"),
                                      Names("directionality"),
                                      Names("pooler_fc_size"),
                                      Names("pooler_num_attention_heads"),
                                      Names("pooler_num_fc_layers"),
                                      Names("pooler_size_per_head"),
                                      Names("pooler_type")};

// pretraining_tp only cuts the same products into pieces.
constexpr std::array kLlamaHarmless = {Names("attention_dropout"),   Names("mlp_bias"),
                                       Names("rms_norm_eps"),        Names("pretraining_tp"),
                                       Names("max_sequence_length"), Names("original_max_position_embeddings")};

constexpr std::array kBertBeside = {Names("output.LayerNorm.")};
constexpr std::array kLlamaBeside = {Names("rotary_emb.inv_freq")};

// clang-format off
constexpr std::array kFamilies = {
    Family{
        .model_type = "bert",
        .base = "bert.", .module = "encoder.layer.#.attention.",
        .q = "self.query", .k = "self.key", .v = "self.value", .o = "output.dense", .beside = kBertBeside,
        .heads = HeadRule::equal, .bias = BiasRule::always,
        .causal = CausalRule::unless_asked, .rotation = RotationRule::none,
        .default_embed_dim = 768, .default_heads = 12, .default_layers = 12,
        .harmless = kBertHarmless},
    Family{
        .model_type = "roberta",
        .base = "roberta.", .module = "encoder.layer.#.attention.",
        .q = "self.query", .k = "self.key", .v = "self.value", .o = "output.dense", .beside = kBertBeside,
        .heads = HeadRule::equal, .bias = BiasRule::always,
        .causal = CausalRule::unless_asked, .rotation = RotationRule::none,
        .default_embed_dim = 768, .default_heads = 12, .default_layers = 12,
        .harmless = kBertHarmless},
    Family{
        .model_type = "llama",
        .base = "model.", .module = "layers.#.self_attn.",
        .q = "q_proj", .k = "k_proj", .v = "v_proj", .o = "o_proj", .beside = kLlamaBeside,
        .heads = HeadRule::grouped, .bias = BiasRule::attention_bias,
        .causal = CausalRule::always, .rotation = RotationRule::half_split,
        .default_embed_dim = 4096, .default_heads = 32, .default_layers = 32,
        .harmless = kLlamaHarmless},
};
// clang-format on

const Family& find_family(Config& config) {
    std::string supported;
    for (const Family& family : kFamilies)
        supported += (supported.empty() ? "" : ", ") + std::string(family.model_type);
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

// Switches that exist, with the one setting that headwise computes.
void refuse_other_settings(Config& config, const Family& family) {
    if (family.rotation == RotationRule::none) {
        const std::string type = config.string("position_embedding_type").value_or("absolute");
        if (type != "absolute") {
            fail(ErrorCode::unsupported, config.where(), ": position_embedding_type ", quote(type),
                 " is not supported; supported: 'absolute'");
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
    harmless.insert(harmless.end(), kHarmlessAnywhere.begin(), kHarmlessAnywhere.end());
    config.refuse_unknown(harmless);
    return plan;
}

}  // namespace headwise
