// trace(): the addresses of a real run say that split and merge move nothing.
#include <algorithm>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include <headwise/trace.h>

#include "mha_layer.h"

namespace headwise {
namespace {

struct Case {
    MhaConfig config;
    Tensor q, k, v, o;
    MhaWeights weights;

    explicit Case(const MhaConfig& given) : config(resolve(given)) {
        q = Tensor(DType::f32, {config.heads * config.head_dim, config.embed_dim});
        k = Tensor(DType::f32, {config.kv_heads * config.head_dim, config.key_embed_dim});
        v = Tensor(DType::f32, {config.kv_heads * config.value_dim, config.value_embed_dim});
        o = Tensor(DType::f32, {config.out_dim, config.heads * config.value_dim});
        for (Tensor* tensor : {&q, &k, &v, &o}) {
            for (std::int64_t i = 0; i < tensor->count(); ++i)
                tensor->data<float>()[i] = static_cast<float>(i % 7) - 3;
        }
        weights.q = q, weights.k = k, weights.v = v, weights.o = o;
    }
};

const TraceStep& step(const Trace& trace, const std::string& name) {
    const auto found = std::find_if(trace.steps.begin(), trace.steps.end(),
                                    [&](const TraceStep& candidate) { return candidate.name == name; });
    EXPECT_NE(found, trace.steps.end()) << name;
    return *found;
}

TEST(Trace, SelfAttentionIsOneBufferAndViewsOfIt) {
    Case layer({.embed_dim = 24, .heads = 4, .kv_heads = 2, .rope = Rope{}});  // D = 6, row = 24 + 12 + 12
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x(DType::f32, {2, 5, 24});
    const Trace trace = headwise::trace(block, x, {});
    EXPECT_EQ(trace.split_merge_copied_bytes, 0);
    EXPECT_EQ(step(trace, "project q, k, v").view.describe(), "f32 [2, 5, 48]");
    EXPECT_EQ(step(trace, "split q").view.describe(), "f32 [2, 5, 4, 6] strides [240, 48, 6, 1]");
    EXPECT_EQ(step(trace, "transpose q").view.describe(), "f32 [2, 4, 5, 6] strides [240, 6, 48, 1]");
    EXPECT_EQ(step(trace, "split k").offset, 24 * 4);
    EXPECT_EQ(step(trace, "split v").offset, 36 * 4);
    EXPECT_EQ(step(trace, "split v").buffer, "qkv");
    EXPECT_EQ(step(trace, "attend").view.describe(), "f32 [2, 5, 4, 6]");
    EXPECT_EQ(step(trace, "merge").view.describe(), "f32 [2, 5, 24]");
    EXPECT_EQ(step(trace, "merge").offset, 0);
    EXPECT_EQ(step(trace, "rotate q").offset, 0);
    for (const TraceStep& each : trace.steps) EXPECT_EQ(each.copied_bytes, 0) << each.name;
}

TEST(Trace, ResultIsThatOfForward) {
    Case layer({.embed_dim = 24, .heads = 4});
    const MultiHeadAttention block(layer.config, layer.weights);
    Tensor x(DType::f32, {7, 24});
    for (std::int64_t i = 0; i < x.count(); ++i) x.data<float>()[i] = static_cast<float>(i % 5) * 0.1f;
    const Trace trace = headwise::trace(block, x, {});
    const Tensor y = block.forward(x);
    ASSERT_EQ(trace.y.count(), y.count());
    EXPECT_EQ(std::memcmp(trace.y.data<float>(), y.data<float>(), static_cast<std::size_t>(y.count()) * 4), 0);
}

TEST(Trace, CrossAttentionNamesItsSources) {
    Case layer({.embed_dim = 24, .heads = 4, .key_embed_dim = 10, .value_embed_dim = 10});
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x(DType::f32, {2, 5, 24}), key(DType::f32, {2, 3, 10});
    const Trace trace = headwise::trace(block, x, {.key = key});
    EXPECT_EQ(step(trace, "project k, v").view.describe(), "f32 [2, 3, 48]");
    EXPECT_EQ(step(trace, "split v").offset, 24 * 4);
    EXPECT_EQ(trace.split_merge_copied_bytes, 0);
}

TEST(Trace, GateSharesTheBufferOfQ) {
    MhaConfig config{.embed_dim = 24, .heads = 4, .gate = Gate::head};
    config.qk_norm = HeadNorm{}, config.difference = HeadDifference{0.5}, config.merged_norm = MergedNorm{};
    test::Layer layer(config);
    const MultiHeadAttention block(layer.config, layer.weights);
    const Trace trace = headwise::trace(block, layer.rows(2, 5, 24));
    EXPECT_EQ(step(trace, "project q, gate, k, v").view.describe(), "f32 [2, 5, 76]");
    EXPECT_EQ(step(trace, "gate").offset, 24 * 4);
    EXPECT_EQ(step(trace, "split k").offset, 28 * 4);
    EXPECT_EQ(step(trace, "norm q").offset, 0);
    EXPECT_EQ(step(trace, "difference").view.size(2), 2);
    EXPECT_EQ(step(trace, "merge").view.describe(), "f32 [2, 5, 12] strides [120, 24, 1]");
    EXPECT_EQ(trace.split_merge_copied_bytes, 0);
}

TEST(Trace, LatentFormsAndTheirCache) {
    MhaConfig config{.embed_dim = 24, .heads = 4, .head_dim = 10, .value_dim = 6, .mask = causal()};
    config.latent = Latent{.q_rank = 8, .kv_rank = 12, .rope_dim = 4, .form = Latent::Form::naive};
    config.rope = Rope{};
    test::Layer layer(config);
    const Tensor x = layer.rows(2, 5, 24);
    {
        const MultiHeadAttention block(layer.config, layer.weights);
        const Trace naive = headwise::trace(block, x);
        EXPECT_EQ(step(naive, "project q latent, latent").view.describe(), "f32 [2, 5, 24]");
        EXPECT_EQ(step(naive, "split latent").offset, 8 * 4);
        EXPECT_EQ(step(naive, "expand k, v").view.describe(), "f32 [2, 5, 64]");
        EXPECT_EQ(step(naive, "expand k, v").copied_bytes, 2 * 5 * 4 * 4 * 4);  // the shared key, for every head
        EXPECT_EQ(naive.split_merge_copied_bytes, 0);
        EXPECT_EQ(naive.cache.kind, "none");
        EXPECT_EQ(naive.cache.token_bytes, 16 * 4);
        EXPECT_EQ(naive.cache.multi_head_token_bytes, 4 * (10 + 6) * 4);
    }
    config.latent->form = Latent::Form::absorbed;
    const MultiHeadAttention block(config, layer.weights);
    KvCache cache = make_cache(config, {.batch = 2, .capacity = 7, .type = CacheType::bf16});
    const Trace absorbed = headwise::trace(block, x, {.cache = &cache});
    EXPECT_EQ(step(absorbed, "absorb q").view.describe(), "f32 [2, 5, 4, 16]");
    EXPECT_EQ(step(absorbed, "append").view.size(3), 16);
    EXPECT_EQ(absorbed.cache.kind, "contiguous");
    EXPECT_EQ(absorbed.cache.type, "bf16");
    EXPECT_EQ(absorbed.cache.length, 5);
    EXPECT_EQ(absorbed.cache.token_bytes, 16 * 2);
    EXPECT_EQ(absorbed.cache.held_bytes, cache.bytes());
}

TEST(Trace, CacheNumbersOfSharedHeadsAndWindows) {
    MhaConfig config{.embed_dim = 32, .heads = 8, .kv_heads = 2, .mask = causal() & window(9, 0)};
    test::Layer layer(config);
    const MultiHeadAttention block(layer.config, layer.weights);
    KvCache cache = make_cache(config, {.capacity = 12, .kind = CacheKind::ring, .type = CacheType::int8});
    const Trace trace = headwise::trace(block, layer.rows(1, 5, 32), {.cache = &cache});
    EXPECT_EQ(trace.cache.kind, "ring");
    EXPECT_EQ(trace.cache.token_bytes, 2 * 2 * (4 + 4));  // 4 codes and a scale, of a key and of a value
    EXPECT_EQ(trace.cache.multi_head_token_bytes, 4 * trace.cache.token_bytes);
    EXPECT_EQ(trace.cache.window, 10);
    EXPECT_NE(trace.cache.note.find("4.0 times"), std::string::npos) << trace.cache.note;
    EXPECT_NE(trace.cache.note.find("320 B for a sequence of any length"), std::string::npos) << trace.cache.note;
}

TEST(Trace, RoutedLayersTellWhatTheyGather) {
    MhaConfig config{.embed_dim = 24, .kv_heads = 2, .head_dim = 6};
    config.routing = Routing{.experts = 3, .top_k = 2};
    test::Layer layer(config);
    const MultiHeadAttention block(layer.config, layer.weights);
    const Trace trace = headwise::trace(block, layer.rows(1, 5, 24));
    EXPECT_EQ(step(trace, "project router, k, v").view.describe(), "f32 [1, 5, 27]");
    EXPECT_EQ(step(trace, "route q").copied_bytes, 2 * 5 * 24 * 4);
    EXPECT_EQ(step(trace, "route y").view.describe(), "f32 [1, 5, 24]");
}

}  // namespace
}  // namespace headwise
