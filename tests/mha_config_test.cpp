// Every rule of MhaConfig and MhaWeights has a sentence of its own, found before anything is computed.
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include <headwise/error.h>
#include <headwise/mha.h>

#include "mha_layer.h"
#include "refused.h"

namespace headwise {
namespace {

using test::Layer;
using test::LayerParts;

// The config with one thing changed.
void expect_rule(const MhaConfig& good, const std::function<void(MhaConfig&)>& change, const std::string& part) {
    MhaConfig config = good;
    EXPECT_NO_THROW(resolve(config));
    change(config);
    expect_refused([&] { resolve(config); }, part);
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(MhaConfigRules, ScoresAndRows) {
    const MhaConfig good{.embed_dim = 24, .heads = 6, .kv_heads = 3};
    for (const double bad : {kNan, kInf, -1.0}) {
        expect_rule(
            good, [&](MhaConfig& c) { c.softcap = bad; }, "softcap");
        expect_rule(
            good, [&](MhaConfig& c) { c.clip_qkv = bad; }, "clip_qkv");
        expect_rule(
            good, [&](MhaConfig& c) { c.qk_norm = HeadNorm{.eps = bad}; }, "qk_norm eps");
        expect_rule(
            good, [&](MhaConfig& c) { c.merged_norm = MergedNorm{.norm = {.eps = bad}}; }, "merged_norm eps");
        expect_rule(
            good, [&](MhaConfig& c) { c.temperature = Temperature{.floor_scale = bad}; }, "floor_scale");
    }
    expect_rule(
        good, [](MhaConfig& c) { c.temperature = Temperature{.floor_scale = 0}; }, "must be positive");
    expect_rule(
        good, [](MhaConfig& c) { c.temperature = Temperature{.scale = kNan}; }, "temperature.scale");
    expect_rule(
        good, [](MhaConfig& c) { c.merged_norm = MergedNorm{.factor = kInf}; }, "merged_norm.factor");
    expect_rule(
        good, [](MhaConfig& c) { c.difference = HeadDifference{kNan}; }, "difference.lambda");
    expect_rule(
        good, [](MhaConfig& c) { c.gate = static_cast<Gate>(7); }, "gate is none of");
    expect_rule(
        {.embed_dim = 24, .heads = 3}, [](MhaConfig& c) { c.difference = HeadDifference{}; },
        "heads = 3 must be even");
    expect_rule(
        good, [](MhaConfig& c) { c.rope = Rope{.width = 6}; }, "leaves the head");
    expect_rule(
        good, [](MhaConfig& c) { c.rope = Rope{.offset = 1}; }, "must be even");
}

TEST(MhaConfigRules, Masks) {
    const MhaConfig good{.embed_dim = 24, .heads = 6};
    expect_rule(
        good, [](MhaConfig& c) { c.mask.chunk = -1; }, "mask.chunk");
    expect_rule(
        good, [](MhaConfig& c) { c.mask.keep_first = -1; }, "mask.keep_first");
    const std::int64_t numbers[] = {0, 1};
    const ConstTensorView view(numbers, DType::i64, {2});
    expect_rule(
        good, [&](MhaConfig& c) { c.mask.key_starts = view; }, "belong to a call");
    expect_rule(
        good, [&](MhaConfig& c) { c.mask.chunk_origins = view; }, "belong to a call");
    expect_rule(
        good, [&](MhaConfig& c) { c.mask.documents.queries = view; }, "belong to a call");
    expect_rule(
        good, [&](MhaConfig& c) { c.mask.blocks.counts = view; }, "belong to a call");
}

TEST(MhaConfigRules, RelativeBias) {
    MhaConfig good{.embed_dim = 24, .heads = 6};
    good.relative_bias = RelativeBias{};
    expect_rule(
        good, [](MhaConfig& c) { c.relative_bias->buckets = 0; }, "relative_bias.buckets must be positive");
    expect_rule(
        good, [](MhaConfig& c) { c.relative_bias->buckets = 31; }, "must be even and at least 4");
    expect_rule(
        good, [](MhaConfig& c) { c.relative_bias->buckets = 2; }, "must be even and at least 4");
    expect_rule(
        good, [](MhaConfig& c) { *c.relative_bias = {.buckets = 1, .bidirectional = false}; }, "at least 2");
    expect_rule(
        good, [](MhaConfig& c) { c.relative_bias->max_distance = 8; }, "must be above 8");
    expect_rule(
        good, [](MhaConfig& c) { c.relative_bias->max_distance = std::int64_t{1} << 31; }, "a table of more");
}

TEST(MhaConfigRules, Latent) {
    MhaConfig good{.embed_dim = 24, .heads = 4, .head_dim = 8};
    good.latent = Latent{.kv_rank = 10, .rope_dim = 4};
    good.rope = Rope{};
    const MhaConfig full = resolve(good);
    EXPECT_EQ(full.kv_heads, 4);
    EXPECT_EQ(full.rope->offset, 4);
    EXPECT_EQ(full.rope->width, 4);
    EXPECT_NO_THROW(resolve(full));  // what it fills in, it accepts
    expect_rule(
        good, [](MhaConfig& c) { c.kv_heads = 2; }, "kv_heads = 2 must be heads = 4");
    expect_rule(
        good, [](MhaConfig& c) { c.latent->kv_rank = 0; }, "latent.kv_rank must be positive");
    expect_rule(
        good, [](MhaConfig& c) { c.latent->q_rank = -3; }, "latent.q_rank");
    expect_rule(
        good, [](MhaConfig& c) { c.latent->eps = kNan; }, "latent.eps");
    expect_rule(
        good, [](MhaConfig& c) { c.latent->rope_dim = 8; }, "rope_dim = 8 must be below head_dim = 8");
    expect_rule(
        good, [](MhaConfig& c) { c.latent->rope_dim = 0; }, "without rope_dim");
    expect_rule(
        good, [](MhaConfig& c) { c.rope->offset = 2; }, "rotates the last rope_dim = 4");
    expect_rule(
        good, [](MhaConfig& c) { c.qk_norm = HeadNorm{}; }, "qk_norm in a latent layer");
    expect_rule(
        good, [](MhaConfig& c) { c.clip_qkv = 1; }, "clip_qkv in a latent layer");
    expect_rule(
        good, [](MhaConfig& c) { c.key_embed_dim = 12; }, "projects its latent from x");
}

TEST(MhaConfigRules, Routing) {
    MhaConfig good{.embed_dim = 24, .kv_heads = 3, .head_dim = 8};
    good.routing = Routing{.experts = 4, .top_k = 2};
    EXPECT_EQ(resolve(good).heads, 6);
    expect_rule(
        good, [](MhaConfig& c) { c.routing->top_k = 5; }, "top_k = 5 must be between 1 and routing.experts = 4");
    expect_rule(
        good, [](MhaConfig& c) { c.routing->top_k = 0; }, "top_k = 0");
    expect_rule(
        good, [](MhaConfig& c) { c.routing->experts = 0; }, "routing.experts must be positive");
    expect_rule(
        good, [](MhaConfig& c) { c.heads = 3; }, "give 6, or 0");
    expect_rule(
        good, [](MhaConfig& c) { c.kv_heads = 0; }, "kv_heads must be positive");
    expect_rule(
        good, [](MhaConfig& c) { c.difference = HeadDifference{}; }, "does not have");
    expect_rule(
        good, [](MhaConfig& c) { c.merged_norm = MergedNorm{}; }, "does not have");
}

// The weights of a good layer with one tensor replaced by one of another shape, or taken away.
struct Change {
    ConstTensorView MhaWeights::*tensor;
    const char* part;
};

void expect_weights(const MhaConfig& config, const LayerParts& parts, std::initializer_list<Change> changes) {
    Layer layer(config, parts);
    const Tensor odd(DType::f32, {3, 5, 7, 2});
    EXPECT_NO_THROW(MultiHeadAttention(layer.config, layer.weights));
    for (const Change& change : changes) {
        MhaWeights wrong = layer.weights;
        wrong.*change.tensor = odd.view();
        expect_refused([&] { MultiHeadAttention(layer.config, wrong); }, change.part);
    }
}

TEST(MhaWeightRules, EveryTensorIsChecked) {
    const LayerParts all{.norm_bias = true, .sinks = true, .alibi = true, .extra = true};
    MhaConfig config{.embed_dim = 24, .heads = 4, .gate = Gate::element};
    config.qk_norm = HeadNorm{}, config.merged_norm = MergedNorm{}, config.relative_bias = RelativeBias{};
    using W = MhaWeights;
    expect_weights(config, all,
                   {{&W::q, "q is f32 [3, 5, 7, 2]"},
                    {&W::k, "k is"},
                    {&W::v, "v is"},
                    {&W::o, "o is"},
                    {&W::q_bias, "q_bias is"},
                    {&W::k_bias, "k_bias is"},
                    {&W::v_bias, "v_bias is"},
                    {&W::o_bias, "o_bias is"},
                    {&W::q_norm, "q_norm"},
                    {&W::k_norm, "k_norm"},
                    {&W::q_norm_bias, "q_norm"},
                    {&W::k_norm_bias, "k_norm"},
                    {&W::sinks, "sinks is"},
                    {&W::alibi_slopes, "alibi_slopes is"},
                    {&W::relative_bias, "relative_bias is"},
                    {&W::gate, "gate is"},
                    {&W::gate_bias, "gate_bias is"},
                    {&W::merged_norm, "merged_norm"},
                    {&W::extra_key, "extra_key is"},
                    {&W::extra_value, "extra_value is"},
                    {&W::q_down, "the config is not latent"},
                    {&W::kv_up, "the config is not latent"},
                    {&W::router, "the config has no routing"},
                    {&W::expert_o, "the config has no routing"}});
    Layer layer(config, all);
    MhaWeights half = layer.weights;
    half.extra_value = {};
    expect_refused([&] { MultiHeadAttention(layer.config, half); }, "give both or none");
}

TEST(MhaWeightRules, OfPartsThatTheConfigLacks) {
    using W = MhaWeights;
    expect_weights({.embed_dim = 24, .heads = 4}, {},
                   {{&W::q_norm, "no qk_norm"},
                    {&W::k_norm_bias, "no qk_norm"},
                    {&W::relative_bias, "no relative_bias"},
                    {&W::gate, "no gate"},
                    {&W::gate_bias, "no gate"},
                    {&W::merged_norm, "no merged_norm"},
                    {&W::q_down_norm, "not latent"},
                    {&W::kv_down, "not latent"}});
}

TEST(MhaWeightRules, LatentAndRouted) {
    using W = MhaWeights;
    MhaConfig latent{.embed_dim = 24, .heads = 4, .head_dim = 8};
    latent.latent = Latent{.q_rank = 6, .kv_rank = 10, .rope_dim = 4};
    expect_weights(latent, {},
                   {{&W::q, "q is"},
                    {&W::q_down, "q_down is"},
                    {&W::q_down_bias, "q_down_bias is"},
                    {&W::q_down_norm, "q_down_norm is"},
                    {&W::kv_down, "kv_down is"},
                    {&W::kv_down_bias, "kv_down_bias is"},
                    {&W::kv_down_norm, "kv_down_norm is"},
                    {&W::kv_up, "kv_up is"},
                    {&W::k, "from kv_down and kv_up"},
                    {&W::v_bias, "from kv_down and kv_up"},
                    {&W::extra_key, "from kv_down and kv_up"}});
    latent.latent->q_rank = 0;
    expect_weights(latent, {}, {{&W::q_down, "projected directly"}, {&W::q_down_norm, "projected directly"}});
    MhaConfig routed{.embed_dim = 24, .kv_heads = 3, .head_dim = 8};
    routed.routing = Routing{.experts = 4, .top_k = 2};
    expect_weights(routed, {},
                   {{&W::router, "router is"},
                    {&W::expert_q, "expert_q is"},
                    {&W::expert_o, "expert_o is"},
                    {&W::q, "expert_q and expert_o instead"},
                    {&W::q_bias, "expert_q and expert_o instead"},
                    {&W::o, "expert_q and expert_o instead"}});
}

}  // namespace
}  // namespace headwise
