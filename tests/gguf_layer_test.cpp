// Attention layers from GGUF files: weights beside the same ones in the layout of Hugging Face, and one rule of the
// metadata at a time.
#include <headwise/weights.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/dtype.h"
#include "file_support.h"
#include "gguf_support.h"

namespace headwise {
namespace {

using namespace testing_support;
using Shape = std::vector<std::int64_t>;

// ---- the conformance models: model.gguf beside its dequantised weights ------------------------------------------

const std::string kModels = "tests/vectors/models/gguf/";

double at(const Tensor& tensor, std::int64_t index) { return load_f64(tensor.view().data, tensor.dtype(), index); }

// Row n of the result is row source(n) of `tensor`.
Tensor rows_of(const Tensor& tensor, std::int64_t rows, const std::function<std::int64_t(std::int64_t)>& source) {
    const std::int64_t width = tensor.rank() == 2 ? tensor.size(1) : 1;
    Tensor result(DType::f32, {rows, width});
    for (std::int64_t n = 0; n < rows * width; ++n) {
        result.data<float>()[n] = static_cast<float>(at(tensor, source(n / width) * width + n % width));
    }
    return result;
}

void expect_same(const Tensor& got, const Tensor& expected, const std::string& name) {
    ASSERT_EQ(got.count(), expected.count()) << name;
    for (std::int64_t n = 0; n < got.count(); ++n) ASSERT_EQ(at(got, n), at(expected, n)) << name << " " << n;
}

TEST(GgufModels, SeparateWeightsAreThoseOfTheModel) {
    for (const char* name : {"llama_f32", "llama_q8_0", "llama_q4_0", "llama_q4_1", "llama_llama3_bias_q8_0",
                             "qwen2_f16", "qwen2_mixed", "gemma2_q4_0", "gemma2_bf16"}) {
        SCOPED_TRACE(name);
        const std::string directory = kModels + name;
        const TensorFile model(directory);
        for (const std::int64_t number : stored_layers(directory + "/model.gguf")) {
            const LayerWeights layer = load_layer(directory + "/model.gguf", {.layer = number});
            const std::int64_t D = layer.config.head_dim;
            const bool interleaved = layer.family == "llama";
            const auto row = [&](std::int64_t n) {  // of q and k, as Hugging Face has it
                return interleaved ? n / D * D + n % 2 * (D / 2) + n % D / 2 : n;
            };
            const auto same = [](std::int64_t n) { return n; };
            const auto compare = [&](const std::string& part, const Tensor& weight, const Tensor& bias,
                                     auto source) {
                const std::string stored = "model.layers." + std::to_string(number) + ".self_attn." + part;
                expect_same(weight, rows_of(model.load(stored + ".weight"), weight.size(0), source), part);
                ASSERT_EQ(bias.empty(), !model.find(stored + ".bias")) << part;
                if (!bias.empty()) {
                    expect_same(bias, rows_of(model.load(stored + ".bias"), bias.size(0), source), part);
                }
            };
            compare("q_proj", layer.q, layer.q_bias, row);
            compare("k_proj", layer.k, layer.k_bias, row);
            compare("v_proj", layer.v, layer.v_bias, same);
            compare("o_proj", layer.o, layer.o_bias, same);
        }
    }
}

TEST(GgufModels, JoinedWeightsAreThoseOfTheModel) {
    for (const char* name : {"gpt2_f32", "gpt2_bf16", "gpt2_q4_0"}) {
        SCOPED_TRACE(name);
        const std::string directory = kModels + name;
        const TensorFile model(directory);
        const LayerWeights layer = load_layer(directory + "/model.gguf");
        const std::string module = "transformer.h.0.attn.";
        const Tensor joined = model.load(module + "c_attn.weight");  // [E, 3E]
        const std::int64_t E = joined.size(0);
        const Tensor* parts[] = {&layer.q, &layer.k, &layer.v};
        for (std::int64_t part = 0; part < 3; ++part) {
            for (std::int64_t n = 0; n < E * E; ++n) {
                ASSERT_EQ(at(*parts[part], n), at(joined, n % E * 3 * E + part * E + n / E)) << part << " " << n;
            }
        }
        const Tensor bias = model.load(module + "c_attn.bias");
        expect_same(layer.k_bias, rows_of(bias, E, [&](std::int64_t n) { return E + n; }), "k bias");
        expect_same(layer.o_bias, model.load(module + "c_proj.bias"), "o bias");
    }
}

// ---- one rule at a time ------------------------------------------------------------------------------------

// A model of one or more layers with E = 8, two heads and one kv head.
class Model : public GgufBuilder {
public:
    explicit Model(std::string architecture, std::uint32_t layers = 1) : prefix_(architecture + ".") {
        text("general.architecture", architecture);
        set("block_count", layers).set("embedding_length", 8u).set("attention.head_count", 2u);
        set("attention.head_count_kv", 1u);
    }
    Model& set(const std::string& setting, std::uint32_t value) { return u32(prefix_ + setting, value), *this; }
    Model& set(const std::string& setting, float value) { return f32(prefix_ + setting, value), *this; }
    Model& set(const std::string& setting, const char* value) { return text(prefix_ + setting, value), *this; }
    Model& weight(const std::string& name, std::uint64_t columns, std::uint64_t rows) {
        return tensor(name, {columns, rows}, kTensorF32, std::string(4 * columns * rows, '\0')), *this;
    }
    Model& vector(const std::string& name, const std::vector<float>& values) {
        return tensor(name, {values.size()}, kTensorF32, floats(values)), *this;
    }
    Model& layer(int number, std::uint64_t D = 4) {
        const std::string block = "blk." + std::to_string(number) + ".attn_";
        weight(block + "q.weight", 8, 2 * D).weight(block + "k.weight", 8, D).weight(block + "v.weight", 8, D);
        return weight(block + "output.weight", 2 * D, 8);
    }

private:
    std::string prefix_;
};

class GgufLayer : public ::testing::Test {
protected:
    LayerWeights load(const Model& model, std::int64_t layer = 0) {
        put_file(path_, model.build());
        return load_layer(path_, {.layer = layer});
    }
    MhaConfig config(const Model& model, std::int64_t layer = 0) { return load(model, layer).config; }
    void refuse(ErrorCode code, std::initializer_list<std::string_view> parts, const Model& model) {
        expect_error(code, parts, [&] { load(model); });
        expect_error(code, {path_}, [&] { load(model); });
    }

    TempDir dir_;
    std::string path_ = dir_ / "x.gguf";
};

TEST_F(GgufLayer, DefaultsOfLlama) {
    const LayerWeights layer = load(Model("llama").layer(0));
    const MhaConfig& c = layer.config;
    EXPECT_EQ(layer.family, "llama");
    EXPECT_EQ(layer.tensors.size(), 4u);
    EXPECT_EQ(c.embed_dim, 8);
    EXPECT_EQ(c.heads, 2);
    EXPECT_EQ(c.kv_heads, 1);
    EXPECT_EQ(c.head_dim, 4);
    EXPECT_EQ(c.value_dim, 4);
    ASSERT_TRUE(c.rope);
    EXPECT_EQ(c.rope->pairs, Rope::Pairs::interleaved);
    EXPECT_EQ(c.rope->theta, 10000);
    EXPECT_EQ(c.rope->width, 4);
    EXPECT_TRUE(c.mask.causal);
    EXPECT_EQ(c.mask.window_left, -1);
    EXPECT_FALSE(c.scale);
    EXPECT_EQ(c.dtype, DType::f32);
}

TEST_F(GgufLayer, SizesAndScoresOfLlama) {
    const MhaConfig c = config(Model("llama")
                                   .set("attention.key_length", 6u)
                                   .set("attention.value_length", 6u)
                                   .set("rope.freq_base", 500.0f)
                                   .set("rope.dimension_count", 2u)
                                   .set("attention.sliding_window", 5u)
                                   .set("attention.scale", 0.25f)
                                   .set("attention.clamp_kqv", 3.0f)
                                   .layer(0, 6));
    EXPECT_EQ(c.head_dim, 6);
    EXPECT_EQ(c.value_dim, 6);
    EXPECT_EQ(c.rope->theta, 500);
    EXPECT_EQ(c.rope->width, 2);
    EXPECT_EQ(c.mask.window_left, 4);
    EXPECT_EQ(c.scale, 0.25);
    EXPECT_EQ(c.clip_qkv, 3);
}

TEST_F(GgufLayer, ContradictionsAreNamed) {
    refuse(ErrorCode::bad_data, {"rope.dimension_count 3", "width 4"},
           Model("llama").set("rope.dimension_count", 3u).layer(0));
    refuse(ErrorCode::bad_data, {"'llama.attention.key_length' is a number, expected a whole number"},
           Model("llama").set("attention.key_length", 6.0f).layer(0));
    refuse(ErrorCode::bad_data, {"'llama.rope.freq_base' is not finite"},
           Model("llama").set("rope.freq_base", INFINITY).layer(0));
    refuse(ErrorCode::bad_data, {"'blk.0.attn_q.weight' has the shape [8, 8]", "asks for [12, 8]"},
           Model("llama").set("attention.key_length", 6u).layer(0));
    refuse(ErrorCode::bad_data, {"'blk.0.attn_q.bias' is missing"}, Model("qwen2").layer(0));
    GgufBuilder bare, heads;
    put_file(path_, bare.build());
    expect_error(ErrorCode::bad_data, {path_, "'general.architecture' is missing"}, [&] { load_layer(path_); });
    heads.text("general.architecture", "llama").u32("llama.block_count", 1).u32("llama.embedding_length", 8);
    put_file(path_, heads.u32("llama.attention.head_count", 3).build());
    expect_error(ErrorCode::bad_data, {path_, "embedding_length 8", "head_count 3"}, [&] { load_layer(path_); });
}

TEST_F(GgufLayer, WhatIsNotUnderstoodIsNamed) {
    refuse(ErrorCode::unsupported, {"architecture 'mamba'", "llama, qwen2"}, Model("mamba").layer(0));
    refuse(ErrorCode::unsupported, {"'llama.attention.temperature_length'"},
           Model("llama").set("attention.temperature_length", 1u).layer(0));
    refuse(ErrorCode::unsupported, {"'llama.attn_logit_softcapping'"},
           Model("llama").set("attn_logit_softcapping", 5.0f).layer(0));
    refuse(ErrorCode::unsupported, {"rope.scaling.type is 'ntk'"},
           Model("llama").set("rope.scaling.type", "ntk").set("rope.scaling.factor", 2.0f).layer(0));
    refuse(ErrorCode::unsupported, {"tensor 'blk.0.attn_q_norm.weight'", "llama layer"},
           Model("llama").layer(0).weight("blk.0.attn_q_norm.weight", 4, 1));
    refuse(ErrorCode::unsupported, {"tensor 'blk.0.attn_gate.weight'"},
           Model("llama").layer(0).weight("blk.0.attn_gate.weight", 8, 2));
    const Model harmless = Model("llama").set("expert_count", 4u).layer(0).weight("blk.0.attn_norm.weight", 8, 1);
    EXPECT_EQ(load(harmless).tensors.size(), 4u);
}

TEST_F(GgufLayer, LayersThatAreStored) {
    const Model model =
        Model("llama", 12).layer(0).layer(3).layer(11).layer(12).weight("blk.2.attn_q.weight", 8, 8);
    put_file(path_, model.build());
    EXPECT_EQ(stored_layers(path_), (std::vector<std::int64_t>{0, 3, 11}));
    EXPECT_EQ(load_layer(path_, {.layer = 11}).tensors[0], "blk.11.attn_q.weight");
    expect_error(ErrorCode::bad_data, {path_, "'blk.1.attn_q.weight' is missing"},
                 [&] { load_layer(path_, {.layer = 1}); });
    expect_error(ErrorCode::invalid_argument, {"layer 12", "0 to 11"}, [&] { load_layer(path_, {.layer = 12}); });
    expect_error(ErrorCode::invalid_argument, {"is causal"}, [&] { load_layer(path_, {.causal = false}); });
    EXPECT_EQ(load_layer(path_, {.dtype = DType::bf16}).config.dtype, DType::bf16);
}

TEST_F(GgufLayer, SettingsOfEachLayer) {
    Model model("llama", 2);
    model.key("llama.attention.key_length", kArray, little(kU32, 4) + little(2) + little(4, 4) + little(6, 4));
    model.key("llama.attention.value_length", kArray, little(kU32, 4) + little(2) + little(4, 4) + little(6, 4));
    model.layer(0, 4).layer(1, 6);
    EXPECT_EQ(config(model, 0).head_dim, 4);
    EXPECT_EQ(config(model, 1).head_dim, 6);
    Model wrong("llama", 3);
    wrong.key("llama.attention.key_length", kArray, little(kU32, 4) + little(2) + little(4, 4) + little(6, 4));
    refuse(ErrorCode::bad_data, {"'llama.attention.key_length' is an array of 2", "each of 3 layers"},
           wrong.layer(0));
}

TEST_F(GgufLayer, ScalingOfFrequencies) {
    const auto scaling = [&](const char* type) {
        return config(Model("qwen2")
                          .set("rope.scaling.type", type)
                          .set("rope.scaling.factor", 4.0f)
                          .set("rope.scaling.original_context_length", 64u)
                          .layer(0)
                          .vector("blk.0.attn_q.bias", std::vector<float>(8))
                          .vector("blk.0.attn_k.bias", std::vector<float>(4))
                          .vector("blk.0.attn_v.bias", std::vector<float>(4)))
            .rope->scaling;
    };
    EXPECT_EQ(scaling("none").kind, RopeScaling::Kind::none);
    EXPECT_EQ(scaling("linear").kind, RopeScaling::Kind::linear);
    EXPECT_EQ(scaling("linear").factor, 4);
    EXPECT_EQ(scaling("yarn").kind, RopeScaling::Kind::yarn);
    EXPECT_EQ(scaling("yarn").original_max_position, 64);
    EXPECT_EQ(scaling("yarn").beta_fast, 32);
    const Rope divided = *config(Model("llama").layer(0).vector("rope_freqs.weight", {1, 8})).rope;
    EXPECT_EQ(divided.divisors, (std::vector<double>{1, 8}));
    refuse(ErrorCode::bad_data, {"'rope_freqs.weight' holds 0"},
           Model("llama").layer(0).vector("rope_freqs.weight", {1, 0}));
    refuse(ErrorCode::bad_data, {"'rope_freqs.weight' has the shape [3]"},
           Model("llama").layer(0).vector("rope_freqs.weight", {1, 2, 3}));
    const Rope longrope = *config(Model("phi3")
                                      .set("rope.scaling.original_context_length", 16u)
                                      .set("rope.scaling.attn_factor", 1.25f)
                                      .layer(0)
                                      .vector("rope_factors_long.weight", {4, 5})
                                      .vector("rope_factors_short.weight", {1, 2}))
                               .rope;
    EXPECT_EQ(longrope.scaling.kind, RopeScaling::Kind::longrope);
    EXPECT_EQ(longrope.scaling.long_factor, (std::vector<double>{4, 5}));
    EXPECT_EQ(longrope.scaling.short_factor, (std::vector<double>{1, 2}));
    EXPECT_EQ(longrope.scaling.original_max_position, 16);
    EXPECT_EQ(longrope.scaling.attention_factor, 1.25);
}

TEST_F(GgufLayer, WindowsAndRotationByLayer) {
    Model gemma2("gemma2", 2), gemma3("gemma3", 12), cohere2("cohere2", 4), smollm3("smollm3", 4);
    gemma2.set("attention.sliding_window", 6u).set("attn_logit_softcapping", 4.0f).layer(0).layer(1);
    EXPECT_EQ(config(gemma2, 0).mask.window_left, 5);
    EXPECT_EQ(config(gemma2, 1).mask.window_left, -1);
    EXPECT_EQ(config(gemma2, 1).softcap, 4);
    EXPECT_EQ(config(Model("gemma2").layer(0)).mask.window_left, 4095);
    EXPECT_NEAR(
        *config(Model("gemma2", 46).set("attention.key_length", 6u).set("attention.value_length", 6u).layer(0, 6))
             .scale,
        0.5, 1e-15);
    cohere2.set("attention.sliding_window", 6u).layer(2).layer(3);
    EXPECT_EQ(config(cohere2, 2).mask.window_left, 5);
    EXPECT_TRUE(config(cohere2, 2).rope);
    EXPECT_EQ(config(cohere2, 3).mask.window_left, -1);
    EXPECT_FALSE(config(cohere2, 3).rope);
    smollm3.layer(2).layer(3);
    EXPECT_TRUE(config(smollm3, 2).rope);
    EXPECT_FALSE(config(smollm3, 3).rope);
    Model listed("llama", 2);
    listed.set("attention.sliding_window", 6u).layer(0).layer(1);
    listed.key("llama.attention.sliding_window_pattern", kArray,
               little(kBool, 4) + little(2) + std::string("\0\1", 2));
    EXPECT_EQ(config(listed, 0).mask.window_left, -1);
    EXPECT_EQ(config(listed, 1).mask.window_left, 5);
}

TEST_F(GgufLayer, NormsOfQueriesAndKeys) {
    Model qwen3("qwen3"), olmo2("olmo2");
    qwen3.set("attention.layer_norm_rms_epsilon", 0.5f).layer(0);
    qwen3.vector("blk.0.attn_q_norm.weight", {1, 2, 3, 4}).vector("blk.0.attn_k_norm.weight", {5, 6, 7, 8});
    const LayerWeights head = load(qwen3);
    ASSERT_TRUE(head.config.qk_norm);
    EXPECT_EQ(head.config.qk_norm->extent, HeadNorm::Extent::head);
    EXPECT_EQ(head.config.qk_norm->eps, 0.5);
    EXPECT_EQ(head.k_norm.data<float>()[3], 8);
    olmo2.set("attention.layer_norm_rms_epsilon", 0.5f).layer(0);
    olmo2.vector("blk.0.attn_q_norm.weight", std::vector<float>(8))
        .vector("blk.0.attn_k_norm.weight", {5, 6, 7, 8});
    EXPECT_EQ(load(olmo2).config.qk_norm->extent, HeadNorm::Extent::row);
    EXPECT_EQ(load(olmo2).q_norm.size(0), 8);
    refuse(ErrorCode::bad_data, {"'blk.0.attn_q_norm.weight' is missing"},
           Model("qwen3").set("attention.layer_norm_rms_epsilon", 0.5f).layer(0));
    refuse(ErrorCode::bad_data, {"attention.layer_norm_rms_epsilon is missing"}, Model("qwen3").layer(0));
}

// Those of Press et al. for 2 heads and for 6: 4 heads, and 2 from the set of 8.
TEST_F(GgufLayer, SlopesOfAlibi) {
    const auto slopes = [&](std::uint32_t heads) {
        GgufBuilder builder;
        builder.text("general.architecture", "mpt").u32("mpt.block_count", 1).u32("mpt.embedding_length", 24);
        builder.u32("mpt.attention.head_count", heads).f32("mpt.attention.max_alibi_bias", 8);
        builder.tensor("blk.0.attn_qkv.weight", {24, 72}, kTensorF32, std::string(4 * 24 * 72, '\0'));
        builder.tensor("blk.0.attn_output.weight", {24, 24}, kTensorF32, std::string(4 * 24 * 24, '\0'));
        put_file(path_, builder.build());
        const Tensor result = load_layer(path_).alibi_slopes;
        return std::vector<float>(result.data<float>(), result.data<float>() + result.count());
    };
    EXPECT_EQ(slopes(2), (std::vector<float>{1.0f / 16, 1.0f / 256}));
    EXPECT_EQ(slopes(6), (std::vector<float>{1.0f / 4, 1.0f / 16, 1.0f / 64, 1.0f / 256, 1.0f / 2, 1.0f / 8}));
}

TEST_F(GgufLayer, JoinedProjectionsMayHaveFewerKvHeads) {
    std::vector<float> rows(16 * 8);
    for (std::size_t n = 0; n < rows.size(); ++n) rows[n] = static_cast<float>(n / 8);
    Model model("phi3");
    model.tensor("blk.0.attn_qkv.weight", {8, 16}, kTensorF32, floats(rows));
    const LayerWeights layer = load(model.weight("blk.0.attn_output.weight", 8, 8));
    EXPECT_EQ(layer.q.size(0), 8);
    EXPECT_EQ(layer.k.size(0), 4);
    EXPECT_EQ(layer.v.size(0), 4);
    EXPECT_EQ(layer.k.data<float>()[0], 8);
    EXPECT_EQ(layer.v.data<float>()[0], 12);
    EXPECT_TRUE(layer.q_bias.empty());
}

}  // namespace
}  // namespace headwise
