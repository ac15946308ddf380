// Every part of a layer that MhaConfig can switch on, alone and together, against the f64 loops of layer_reference.h.
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/error.h>
#include <headwise/mha.h>

#include "isas.h"
#include "layer_reference.h"
#include "mha_layer.h"
#include "refused.h"

namespace headwise {
namespace {

using test::Layer;
using test::LayerParts;

// What single precision must reach on a whole layer: 4e-6 of the largest element. Plain float32 stays at 5e-7.
void expect_near(const Tensor& y, const test::DenseRows& expected, const char* what) {
    double largest = 0, worst = 0;
    ASSERT_EQ(static_cast<std::size_t>(y.count()), expected.values.size()) << what;
    for (const double each : expected.values) largest = std::max(largest, std::abs(each));
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
        const double error = std::abs(y.data<float>()[i] - expected.values[i]);
        if (!(error <= worst)) worst = error;
    }
    EXPECT_LE(worst, 4e-6 * largest) << what;
}

void expect_layer(Layer& layer, const ConstTensorView& x, const ForwardOptions& options, const char* what) {
    const MultiHeadAttention block(layer.config, layer.weights);
    test::LayerReference reference(layer.config, layer.weights);
    expect_near(block.forward(x, options), reference.run(x, options), what);
}

class Parts : public testing::TestWithParam<const KernelTable*> {
protected:
    void SetUp() override { set_isa(GetParam()->isa); }
    void TearDown() override { set_isa(""); }
};
INSTANTIATE_TEST_SUITE_P(Isa, Parts, testing::ValuesIn(test_tables()),
                         [](const auto& table) { return std::string(table.param->isa); });

TEST_P(Parts, Clip) {
    for (const double limit : {0.3, 1.0, 100.0}) {
        Layer layer({.embed_dim = 40, .heads = 5, .kv_heads = 1, .clip_qkv = limit, .mask = causal()});
        expect_layer(layer, layer.rows(2, 7, 40), {}, "clip");
    }
}

TEST_P(Parts, Gate) {
    for (const Gate gate : {Gate::head, Gate::element}) {
        for (const std::int64_t width : {1, 7, 16, 130}) {
            Layer layer({.embed_dim = 24, .heads = 4, .kv_heads = 2, .value_dim = width, .gate = gate});
            expect_layer(layer, layer.rows(2, 5, 24), {}, "gate");
        }
        Layer cross({.embed_dim = 24, .heads = 4, .key_embed_dim = 9, .value_embed_dim = 9, .gate = gate}, false);
        expect_layer(cross, cross.rows(2, 5, 24), {.key = cross.rows(2, 3, 9)}, "gate of cross attention");
    }
}

TEST_P(Parts, DifferenceAndMergedNorm) {
    for (const bool difference : {false, true}) {
        for (const auto extent : {HeadNorm::Extent::head, HeadNorm::Extent::row}) {
            for (const auto weight : {HeadNorm::Weight::none, HeadNorm::Weight::w, HeadNorm::Weight::one_plus_w}) {
                MhaConfig config{.embed_dim = 24, .heads = 4, .kv_heads = 2, .value_dim = 12};
                if (difference) config.difference = HeadDifference{0.37};
                config.merged_norm = MergedNorm{.norm = {.extent = extent, .weight = weight}, .factor = 0.6};
                Layer layer(config);
                expect_layer(layer, layer.rows(2, 5, 24), {}, "merged norm");
            }
        }
    }
    MhaConfig plain{.embed_dim = 24, .heads = 4};
    plain.difference = HeadDifference{-1.5};
    Layer layer(plain);
    expect_layer(layer, layer.rows(1, 5, 24), {}, "difference alone");
}

TEST_P(Parts, QkNorm) {
    for (const auto kind : {HeadNorm::Kind::rms, HeadNorm::Kind::layer_norm}) {
        for (const auto extent : {HeadNorm::Extent::head, HeadNorm::Extent::row}) {
            for (const auto weight : {HeadNorm::Weight::none, HeadNorm::Weight::w, HeadNorm::Weight::one_plus_w}) {
                for (const bool after : {false, true}) {
                    MhaConfig config{.embed_dim = 24, .heads = 4, .kv_heads = 2, .mask = causal()};
                    config.qk_norm =
                        HeadNorm{.kind = kind, .extent = extent, .weight = weight, .after_rope = after};
                    config.rope = Rope{.theta = 100};
                    Layer layer(config, LayerParts{.norm_bias = extent == HeadNorm::Extent::head});
                    expect_layer(layer, layer.rows(2, 6, 24), {}, "qk norm");
                }
            }
        }
    }
}

TEST_P(Parts, Latent) {
    for (const std::int64_t q_rank : {0, 12}) {
        for (const auto form : {Latent::Form::naive, Latent::Form::absorbed, Latent::Form::automatic}) {
            MhaConfig config{.embed_dim = 32, .heads = 4, .head_dim = 14, .value_dim = 9, .mask = causal()};
            config.latent = Latent{.q_rank = q_rank, .kv_rank = 20, .rope_dim = 6, .form = form};
            config.rope = Rope{.theta = 100, .pairs = Rope::Pairs::interleaved};
            Layer layer(config);
            expect_layer(layer, layer.rows(2, 9, 32), {}, "latent");
        }
    }
}

// A latent layer without rotation, with a gate of its elements and a norm of the merged row.
TEST_P(Parts, LatentWithOtherParts) {
    for (const auto form : {Latent::Form::naive, Latent::Form::absorbed}) {
        MhaConfig config{.embed_dim = 32, .heads = 4, .head_dim = 8, .value_dim = 10, .gate = Gate::element};
        config.latent = Latent{.kv_rank = 20, .form = form};
        config.merged_norm = MergedNorm{};
        Layer layer(config);
        expect_layer(layer, layer.rows(2, 5, 32), {}, "latent with gate");
    }
}

TEST_P(Parts, Routing) {
    for (const std::int64_t top_k : {1, 2, 5}) {
        MhaConfig config{.embed_dim = 24, .kv_heads = 3, .head_dim = 8, .value_dim = 6, .mask = causal()};
        config.routing = Routing{.experts = 5, .top_k = top_k};
        for (const bool biases : {true, false}) {
            Layer layer(config, biases);
            for (const std::int64_t tokens : {1, 11})
                expect_layer(layer, layer.rows(2, tokens, 24), {}, "routing");
        }
    }
}

TEST_P(Parts, ScoreRules) {
    MhaConfig config{.embed_dim = 24, .heads = 4, .kv_heads = 2, .mask = causal()};
    const auto expect = [&](const LayerParts& parts, const char* what) {
        Layer layer(config, parts);
        for (const std::int64_t tokens : {1, 9, 40}) expect_layer(layer, layer.rows(2, tokens, 24), {}, what);
    };
    config.softcap = 0.8;
    expect({}, "softcap");
    config.softcap = 0;
    config.scale = -0.4;
    expect({}, "negative scale");
    config.scale = {};
    expect({.sinks = true}, "sinks");
    expect({.alibi = true}, "alibi");
    config.zero_key = true;
    expect({}, "zero key");
    expect({.sinks = true}, "zero key and sinks");
    config.zero_key = false;
    config.temperature = Temperature{.scale = 0.7, .floor_scale = 3};
    expect({}, "temperature");
    config.mask = causal() & chunked(4);
    expect({}, "temperature and chunk");
}

TEST_P(Parts, RelativeBias) {
    for (const bool bidirectional : {true, false}) {
        for (const std::int64_t buckets : {4, 8, 32}) {
            for (const std::int64_t distance : {17, 40, 128}) {
                MhaConfig config{.embed_dim = 24, .heads = 4, .scale = 1};
                config.relative_bias =
                    RelativeBias{.buckets = buckets, .max_distance = distance, .bidirectional = bidirectional};
                if (!bidirectional) config.mask = causal();
                Layer layer(config);
                expect_layer(layer, layer.rows(1, 60, 24), {}, "relative bias");
            }
        }
    }
}

// Explicit places of the rows: what depends on t - p follows them, the rotation has positions of its own.
TEST_P(Parts, Positions) {
    MhaConfig config{.embed_dim = 24, .heads = 4, .mask = causal() & window(4, 0)};
    config.temperature = Temperature{.scale = 0.7, .floor_scale = 3};
    config.rope = Rope{.theta = 100};
    Layer layer(config, LayerParts{.alibi = true});
    const Tensor x = layer.rows(2, 9, 24);
    const std::int64_t offsets[] = {2, -3};
    expect_layer(layer, x, {.positions = Positions::at(ConstTensorView(offsets, DType::i64, {2}))}, "offsets");
    expect_layer(layer, x, {.positions = Positions::top_left()}, "top left");
    std::vector<std::int32_t> places;
    for (int i = 0; i < 18; ++i) places.push_back(i * 5 % 11);
    expect_layer(layer, x, {.rope_positions = ConstTensorView(places.data(), DType::i32, {2, 9})}, "rotation");
}

// Packed documents: the temperature counts from the start of each, as masks and alibi do.
TEST_P(Parts, Documents) {
    MhaConfig config{.embed_dim = 24, .heads = 4, .mask = causal()};
    config.temperature = Temperature{.scale = 0.7, .floor_scale = 2};
    Layer layer(config, LayerParts{.alibi = true});
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(1, 12, 24);
    const std::int64_t ends[] = {0, 5, 5, 12};
    const Tensor y = block.forward(x, {.mask = documents(ConstTensorView(ends, DType::i64, {4}))});
    for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 5}, {5, 7}}) {
        const Tensor alone = block.forward(x.view().slice(1, first, count));
        EXPECT_EQ(std::memcmp(alone.data<float>(), y.data<float>() + first * 24,
                              static_cast<std::size_t>(count * 24) * 4),
                  0);
    }
}

// Keys that every query sees, whatever masks say: with them no row is empty.
TEST_P(Parts, ExtraKey) {
    for (const bool zero : {false, true}) {
        for (const bool sinks : {false, true}) {
            MhaConfig config{.embed_dim = 24, .heads = 4, .kv_heads = 2, .value_dim = 5, .softcap = 3};
            config.gate = Gate::head, config.zero_key = zero, config.mask = causal();
            Layer layer(config, LayerParts{.sinks = sinks, .extra = true});
            const Tensor x = layer.rows(2, 6, 24);
            expect_layer(layer, x, {}, "causal");
            expect_layer(layer, x, {.positions = Positions::top_left()}, "top left");
            const std::int64_t lengths[] = {3, 0};
            const ConstTensorView counts(lengths, DType::i64, {2});
            expect_layer(layer, x, {.mask = key_lengths(counts)}, "lengths");
            std::vector<std::uint8_t> see(36, 0);
            see[8] = 1;
            expect_layer(layer, x, {.mask = keep(ConstTensorView(see.data(), DType::boolean, {6, 6}))}, "keep");
        }
    }
}

TEST_P(Parts, ExtraKeyBehindACache) {
    MhaConfig config{.embed_dim = 24, .heads = 4, .kv_heads = 2, .mask = causal()};
    config.zero_key = true;
    Layer layer(config, LayerParts{.extra = true});
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(2, 6, 24), whole = block.forward(x);
    KvCache cache = make_cache(config, {.batch = 2, .capacity = 6});
    Tensor y(DType::f32, {2, 6, 24}), lse(DType::f32, {2, 4, 6}), lse_whole(DType::f32, {2, 4, 6});
    block.forward(x, y, {.lse = lse_whole});
    for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 4}, {4, 2}}) {
        block.forward(x.view().slice(1, first, count), y.view().slice(1, first, count),
                      {.cache = &cache, .lse = lse.view().slice(2, first, count)});
    }
    EXPECT_EQ(std::memcmp(y.data<float>(), whole.data<float>(), static_cast<std::size_t>(y.count()) * 4), 0);
    EXPECT_EQ(std::memcmp(lse.data<float>(), lse_whole.data<float>(), static_cast<std::size_t>(lse.count()) * 4),
              0);
}

// Weights of all rows against the reference; parts of them, and other kinds, against the whole.
void expect_weights(Layer& layer, const Tensor& x, ForwardOptions options, const char* what) {
    const MultiHeadAttention block(layer.config, layer.weights);
    test::LayerReference reference(layer.config, layer.weights);
    reference.run(x, options);
    const std::int64_t B = x.size(0), T = x.size(1), H = layer.config.heads;
    const std::int64_t keys = static_cast<std::int64_t>(reference.attention.size()) / (B * H * T);
    Tensor weights(DType::f32, {B, H, T, keys}), part(DType::f32, {B, 2, 3, keys});
    const Tensor plain = block.forward(x, options);
    options.scores_to = weights;
    const Tensor y = block.forward(x, options);
    EXPECT_EQ(std::memcmp(y.data<float>(), plain.data<float>(), static_cast<std::size_t>(y.count()) * 4), 0)
        << what;
    for (std::size_t i = 0; i < reference.attention.size(); ++i)
        ASSERT_NEAR(weights.data<float>()[i], reference.attention[i], 4e-6) << what << " " << i;
    options.scores = {.first_head = 1, .heads = 2, .first_row = 2, .rows = 3};
    options.scores_to = part;
    block.forward(x, options);
    for (std::int64_t b = 0; b < B; ++b)
        for (std::int64_t h = 0; h < 2; ++h)
            for (std::int64_t i = 0; i < 3; ++i)
                EXPECT_EQ(std::memcmp(part.data<float>() + ((b * 2 + h) * 3 + i) * keys,
                                      weights.data<float>() + ((b * H + h + 1) * T + i + 2) * keys,
                                      static_cast<std::size_t>(keys) * 4),
                          0)
                    << what;
}

TEST_P(Parts, WeightsOnRequest) {
    MhaConfig config{.embed_dim = 24, .heads = 4, .kv_heads = 2, .softcap = 2, .mask = causal() & window(3, 0)};
    for (const bool zero : {false, true}) {
        for (const bool extra : {false, true}) {
            config.zero_key = zero;
            Layer layer(config, LayerParts{.sinks = true, .alibi = true, .extra = extra});
            expect_weights(layer, layer.rows(2, 7, 24), {}, "extra keys");
        }
    }
    MhaConfig latent{.embed_dim = 24, .heads = 4, .head_dim = 10, .value_dim = 6, .mask = causal()};
    for (const auto form : {Latent::Form::naive, Latent::Form::absorbed}) {
        latent.latent = Latent{.kv_rank = 12, .rope_dim = 4, .form = form};
        Layer layer(latent);
        expect_weights(layer, layer.rows(2, 7, 24), {}, "latent");
    }
}

TEST_P(Parts, WeightsBehindACache) {
    MhaConfig latent{.embed_dim = 24, .heads = 4, .head_dim = 10, .value_dim = 6, .mask = causal()};
    latent.latent = Latent{.kv_rank = 12, .rope_dim = 4};
    MhaConfig plain{.embed_dim = 24, .heads = 4, .kv_heads = 2, .mask = causal()};
    plain.zero_key = true;
    for (const MhaConfig& config : {latent, plain}) {
        Layer layer(config);
        const MultiHeadAttention block(layer.config, layer.weights);
        test::LayerReference reference(layer.config, layer.weights);
        const Tensor x = layer.rows(1, 9, 24);
        reference.run(x);
        const std::int64_t keys = 9 + (config.zero_key ? 1 : 0);
        KvCache cache = make_cache(config, {.capacity = 9});
        block.forward(x.view().slice(1, 0, 6), {.cache = &cache});
        Tensor weights(DType::f32, {1, 4, 3, keys});
        block.forward(x.view().slice(1, 6, 3), {.cache = &cache, .scores_to = weights});
        for (std::int64_t h = 0; h < 4; ++h)
            for (std::int64_t i = 0; i < 3 * keys; ++i)
                EXPECT_NEAR(weights.data<float>()[h * 3 * keys + i],
                            reference.attention[static_cast<std::size_t>((h * 9 + 6) * keys + i)], 4e-6);
    }
}

TEST(PartsErrors, ScoresMustFit) {
    Layer layer({.embed_dim = 24, .heads = 4});
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(2, 5, 24);
    Tensor to(DType::f32, {2, 4, 5, 5}), narrow(DType::f32, {2, 4, 5, 4}), wide(DType::f64, {2, 4, 5, 5});
    const auto refused = [&](const ScoreRequest& request, const TensorView& view) {
        EXPECT_THROW(block.forward(x, {.scores = request, .scores_to = view}), Error);
    };
    EXPECT_NO_THROW(block.forward(x, {.scores_to = to}));
    refused({}, narrow);
    refused({}, wide);
    refused({.first_head = 5}, to);
    refused({.first_head = -1}, to);
    refused({.heads = 3}, to);
    refused({.first_row = 1}, to);
    refused({.rows = 6}, to);
    refused({.kind = static_cast<ScoreKind>(9)}, to);
}

// A temperature reads documents and offsets before attend() does.
TEST(PartsErrors, PositionsOfATemperatureMustFit) {
    MhaConfig config{.embed_dim = 24, .heads = 4, .mask = causal()};
    config.temperature = Temperature{};
    Layer layer(config);
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(2, 5, 24), one = layer.rows(1, 5, 24);
    const std::int64_t numbers[] = {0, 9};
    const auto first = [&](std::int64_t count) { return ConstTensorView(numbers, DType::i64, {count}); };
    const auto refused = [&](const Tensor& rows, const ForwardOptions& options, const char* words) {
        expect_refused([&] { block.forward(rows, options); }, words);
    };
    refused(x, {.positions = Positions::at(first(1))}, "forward: offsets");
    refused(x, {.mask = documents(first(2))}, "forward: there are documents in a batch of 2");
    refused(one, {.mask = documents(first(0))}, "documents + 1");
    refused(one, {.mask = documents(first(1))}, "must end with all 5");
    refused(one, {.mask = documents(first(2))}, "must end with all 5");
}

// Equal logits: the expert with the lower index wins.
TEST_P(Parts, RoutingTie) {
    MhaConfig config{.embed_dim = 4, .kv_heads = 1, .head_dim = 4};
    config.routing = Routing{.experts = 6, .top_k = 2};
    Layer layer(config, false);
    const std::vector<float> zeros(24, 0.0f);
    layer.weights.router = ConstTensorView(zeros.data(), DType::f32, {6, 4});
    const Tensor x = layer.rows(1, 3, 4);
    expect_layer(layer, x, {}, "tie");
    // Only the first two experts can have taken part.
    const MultiHeadAttention all(layer.config, layer.weights);
    config.routing->experts = 2;
    layer.weights.router = layer.weights.router.slice(0, 0, 2);
    layer.weights.expert_q = layer.weights.expert_q.slice(0, 0, 2);
    layer.weights.expert_o = layer.weights.expert_o.slice(0, 0, 2);
    const MultiHeadAttention two(config, layer.weights);
    const Tensor a = all.forward(x), b = two.forward(x);
    EXPECT_EQ(std::memcmp(a.data<float>(), b.data<float>(), static_cast<std::size_t>(a.count()) * 4), 0);
}

}  // namespace
}  // namespace headwise
