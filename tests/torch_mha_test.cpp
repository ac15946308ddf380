// torch.nn.MultiheadAttention through its adapter: what the vectors do not hold. Numbers are judged by the suite torch_mha.
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/error.h>
#include <headwise/torch_mha.h>

#include "mha_layer.h"
#include "refused.h"

namespace headwise {
namespace {

constexpr std::int64_t kE = 8, kH = 2;

// A random module's state_dict, kept alive beside it.
struct Module {
    test::Layer layer{{.embed_dim = 3 * kE, .heads = 1, .head_dim = kE, .out_dim = kE}};
    std::map<std::string, ConstTensorView> state;

    explicit Module(bool bias_kv = false) {
        state["in_proj_weight"] = layer.matrix(3 * kE, kE);
        state["in_proj_bias"] = layer.vector(3 * kE);
        state["out_proj.weight"] = layer.matrix(kE, kE);
        state["out_proj.bias"] = layer.vector(kE);
        if (!bias_kv) return;
        for (const char* name : {"bias_k", "bias_v"}) {
            const ConstTensorView row = layer.vector(kE);
            state[name] = ConstTensorView(row.data, DType::f32, {1, 1, kE});
        }
    }
};

TorchMhaConfig config() { return {.embed_dim = kE, .num_heads = kH, .batch_first = true}; }

bool same_bits(const Tensor& a, const Tensor& b) {
    return a.count() == b.count() &&
           std::memcmp(a.data<float>(), b.data<float>(), static_cast<std::size_t>(a.count()) * 4) == 0;
}

TEST(TorchMha, LayoutsGiveTheSameBits) {
    Module module;
    TorchMhaConfig first = config(), second = config();
    second.batch_first = false;
    const TorchMultiheadAttention a(first, module.state), b(second, module.state);
    const Tensor x = module.layer.rows(3, 5, kE);
    const Tensor batch_first = a.forward(x, x, x).output;
    const Tensor swapped = convert(x.view().swap_axes(0, 1), DType::f32);
    const Tensor sequence_first = b.forward(swapped, swapped, swapped).output;
    EXPECT_TRUE(same_bits(convert(sequence_first.view().swap_axes(0, 1), DType::f32), batch_first));
    const ConstTensorView alone(x.data<float>(), DType::f32, {5, kE});
    const Tensor unbatched = a.forward(alone, alone, alone).output;
    EXPECT_EQ(unbatched.rank(), 2);
    EXPECT_EQ(std::memcmp(unbatched.data<float>(), batch_first.data<float>(), 5 * kE * 4), 0);
    // The same numbers in other memory take three passes instead of one.
    const Tensor copy = convert(x, DType::f32);
    EXPECT_TRUE(same_bits(a.forward(x, copy, copy).output, batch_first));
}

TEST(TorchMha, CausalWithoutAMaskIsTopLeft) {
    Module module;
    const TorchMultiheadAttention block(config(), module.state);
    const Tensor x = module.layer.rows(2, 3, kE), keys = module.layer.rows(2, 6, kE);
    std::vector<std::uint8_t> later(18);
    for (std::size_t i = 0; i < 18; ++i) later[i] = i % 6 > i / 6;
    const ConstTensorView mask(later.data(), DType::boolean, {3, 6});
    const Tensor masked = block.forward(x, keys, keys, {.attn_mask = mask}).output;
    EXPECT_TRUE(same_bits(block.forward(x, keys, keys, {.is_causal = true}).output, masked));
    // Beside a mask it is a hint, even where it disagrees.
    std::vector<std::uint8_t> none(18, 0);
    const ConstTensorView open(none.data(), DType::boolean, {3, 6});
    EXPECT_TRUE(same_bits(block.forward(x, keys, keys, {.attn_mask = open, .is_causal = true}).output,
                          block.forward(x, keys, keys).output));
}

TEST(TorchMha, RowsWithoutKeysGiveTheOutputBias) {
    Module module;
    const TorchMultiheadAttention block(config(), module.state);
    const Tensor x = module.layer.rows(2, 3, kE);
    const std::uint8_t padding[] = {0, 0, 1, 1, 1, 1};
    const Tensor y =
        block.forward(x, x, x, {.key_padding_mask = ConstTensorView(padding, DType::boolean, {2, 3})}).output;
    const auto* bias = static_cast<const float*>(module.state["out_proj.bias"].data);
    for (std::int64_t i = 0; i < 3 * kE; ++i) EXPECT_EQ(y.data<float>()[3 * kE + i], bias[i % kE]);
}

TEST(TorchMha, StateDictIsReadStrictly) {
    Module module(true);
    TorchMhaConfig wish = config();
    const auto make = [&] { TorchMultiheadAttention(wish, module.state); };
    expect_refused(make, "bias_k");
    wish.add_bias_kv = true;
    EXPECT_NO_THROW(make());
    wish.bias = false;
    expect_refused(make, "in_proj_bias");
    wish.bias = true;
    wish.kdim = 5;
    expect_refused(make, "no q_proj_weight");
    wish.kdim = kE;
    EXPECT_NO_THROW(make());
    module.state["bias_v"] = module.state["out_proj.bias"];
    expect_refused(make, "bias_v is f32 [8], expected f32 [1, 1, 8]");
    wish.num_heads = 3;
    expect_refused(make, "multiple of num_heads = 3");
    wish.num_heads = 0;
    expect_refused(make, "num_heads = 0");
}

TEST(TorchMha, MasksMustFit) {
    Module module;
    const TorchMultiheadAttention block(config(), module.state);
    const Tensor x = module.layer.rows(2, 3, kE);
    const std::vector<std::uint8_t> bits(64, 0);
    const std::int32_t numbers[9] = {};
    const auto attention = [&](const ConstTensorView& mask) { block.forward(x, x, x, {.attn_mask = mask}); };
    const auto padding = [&](const ConstTensorView& mask) { block.forward(x, x, x, {.key_padding_mask = mask}); };
    const auto of = [&](std::initializer_list<std::int64_t> shape) {
        return ConstTensorView(bits.data(), DType::boolean, shape);
    };
    EXPECT_NO_THROW(attention(of({4, 3, 3})));
    expect_refused([&] { attention(of({1, 3})); }, "attn_mask is bool [1, 3]");
    expect_refused([&] { attention(of({2, 3, 3})); }, "N*H = 4");
    expect_refused([&] { attention(of({2, 1, 3, 3})); }, "attn_mask");
    expect_refused([&] { attention(ConstTensorView(numbers, DType::i32, {3, 3})); }, "a float type");
    expect_refused([&] { padding(of({3})); }, "key_padding_mask is bool [3]");
    expect_refused([&] { padding(of({2, 4})); }, "key_padding_mask");
    expect_refused([&] { block.forward(x, x.view().slice(0, 0, 1), x); }, "batch");
    const ConstTensorView unbatched(x.data<float>(), DType::f32, {3, kE});
    expect_refused([&] { block.forward(x, unbatched, x); }, "3 axes, or 2");
}

}  // namespace
}  // namespace headwise
