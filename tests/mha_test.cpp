// The whole block against the f64 reference, and the promises of mha.h: same bits whatever the batch and the threads,
// heads that add up, no allocation in a steady call, clear errors.
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/error.h>
#include <headwise/mha.h>

#include "isas.h"
#include "mha_layer.h"
#include "mha_reference.h"

namespace headwise {
namespace {

using test::Layer;

// Forces an ISA for the life of a test body.
class Mha : public testing::TestWithParam<const KernelTable*> {
protected:
    void SetUp() override { set_isa(GetParam()->isa); }
    void TearDown() override { set_isa(""); }
};
INSTANTIATE_TEST_SUITE_P(Isa, Mha, testing::ValuesIn(test_tables()),
                         [](const auto& table) { return std::string(table.param->isa); });

void expect_block(const Layer& layer, const ConstTensorView& x, const ForwardOptions& options, const char* what) {
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor y = block.forward(x, options);
    const test::ExpectedBlock expected = test::reference_block(layer.config, layer.weights, x, options);
    const test::Verdict verdict = test::judge(y.view(), expected.y, expected.bound);
    EXPECT_EQ(verdict.bad, 0) << what << ": " << verdict.first;
}

TEST_P(Mha, MatchesTheReferenceForEveryHeadSharing) {
    for (const std::int64_t kv_heads : {8, 4, 2, 1}) {
        for (const std::int64_t tokens : {1, 2, 7, 19}) {
            Layer layer({.embed_dim = 40, .heads = 8, .kv_heads = kv_heads, .mask = causal()});
            expect_block(layer, layer.rows(2, tokens, 40), {}, "sharing");
        }
    }
}

TEST_P(Mha, MatchesTheReferenceForUnusualWidths) {
    // H*D != E, Dv != D, another output width, odd numbers.
    Layer layer({.embed_dim = 23, .heads = 3, .kv_heads = 1, .head_dim = 9, .value_dim = 14, .out_dim = 31});
    expect_block(layer, layer.rows(2, 11, 23), {}, "widths");
    Layer plain({.embed_dim = 23, .heads = 1, .scale = 0.7}, false);
    expect_block(plain, plain.rows(1, 5, 23), {}, "one head, no bias");
}

TEST_P(Mha, MatchesTheReferenceWithRope) {
    Layer layer({.embed_dim = 32,
                 .heads = 4,
                 .kv_heads = 2,
                 .rope = Rope{.theta = 500.0},
                 .mask = causal() & window(5, 0)});
    const Tensor x = layer.rows(2, 9, 32);
    expect_block(layer, x, {}, "counted positions");
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < 18; ++i) positions.push_back(i * 7 % 30 + 100);
    expect_block(layer, x, {.rope_positions = ConstTensorView(positions.data(), DType::i64, {2, 9})},
                 "given positions");
}

TEST_P(Mha, MatchesTheReferenceForCrossAttention) {
    for (const std::int64_t key_width : {20, 12}) {
        for (const std::int64_t value_width : {20, 12, 28}) {
            Layer layer({.embed_dim = 20, .heads = 4, .key_embed_dim = key_width, .value_embed_dim = value_width});
            const Tensor x = layer.rows(2, 5, 20), key = layer.rows(2, 13, key_width),
                         value = layer.rows(2, 13, value_width);
            expect_block(layer, x, {.key = key, .value = value}, "own value source");
            if (key_width == value_width) expect_block(layer, x, {.key = key}, "one source");
        }
    }
}

TEST_P(Mha, MatchesTheReferenceWithMasks) {
    Layer layer({.embed_dim = 24, .heads = 3});
    const Tensor x = layer.rows(3, 6, 24);
    const std::int32_t lengths[] = {6, 2, 0};
    expect_block(layer, x, {.mask = key_lengths(ConstTensorView(lengths, DType::i32, {3}))}, "lengths");
    std::vector<std::uint8_t> see(36);
    for (std::size_t i = 0; i < see.size(); ++i) see[i] = i % 5 != 0 && i >= 6;
    expect_block(layer, x, {.mask = causal() & keep(ConstTensorView(see.data(), DType::boolean, {6, 6}))}, "keep");
}

TEST_P(Mha, HalfStorageStaysNearTheReference) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
        Layer layer({.embed_dim = 64, .heads = 4, .rope = Rope{}, .mask = causal(), .dtype = dtype});
        const Tensor x = layer.rows(2, 12, 64);
        const MultiHeadAttention block(layer.config, layer.weights);
        const Tensor y = convert(block.forward(x), DType::f64);
        const test::ExpectedBlock expected = test::reference_block(layer.config, layer.weights, x.view());
        double largest = 0, worst = 0;
        for (std::size_t i = 0; i < expected.y.size(); ++i) {
            largest = std::max(largest, std::abs(expected.y[i]));
            const double err = std::abs(y.data<double>()[i] - expected.y[i]);
            if (!(err <= worst)) worst = err;
        }
        EXPECT_LE(worst, (dtype == DType::bf16 ? 2e-2 : 2e-3) * largest);  // the tolerance of the real samples
    }
}

bool same_bits(const Tensor& a, const float* b) {
    return std::memcmp(a.data<float>(), b, static_cast<std::size_t>(a.count()) * sizeof(float)) == 0;
}

TEST_P(Mha, BitsDoNotDependOnThreadsOrBatch) {
    Layer layer({.embed_dim = 96, .heads = 6, .kv_heads = 2, .rope = Rope{}, .mask = causal()});
    const MultiHeadAttention block(layer.config, layer.weights);
    constexpr std::int64_t kBatch = 3, kTokens = 70, kWidth = 96;
    const Tensor x = layer.rows(kBatch, kTokens, kWidth);
    const Tensor y = block.forward(x, {.execution = {.threads = 1}});
    for (const int threads : {2, 5}) {
        EXPECT_TRUE(same_bits(block.forward(x, {.execution = {.threads = threads}}), y.data<float>())) << threads;
    }
    for (std::int64_t b = 0; b < kBatch; ++b) {
        const ConstTensorView alone = x.view().slice(0, b, 1);
        EXPECT_TRUE(same_bits(block.forward(alone), y.data<float>() + b * kTokens * kWidth)) << b;
        // The first rows of a causal layer see nothing of what follows.
        for (const std::int64_t tokens : {1, 2, 3, 17}) {
            const Tensor part = block.forward(alone.slice(1, 0, tokens));
            EXPECT_TRUE(same_bits(part, y.data<float>() + b * kTokens * kWidth)) << b << " " << tokens;
        }
    }
}

TEST_P(Mha, PaddingDoesNotChangeBits) {
    Layer layer({.embed_dim = 48, .heads = 4});
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(2, 40, 48);
    const std::int64_t lengths[] = {7, 33};
    const Tensor y = block.forward(x, {.mask = key_lengths(ConstTensorView(lengths, DType::i64, {2}))});
    for (std::int64_t b = 0; b < 2; ++b) {
        const Tensor alone = block.forward(x.view().slice(0, b, 1).slice(1, 0, lengths[b]));
        EXPECT_TRUE(same_bits(alone, y.data<float>() + b * 40 * 48)) << b;
    }
}

// concat(heads) W_O = sum over h of head_h W_O^h
TEST_P(Mha, HeadsAddUpThroughTheirSlicesOfTheOutputProjection) {
    constexpr std::int64_t kEmbed = 32, kHeads = 4, kDim = 8, kTokens = 6;
    Layer layer({.embed_dim = kEmbed, .heads = kHeads}, false);
    const Tensor x = layer.rows(1, kTokens, kEmbed);
    const test::ExpectedBlock whole = test::reference_block(layer.config, layer.weights, x.view());
    std::vector<double> total(whole.y.size(), 0.0);
    for (std::int64_t h = 0; h < kHeads; ++h) {
        const MhaConfig one = {.embed_dim = kEmbed, .heads = 1, .head_dim = kDim};
        const MhaWeights& w = layer.weights;
        const MultiHeadAttention head(one, {.q = w.q.slice(0, h * kDim, kDim),
                                            .k = w.k.slice(0, h * kDim, kDim),
                                            .v = w.v.slice(0, h * kDim, kDim),
                                            .o = w.o.slice(1, h * kDim, kDim)});
        const Tensor y = head.forward(x);
        for (std::size_t i = 0; i < total.size(); ++i) total[i] += y.data<float>()[i];
    }
    for (std::size_t i = 0; i < total.size(); ++i) EXPECT_LE(std::abs(total[i] - whole.y[i]), 2 * whole.bound[i]);
}

TEST_P(Mha, StridedInputAndOutput) {
    Layer layer({.embed_dim = 20, .heads = 2});
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(2, 5, 20);
    const Tensor y = block.forward(x);
    std::vector<float> wide_x(2 * 5 * 27, NAN), wide_y(2 * 5 * 31, -77.0f);
    for (int row = 0; row < 10; ++row)
        std::memcpy(&wide_x[static_cast<std::size_t>(row) * 27], x.data<float>() + row * 20, 80);
    block.forward(ConstTensorView(wide_x.data(), DType::f32, {2, 5, 20}, {135, 27, 1}),
                  TensorView(wide_y.data(), DType::f32, {2, 5, 20}, {155, 31, 1}));
    for (int row = 0; row < 10; ++row) {
        EXPECT_EQ(std::memcmp(&wide_y[static_cast<std::size_t>(row) * 31], y.data<float>() + row * 20, 80), 0);
        for (int i = 20; i < 31; ++i) EXPECT_EQ(wide_y[static_cast<std::size_t>(row * 31 + i)], -77.0f);
    }
}

TEST_P(Mha, ZeroSizesGiveEmptyResults) {
    Layer layer({.embed_dim = 8, .heads = 2});
    const MultiHeadAttention block(layer.config, layer.weights);
    EXPECT_EQ(block.forward(Tensor(DType::f32, {0, 4, 8})).count(), 0);
    EXPECT_EQ(block.forward(Tensor(DType::f32, {3, 0, 8})).count(), 0);
    // No keys: every row is empty, so y is the output bias.
    const Tensor y = block.forward(layer.rows(1, 2, 8), {.key = Tensor(DType::f32, {1, 0, 8})});
    for (int i = 0; i < 16; ++i)
        EXPECT_EQ(y.data<float>()[i], static_cast<const float*>(layer.weights.o_bias.data)[i % 8]);
}

void expect_error(const std::function<void()>& call, const char* part) {
    try {
        call();
        ADD_FAILURE() << "no error; expected one that says: " << part;
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
}

TEST(MhaConfig, EveryShapeRuleHasItsSentence) {
    expect_error([] { resolve({.embed_dim = 8}); }, "heads must be positive");
    expect_error([] { resolve({.embed_dim = 8, .heads = -2}); }, "heads = -2");
    expect_error([] { resolve({.embed_dim = 10, .heads = 4}); }, "embed_dim = 10 is not a multiple of heads = 4");
    expect_error([] { resolve({.embed_dim = 8, .heads = 4, .kv_heads = 3}); }, "not a multiple of kv_heads = 3");
    expect_error([] { resolve({.embed_dim = 0, .heads = 4}); }, "head_dim must be positive");
    expect_error([] { resolve({.embed_dim = 6, .heads = 2, .rope = Rope{}}); }, "must be even");
    expect_error([] { resolve({.embed_dim = 8, .heads = 2, .rope = Rope{0.0}}); }, "theta");
    expect_error([] { resolve({.embed_dim = 8, .heads = 2, .scale = NAN}); }, "scale");
    expect_error([] { resolve({.embed_dim = 8, .heads = 2, .dtype = DType::i32}); }, "dtype");
    expect_error([] { resolve({.embed_dim = std::int64_t{1} << 40, .heads = 1}); }, "embed_dim");
    expect_error([] { resolve({.embed_dim = 0, .heads = 1 << 20, .head_dim = 1 << 20}); }, "more than 2^31");
    MhaConfig config{.embed_dim = 8, .heads = 2};
    config.mask.window_left = -5;
    expect_error([&] { resolve(config); }, "window");
    const MhaConfig full = resolve({.embed_dim = 96, .heads = 8, .kv_heads = 2});
    EXPECT_EQ(full.head_dim, 12);
    EXPECT_EQ(full.value_dim, 12);
    EXPECT_EQ(full.out_dim, 96);
}

TEST(MhaErrors, ShapesThatDoNotFit) {
    Layer layer({.embed_dim = 8, .heads = 2});
    MhaWeights wrong = layer.weights;
    wrong.k = wrong.k.slice(0, 0, 4);
    expect_error([&] { MultiHeadAttention(layer.config, wrong); }, "k is f32 [4, 8]");
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(2, 3, 8), narrow = layer.rows(2, 3, 7);
    expect_error([&] { block.forward(narrow); }, "width 7");
    expect_error([&] { block.forward(ConstTensorView()); }, "no tensor");
    expect_error([&] { block.forward(x.view().swap_axes(1, 2).slice(2, 0, 3)); }, "x has width 3");
    expect_error([&] { block.forward(x, {.value = x}); }, "needs a key source");
    expect_error([&] { block.forward(x, {.key = layer.rows(1, 3, 8)}); }, "batch sizes differ");
    expect_error([&] { block.forward(x, {.key = x, .value = layer.rows(2, 4, 8)}); }, "value 4");
    const std::int64_t positions[] = {0, 1};
    expect_error([&] { block.forward(x, {.rope_positions = ConstTensorView(positions, DType::i64, {2})}); },
                 "rope_positions");
    expect_error([&] { block.forward(x, {.execution = {.threads = -1}}); }, "threads");
    Tensor y(DType::f32, {2, 4, 8});
    expect_error([&] { block.forward(x, y); }, "y is f32 [2, 4, 8]");
    // A mask that does not fit is found before anything is written.
    Tensor out(DType::f32, {2, 3, 8});
    for (int i = 0; i < 48; ++i) out.data<float>()[i] = -77.0f;
    const std::int32_t lengths[] = {1, 2, 3};
    expect_error([&] { block.forward(x, out, {.mask = key_lengths(ConstTensorView(lengths, DType::i32, {3}))}); },
                 "lengths");
    for (int i = 0; i < 48; ++i) EXPECT_EQ(out.data<float>()[i], -77.0f);
}

}  // namespace
}  // namespace headwise
