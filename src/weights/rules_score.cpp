// Rules about scores.
#include <cmath>

#include "core/check.h"
#include "weights/rules.h"

namespace headwise::rules {
namespace {

double positive(Config& config, std::string_view key, double preset) {
    const double value = config.number(key).value_or(preset);
    if (!(value > 0)) fail(ErrorCode::bad_data, config.where(), ": ", key, " is ", value, ", expected > 0");
    return value;
}

bool crosses(const LayerPlan& plan) { return plan.module->sees == Module::Sees::other_side; }

RelativeBias read_buckets(Config& config, const LayerPlan& plan) {
    const std::int64_t buckets = config.size("relative_attention_num_buckets").value_or(32);
    const std::int64_t distance = config.size("relative_attention_max_distance").value_or(128);
    return {.buckets = buckets, .max_distance = distance, .bidirectional = !plan.config.mask.causal};
}

void add_buckets(LayerPlan& plan, const RelativeBias& bias, std::string name, bool outside) {
    plan.config.relative_bias = bias;
    plan.tensors.push_back({.name = std::move(name),
                            .shape = {bias.buckets, plan.config.heads},
                            .to = &LayerWeights::relative_bias,
                            .outside = outside});
}

}  // namespace

void unscaled(Config&, LayerPlan& plan) { plan.config.scale = 1; }

void scale_from_query_pre_attn_scalar(Config& config, LayerPlan& plan) {
    plan.config.scale = 1 / std::sqrt(positive(config, "query_pre_attn_scalar", 256));
}

void scale_from_attention_multiplier(Config& config, LayerPlan& plan) {
    plan.config.scale = config.number("attention_multiplier").value_or(1);
}

void scale_switches_of_gpt2(Config& config, LayerPlan& plan) {
    const MhaConfig& c = plan.config;
    double scale = 1;
    if (config.flag("scale_attn_weights").value_or(true)) {
        scale = 1 / std::sqrt(static_cast<double>(c.head_dim > 0 ? c.head_dim : c.embed_dim / c.heads));
    }
    if (config.flag("scale_attn_by_inverse_layer_idx").value_or(false)) {
        scale /= static_cast<double>(plan.layer + 1);
    }
    plan.config.scale = scale;
}

void softcap_from_attn_logit_softcapping(Config& config, LayerPlan& plan) {
    if (!config.given("attn_logit_softcapping")) {
        plan.config.softcap = 50;
    } else if (config.find("attn_logit_softcapping") != nullptr) {
        plan.config.softcap = positive(config, "attn_logit_softcapping", 50);
    }
}

void clip_qkv(Config& config, LayerPlan& plan) {
    if (config.find("clip_qkv") != nullptr) plan.config.clip_qkv = positive(config, "clip_qkv", 1);
}

void temperature_where_not_rotated(Config& config, LayerPlan& plan) {
    const bool tuning = config.flag("attn_temperature_tuning").value_or(true);
    const Temperature temperature{.scale = config.number("attn_scale").value_or(0.1),
                                  .floor_scale = positive(config, "floor_scale", 8192)};
    if (tuning && !plan.rotates) plan.config.temperature = temperature;
}

void sinks(Config&, LayerPlan& plan) {
    plan.tensors.push_back({.name = "sinks", .shape = {plan.config.heads}, .to = &LayerWeights::sinks});
}

void alibi(Config&, LayerPlan& plan) { plan.alibi_scale = 1; }

void alibi_instead_of_rotation(Config& config, LayerPlan& plan) {
    if (!config.flag("alibi").value_or(false)) return;
    const MhaConfig& c = plan.config;
    plan.rotates = false;
    plan.alibi_scale = 1 / std::sqrt(static_cast<double>(c.head_dim > 0 ? c.head_dim : c.embed_dim / c.heads));
    plan.alibi_bf16 = true;
}

void bucketed_bias(Config& config, LayerPlan& plan) {
    const RelativeBias bias = read_buckets(config, plan);
    if (crosses(plan)) return;
    const std::string stack = plan.config.mask.causal ? "decoder" : "encoder";
    add_buckets(plan, bias, stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight", true);
}

void bucketed_bias_of_every_layer(Config& config, LayerPlan& plan) {
    const RelativeBias bias = read_buckets(config, plan);
    if (!crosses(plan)) add_buckets(plan, bias, "relative_attention_bias.weight", false);
}

void bucketed_bias_of_the_stack(Config& config, LayerPlan& plan) {
    RelativeBias bias = read_buckets(config, plan);
    bias.max_distance = 128;  // MPNet fixes it
    add_buckets(plan, bias, "encoder.relative_attention_bias.weight", true);
}

}  // namespace headwise::rules
