// Rules about positions, heads and projections.
#include <cmath>

#include "core/check.h"
#include "weights/quote.h"
#include "weights/rules.h"

namespace headwise::rules {
namespace {

// Objects that transformers 4 wrote with all fields of a whole configuration.
constexpr std::string_view kInsideAttnConfig =
    "attn_pdrop attn_impl attn_uses_sequence_id model_type architectures dtype torch_dtype "
    "chunk_size_feed_forward "
    "id2label label2id is_encoder_decoder output_attentions output_hidden_states problem_type return_dict "
    "alibi_bias_max";  // alibi_bias_max never reaches the slopes of the model class

void refuse_setting(Config& config, std::string_view key, std::string_view supported) {
    const auto found = config.spelling(key);
    if (found && *found != supported) {
        fail(ErrorCode::unsupported, config.where(), ": ", key, " is ", quote(*found),
             ", which headwise does not support; supported: ", quote(supported));
    }
}

}  // namespace

// no_rope_layers holds 1 where a layer rotates.
void rotate_by_no_rope_layers(Config& config, LayerPlan& plan) {
    const Json* layers = config.list("no_rope_layers");
    const std::int64_t interval = config.size("no_rope_layer_interval").value_or(4);
    if (layers == nullptr || layers->items.empty()) {
        plan.rotates = (plan.layer + 1) % interval != 0;
        return;
    }
    if (static_cast<std::int64_t>(layers->items.size()) <= plan.layer) {
        fail(ErrorCode::bad_data, config.where(), ": no_rope_layers has ", layers->items.size(),
             " entries, none for layer ", plan.layer);
    }
    const Json& entry = layers->items[static_cast<std::size_t>(plan.layer)];
    if (entry.kind != Json::Kind::integer || (entry.whole != 0 && entry.whole != 1)) {
        fail(ErrorCode::bad_data, config.where(), ": an entry of no_rope_layers is neither 0 nor 1");
    }
    plan.rotates = entry.whole == 1;
}

void rotate_windowed_layers_only(Config&, LayerPlan& plan) { plan.rotates = plan.kind == LayerKind::windowed; }

void rotate_unless_full_beside_windows(Config& config, LayerPlan& plan) {
    plan.rotates = plan.kind == LayerKind::windowed || config.find("sliding_window") == nullptr;
}

void rotary_dim(Config& config, LayerPlan& plan) {
    plan.rotary_width = config.given("rotary_dim") ? config.size("rotary_dim").value_or(0) : 64;
}

void rotate_backwards(Config&, LayerPlan& plan) { plan.rotates_backwards = true; }

void rotate_alternately_unless_told(Config& config, LayerPlan& plan) {
    if (!config.flag("rope_interleave").value_or(true)) plan.pairs = Rope::Pairs::half_split;
}

void width_is_embed_dim_over_heads(Config&, LayerPlan& plan) { plan.config.head_dim = 0; }

void no_key_bias(Config&, LayerPlan& plan) { plan.k_bias = false; }

// Falcon: one kv head for all; or num_kv_heads; or one for each query head.
void falcon_heads(Config& config, LayerPlan& plan) {
    MhaConfig& c = plan.config;
    const bool grouped = config.flag("new_decoder_architecture").value_or(false);
    const bool multi_query = config.flag("multi_query").value_or(true);
    const std::int64_t old_name = config.size("n_head_kv").value_or(c.heads);
    const std::int64_t kv_heads = config.size("num_kv_heads").value_or(old_name);
    c.kv_heads = grouped ? kv_heads : multi_query ? 1 : c.heads;
    plan.layout = grouped || !multi_query ? Layout::by_kv_head : Layout::joined;
}

void bigcode_heads(Config& config, LayerPlan& plan) {
    const bool multi_query = config.flag("multi_query").value_or(true);
    config.ignore("num_key_value_heads");  // follows from multi_query
    plan.config.kv_heads = multi_query ? 1 : plan.config.heads;
    plan.layout = multi_query ? Layout::joined : Layout::by_kv_head;
}

void mpt_attn_config(Config& config, LayerPlan& plan) {
    plan.alibi_scale = 1;
    std::optional<Config> inner = config.object("attn_config");
    if (!inner) return;
    if (!inner->flag("alibi").value_or(true)) plan.alibi_scale = 0;
    clip_qkv(*inner, plan);
    if (const auto scale = inner->number("softmax_scale")) plan.config.scale = *scale;
    refuse_setting(*inner, "attn_type", "multihead_attention");
    refuse_setting(*inner, "prefix_lm", "false");
    refuse_setting(*inner, "qk_ln", "false");
    inner->refuse_unknown({kInsideAttnConfig});
}

void dbrx_attn_config(Config& config, LayerPlan& plan) {
    config.ignore("num_key_value_heads");  // a copy of kv_n_heads
    plan.config.kv_heads = 1;
    std::optional<Config> inner = config.object("attn_config");
    if (!inner) return;
    plan.config.kv_heads = inner->size("kv_n_heads").value_or(1);
    clip_qkv(*inner, plan);
    inner->ignore("rope_theta");  // the model class takes rope_parameters instead
    inner->refuse_unknown({kInsideAttnConfig});
}

void latent_attention(Config& config, LayerPlan& plan) {
    MhaConfig& c = plan.config;
    const std::int64_t nope = config.size("qk_nope_head_dim").value_or(128);
    const std::int64_t rope = config.size("qk_rope_head_dim").value_or(64);
    const std::int64_t q_rank = config.given("q_lora_rank") ? config.size("q_lora_rank").value_or(0) : 1536;
    const std::int64_t width = nope + rope;
    if (config.size("qk_head_dim").value_or(width) != width) {
        fail(ErrorCode::bad_data, config.where(),
             ": qk_head_dim is not qk_nope_head_dim + qk_rope_head_dim = ", width);
    }
    config.ignore("head_dim");             // the rotated part, or a left-over
    config.ignore("num_key_value_heads");  // every head has its own key
    c.latent = Latent{
        .q_rank = q_rank, .kv_rank = config.size("kv_lora_rank").value_or(512), .rope_dim = rope, .eps = 1e-6};
    c.kv_heads = c.heads;
    c.head_dim = width;
    c.value_dim = config.size("v_head_dim").value_or(128);
    plan.kv_down_bias = plan.o_bias;
    plan.q_bias = plan.o_bias && q_rank > 0;
}

// num_key_value_heads heads of kv_channels; each of the num_experts_per_tok experts of a token gives a q for each.
void routed_attention(Config& config, LayerPlan& plan) {
    MhaConfig& c = plan.config;
    const Routing routing{.experts = config.size("num_local_experts").value_or(8),
                          .top_k = config.size("num_experts_per_tok").value_or(2)};
    if (routing.top_k > routing.experts) {
        fail(ErrorCode::bad_data, config.where(), ": num_experts_per_tok ", routing.top_k,
             " is more than num_local_experts ", routing.experts);
    }
    const std::int64_t heads = checked_rows(config.where(), c.kv_heads, routing.top_k);
    if (config.size("num_attention_heads").value_or(heads) != heads) {
        fail(ErrorCode::bad_data, config.where(),
             ": num_attention_heads is not num_key_value_heads * num_experts_per_tok = ", heads);
    }
    c.routing = routing;
    c.heads = heads;
}

void difference_of_heads(Config& config, LayerPlan& plan) {
    MhaConfig& c = plan.config;
    if (c.kv_heads % 2 != 0) {
        fail(ErrorCode::bad_data, config.where(), ": num_key_value_heads ", c.kv_heads,
             " is odd, but values are taken in two halves");
    }
    if (c.head_dim == 0) c.head_dim = c.embed_dim / c.heads;
    const double initial = 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(plan.layer));
    plan.difference = DifferenceRule{initial};
    c.value_dim = 2 * c.head_dim;
    c.difference = HeadDifference{};  // lambda comes from the tensors
    c.merged_norm = MergedNorm{.norm = {.kind = HeadNorm::Kind::rms,
                                        .extent = HeadNorm::Extent::head,
                                        .weight = HeadNorm::Weight::none,
                                        .eps = config.number("rms_norm_eps").value_or(1e-5)},
                               .factor = 1 - initial};
}

void norm_before_output(Config& config, LayerPlan& plan) {
    plan.config.merged_norm = MergedNorm{.norm = {.kind = HeadNorm::Kind::rms,
                                                  .extent = HeadNorm::Extent::row,
                                                  .weight = HeadNorm::Weight::w,
                                                  .eps = config.number("rms_norm_eps").value_or(1e-5)}};
    plan.tensors.push_back(
        {.name = "attn_sub_norm.weight", .shape = {plan.config.embed_dim}, .to = &LayerWeights::merged_norm});
}

void gate_beside_query(Config&, LayerPlan& plan) { plan.config.gate = Gate::element; }

void qk_norm_where_rotated(Config&, LayerPlan& plan) { plan.normalises = plan.rotates; }

// num_hidden_layers layers share the weights of num_hidden_groups stored ones.
void layer_groups(Config& config, LayerPlan& plan) {
    const std::int64_t groups = config.size("num_hidden_groups").value_or(1);
    if (const std::int64_t inner = config.size("inner_group_num").value_or(1); inner != 1) {
        fail(ErrorCode::unsupported, config.where(), ": inner_group_num is ", inner,
             "; headwise knows groups of one layer");
    }
    if (groups > plan.layers || plan.layers % groups != 0) {
        fail(ErrorCode::bad_data, config.where(), ": num_hidden_layers ", plan.layers,
             " is not a multiple of num_hidden_groups ", groups);
    }
    plan.repeats = plan.layers / groups;
}

}  // namespace headwise::rules
