// trace(): the addresses of a real run say that split and merge move nothing.
#include <algorithm>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include <headwise/trace.h>

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

}  // namespace
}  // namespace headwise
