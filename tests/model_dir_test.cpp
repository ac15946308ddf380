// From a model directory to one layer: names, shapes, both spellings of config.json, and everything that must be refused.
#include <headwise/weights.h>

#include <gtest/gtest.h>

#include <cstring>

#include "file_support.h"

namespace headwise {
namespace {

using namespace testing_support;

constexpr std::string_view kBert =
    R"("model_type":"bert","hidden_size":6,"num_attention_heads":3,"num_hidden_layers":2)";
constexpr std::string_view kLlama =
    R"("model_type":"llama","hidden_size":6,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":2,)"
    R"("num_hidden_layers":3)";

// Every weight holds one value of its own, so that mixed-up tensors show.
class ModelDir : public ::testing::Test {
protected:
    using Shape = std::initializer_list<std::int64_t>;

    void config(std::string_view known, std::string_view more = "") {
        std::string text = "{";
        text.append(known).append(more.empty() ? "" : ",").append(more).append("}");
        put_file(dir_ / "config.json", text);
    }
    void add(const std::string& name, Shape shape, float value, DType dtype = DType::f32) {
        Tensor tensor(DType::f32, shape);
        std::fill_n(tensor.data<float>(), tensor.count(), value);
        tensors_.insert_or_assign(name, convert(tensor, dtype));
    }
    void add_bert(const std::string& base, DType dtype = DType::f32) {
        const std::string at = base + "encoder.layer.1.attention.";
        float value = 1;
        for (const char* part : {"self.query", "self.key", "self.value", "output.dense"}) {
            add(at + part + ".weight", {6, 6}, value, dtype);
            add(at + part + ".bias", {6}, -value, dtype);
            ++value;
        }
        add(at + "output.LayerNorm.weight", {6}, 9);
    }
    void add_llama(const std::string& base, bool biases = false) {
        const std::string at = base + "layers.2.self_attn.";
        add(at + "q_proj.weight", {8, 6}, 1);
        add(at + "k_proj.weight", {4, 6}, 2);
        add(at + "v_proj.weight", {4, 6}, 3);
        add(at + "o_proj.weight", {6, 8}, 4);
        if (!biases) return;
        add(at + "q_proj.bias", {8}, -1);
        add(at + "k_proj.bias", {4}, -2);
        add(at + "v_proj.bias", {4}, -3);
        add(at + "o_proj.bias", {6}, -4);
    }
    void save(const std::string& name = "model.safetensors") {
        save_safetensors(dir_ / name, {tensors_.begin(), tensors_.end()});
    }
    LayerWeights load(std::int64_t layer, const LayerOptions& base = {}) {
        LayerOptions options = base;
        options.layer = layer;
        return load_layer(dir_.path(), options);
    }
    // A valid llama directory whose config.json says `more` is refused.
    void llama_refuses(std::string_view more, ErrorCode code, std::initializer_list<std::string_view> parts) {
        SCOPED_TRACE(more);
        config(kLlama, more);
        expect_error(code, {"config.json"}, [&] { load(2); });
        expect_error(code, parts, [&] { load(2); });
    }

    TempDir dir_;
    std::map<std::string, Tensor> tensors_;
};

TEST_F(ModelDir, LoadsBertUnderBothNames) {
    for (const std::string base : {"", "bert."}) {
        config(kBert, R"("position_embedding_type":"absolute","pruned_heads":{},"layer_norm_eps":1e-12)");
        tensors_.clear();
        add_bert(base, DType::f16);
        save();
        const LayerWeights layer = load(1);
        EXPECT_EQ(layer.family, "bert");
        EXPECT_EQ(layer.config.embed_dim, 6);
        EXPECT_EQ(layer.config.heads, 3);
        EXPECT_EQ(layer.config.kv_heads, 3);
        EXPECT_EQ(layer.config.head_dim, 2);
        EXPECT_EQ(layer.config.dtype, DType::f32);
        EXPECT_FALSE(layer.config.rope);
        EXPECT_FALSE(layer.config.mask.causal);
        EXPECT_EQ(layer.q.dtype(), DType::f16);
        const ConstTensorView views[] = {layer.weights().q, layer.weights().k, layer.weights().v,
                                         layer.weights().o};
        const ConstTensorView biases[] = {layer.weights().q_bias, layer.weights().k_bias, layer.weights().v_bias,
                                          layer.weights().o_bias};
        for (int i = 0; i < 4; ++i) {
            EXPECT_EQ(views[i].describe(), "f16 [6, 6]");
            EXPECT_EQ(convert(views[i], DType::f32).data<float>()[35], static_cast<float>(i + 1));
            EXPECT_EQ(convert(biases[i], DType::f32).data<float>()[5], -static_cast<float>(i + 1));
        }
        EXPECT_EQ(layer.tensors.size(), 8u);
        EXPECT_EQ(layer.tensors[0], base + "encoder.layer.1.attention.self.query.weight");
        EXPECT_EQ(stored_layers(dir_.path()), std::vector<std::int64_t>{1});
    }
}

TEST_F(ModelDir, BertLeavesCausalityOpen) {
    add_bert("bert.");
    save();
    config(kBert, R"("is_decoder":true)");
    EXPECT_TRUE(load(1).config.mask.causal);
    EXPECT_FALSE(load(1, {.causal = false}).config.mask.causal);
    config(kBert);
    EXPECT_TRUE(load(1, {.dtype = DType::bf16, .causal = true}).config.mask.causal);
    EXPECT_EQ(load(1, {.dtype = DType::bf16}).config.dtype, DType::bf16);
    expect_error(ErrorCode::invalid_argument, {"f64", "bf16"}, [&] { load(1, {.dtype = DType::f64}); });
}

TEST_F(ModelDir, BertRefusesWhatChangesTheResult) {
    add_bert("");
    save();
    config(kBert, R"("position_embedding_type":"relative_key")");
    expect_error(ErrorCode::unsupported, {"position_embedding_type", "'relative_key'"}, [&] { load(1); });
    config(kBert, R"("pruned_heads":{"0":[1]})");
    expect_error(ErrorCode::unsupported, {"pruned_heads"}, [&] { load(1); });
    config(R"("model_type":"bert","hidden_size":6,"num_attention_heads":4,"num_hidden_layers":2)");
    expect_error(ErrorCode::bad_data, {"hidden_size 6", "num_attention_heads 4"}, [&] { load(1); });
}

TEST_F(ModelDir, LoadsLlama) {
    config(kLlama, R"("attention_bias":true,"rope_theta":50.0,"rope_scaling":null)");
    add_llama("model.", true);
    add("model.layers.2.self_attn.rotary_emb.inv_freq", {1}, 1);
    add("model.layers.2.input_layernorm.weight", {6}, 1);
    save();
    const LayerWeights layer = load(2);
    EXPECT_EQ(layer.config.heads, 4);
    EXPECT_EQ(layer.config.kv_heads, 2);
    EXPECT_EQ(layer.config.head_dim, 2);
    EXPECT_TRUE(layer.config.mask.causal);
    EXPECT_EQ(layer.config.rope->theta, 50.0);
    EXPECT_EQ(layer.q.view().describe(), "f32 [8, 6]");
    EXPECT_EQ(layer.k.view().describe(), "f32 [4, 6]");
    EXPECT_EQ(layer.o.view().describe(), "f32 [6, 8]");
    EXPECT_EQ(layer.v.data<float>()[0], 3.0f);
    EXPECT_EQ(layer.o_bias.data<float>()[5], -4.0f);
    EXPECT_TRUE(load(2, {.causal = true}).config.mask.causal);
    expect_error(ErrorCode::invalid_argument, {"causal"}, [&] { load(2, {.causal = false}); });
}

TEST_F(ModelDir, LlamaHasTheDefaultsOfItsClass) {
    config(
        R"("model_type":"llama","hidden_size":64,"num_hidden_layers":1)");  // 32 heads of width 2, each with its own k, v
    for (const char* part : {"q", "k", "v", "o"}) {
        add(std::string("layers.0.self_attn.") + part + "_proj.weight", {64, 64}, 1);
    }
    save();
    const LayerWeights layer = load(0);
    EXPECT_EQ(layer.config.heads, 32);
    EXPECT_EQ(layer.config.kv_heads, 32);
    EXPECT_EQ(layer.config.head_dim, 2);
    EXPECT_EQ(layer.config.rope->theta, 10000.0);
    EXPECT_TRUE(layer.q_bias.empty());
    EXPECT_TRUE(layer.weights().q_bias.empty());
}

TEST_F(ModelDir, ReadsBothSpellingsOfRotation) {
    add_llama("");
    save();
    const auto theta = [&](std::string_view more) {
        config(kLlama, more);
        return load(2).config.rope->theta;
    };
    EXPECT_EQ(theta(R"("rope_parameters":{"rope_type":"default","rope_theta":300})"), 300.0);
    EXPECT_EQ(theta(R"("rope_parameters":{"rope_theta":300.0,"partial_rotary_factor":1.0},"rope_theta":300)"),
              300.0);
    EXPECT_EQ(theta(R"("rope_theta":20,"rope_scaling":{"type":"default"})"), 20.0);
    EXPECT_EQ(theta(R"("rope_theta":20,"rope_scaling":{"rope_type":"default","factor":null})"), 20.0);
    EXPECT_EQ(theta(R"("rope_parameters":null)"), 10000.0);

    const ErrorCode unsupported = ErrorCode::unsupported, bad_data = ErrorCode::bad_data;
    llama_refuses(R"("rope_scaling":{"type":"mrope","factor":2.0})", unsupported, {"'mrope'", "longrope"});
    llama_refuses(R"("rope_parameters":{"rope_type":"ntk"})", unsupported, {"'ntk'"});
    for (const std::string type : {"linear", "dynamic", "llama3"}) {
        llama_refuses(R"("rope_scaling":{"rope_type":")" + type + R"("})", bad_data, {"factor is missing"});
    }
    llama_refuses(R"("rope_scaling":{"type":"yarn","factor":2.0})", bad_data,
                  {"max_position_embeddings is missing"});
    llama_refuses(R"("rope_scaling":{"type":"su"},"max_position_embeddings":8)", bad_data,
                  {"short_factor is missing"});
    llama_refuses(R"("rope_scaling":{"type":"longrope","short_factor":[1,2],"long_factor":[1]},)"
                  R"("max_position_embeddings":8)",
                  bad_data, {"short_factor has 2 numbers", "2 needs 1"});
    llama_refuses(R"("rope_scaling":{"type":"linear","factor":0})", bad_data, {"factor is 0"});
    llama_refuses(R"("rope_scaling":{"type":"linear","factor":2.0},"rope_parameters":{})", bad_data,
                  {"rope_parameters and rope_scaling"});
    llama_refuses(R"("rope_scaling":{"factor":2.0})", unsupported, {"rope_scaling", "'factor'"});
    llama_refuses(R"("rope_parameters":{"full_attention":{}})", unsupported, {"'full_attention'"});
    llama_refuses(R"("partial_rotary_factor":0.5)", bad_data, {"the rotated width 1 of a head of width 2"});
    llama_refuses(R"("rope_parameters":{"partial_rotary_factor":1.5})", bad_data,
                  {"partial_rotary_factor is 1.5"});
    llama_refuses(R"("rope_parameters":{"rope_theta":5},"rope_theta":6)", bad_data, {"5", "6"});
    llama_refuses(R"("rope_theta":0)", bad_data, {"rope_theta is 0"});
    llama_refuses(R"("rope_theta":-1.5)", bad_data, {"rope_theta is -1.5"});
    llama_refuses(R"("rope_theta":"10000")", bad_data, {"rope_theta", "a string"});
    llama_refuses(R"("rope_theta":1e999)", bad_data, {"malformed JSON"});
    llama_refuses(R"("rope_scaling":[])", bad_data, {"rope_scaling", "a list"});
}

TEST_F(ModelDir, UnknownSwitchesAreNeverIgnored) {
    add_llama("model.");
    save();
    llama_refuses(R"("sliding_window":4)", ErrorCode::unsupported, {"'sliding_window'"});
    llama_refuses(R"("is_causal":false)", ErrorCode::unsupported, {"is_causal is 'false'", "supported: 'true'"});
    llama_refuses(R"("rope_interleaved":true)", ErrorCode::unsupported, {"rope_interleaved is 'true'"});
    llama_refuses(R"("use_qk_norm":1)", ErrorCode::unsupported, {"use_qk_norm is 'a whole number'"});
    llama_refuses(R"("quantization_config":{"bits":4})", ErrorCode::unsupported, {"'quantization_config'"});
    llama_refuses(R"("position_embedding_type":"relative_key")", ErrorCode::unsupported,
                  {"position_embedding_type"});
    config(kLlama,
           R"("sliding_window":null,"_name_or_path":"x","architectures":["LlamaForCausalLM"],"dtype":"bfloat16",)"
           R"("rms_norm_eps":1e-5,"id2label":{"0":"A"},"max_position_embeddings":2048,"hidden_act":"silu",)"
           R"("is_llama_config":true,"rope_interleaved":false,"is_causal":true)");
    load(2);
}

TEST_F(ModelDir, RefusesConfigsOfAnotherForm) {
    add_llama("model.");
    save();
    const auto refused = [&](const std::string& text, ErrorCode code,
                             std::initializer_list<std::string_view> parts) {
        put_file(dir_ / "config.json", text);
        expect_error(code, parts, [&] { load(2); });
    };
    refused("[]", ErrorCode::bad_data, {"config.json", "a list"});
    refused("", ErrorCode::bad_data, {"config.json", "malformed JSON"});
    refused("{\n \"hidden_size\": NaN}", ErrorCode::bad_data, {"line 2, column 17"});
    refused("{}", ErrorCode::bad_data, {"model_type", "supported: llama, mistral"});
    refused(R"({"model_type":"gpt9"})", ErrorCode::unsupported, {"'gpt9'", "supported: llama, mistral"});
    refused(R"({"model_type":"llama","model_type":"bert"})", ErrorCode::bad_data, {"'model_type'", "twice"});
    refused(R"({"model_type":7})", ErrorCode::bad_data, {"model_type is a whole number"});
    refused("{\"model_type\":\"llama\"}" + std::string(1 << 20, ' '), ErrorCode::bad_data, {"config_bytes"});
    refused(R"({"x":)" + std::string(70, '['), ErrorCode::bad_data, {"nested deeper than the limit of 64"});
    std::string many = "{\"x\":[1";
    for (int i = 0; i < 150'000; ++i) many += ",1";
    refused(many + "]}", ErrorCode::bad_data, {"131072 JSON values"});
    std::filesystem::remove(dir_ / "config.json");
    expect_error(ErrorCode::io, {"config.json"}, [&] { load(2); });

    llama_refuses(R"("attention_bias":"no")", ErrorCode::bad_data, {"attention_bias is a string"});
    llama_refuses(R"("attention_bias":{})", ErrorCode::bad_data, {"attention_bias is an object"});
    llama_refuses(R"("rope_theta":true)", ErrorCode::bad_data, {"rope_theta is true or false"});
    const auto sizes = [&](const char* text) {
        return R"({"model_type":"llama","num_hidden_layers":3,)" + std::string(text) + "}";
    };
    refused(sizes(R"("hidden_size":0)"), ErrorCode::bad_data, {"hidden_size is 0"});
    refused(sizes(R"("hidden_size":-6)"), ErrorCode::bad_data, {"hidden_size is -6"});
    refused(sizes(R"("hidden_size":6.0)"), ErrorCode::bad_data, {"hidden_size is a number"});
    refused(sizes(R"("hidden_size":9223372036854775807)"), ErrorCode::bad_data,
            {"hidden_size is 9223372036854775807"});
    refused(sizes(R"("hidden_size":7,"num_attention_heads":2)"), ErrorCode::bad_data, {"hidden_size 7"});
    refused(sizes(R"("hidden_size":6,"num_attention_heads":2)"), ErrorCode::bad_data, {"3 is odd"});
    refused(sizes(R"("hidden_size":8,"num_attention_heads":4,"num_key_value_heads":3)"), ErrorCode::bad_data,
            {"num_key_value_heads 3"});
    refused(sizes(R"("hidden_size":2147483648,"num_attention_heads":2147483648,"head_dim":2147483648)"),
            ErrorCode::bad_data, {"2147483648 heads of width 2147483648", "2^31"});
}

TEST_F(ModelDir, RefusesWeightsThatDoNotFit) {
    config(kLlama);
    add_llama("model.");
    save();
    expect_error(ErrorCode::invalid_argument, {"layer 3", "0 to 2"}, [&] { load(3); });
    expect_error(ErrorCode::invalid_argument, {"layer -1"}, [&] { load(-1); });
    expect_error(ErrorCode::bad_data, {"layer 0", "stored layers: 2"}, [&] { load(0); });

    const auto refused = [&](const char* name, Shape shape, ErrorCode code,
                             std::initializer_list<std::string_view> parts) {
        add(name, shape, 1);
        save();
        expect_error(code, parts, [&] { load(2); });
        tensors_.erase(name);
        add_llama("model.");
    };
    refused("model.layers.2.self_attn.k_proj.weight", {6, 4}, ErrorCode::bad_data,
            {"k_proj.weight", "[6, 4]", "[4, 6]"});
    refused("model.layers.2.self_attn.k_proj.weight", {24}, ErrorCode::bad_data,
            {"k_proj.weight", "[24]", "[4, 6]"});
    refused("model.layers.2.self_attn.q_norm.weight", {2}, ErrorCode::unsupported,
            {"q_norm.weight", "llama", "no place"});
    refused("model.layers.2.self_attn.q_proj.bias", {8}, ErrorCode::unsupported,
            {"q_proj.bias", "config.json", "no place"});
    refused("layers.2.self_attn.q_proj.weight", {8, 6}, ErrorCode::bad_data, {"stored twice"});

    tensors_["model.layers.2.self_attn.v_proj.weight"] = Tensor(DType::i32, {4, 6});
    save();
    expect_error(ErrorCode::unsupported, {"v_proj.weight", "I32"}, [&] { load(2); });
    tensors_.erase("model.layers.2.self_attn.v_proj.weight");
    save();
    expect_error(ErrorCode::bad_data, {"'model.layers.2.self_attn.v_proj.weight' is missing"}, [&] { load(2); });
    EXPECT_TRUE(stored_layers(dir_.path()).empty());

    config(kLlama, R"("attention_bias":true)");
    add_llama("model.");
    save();
    expect_error(ErrorCode::bad_data, {"q_proj.bias' is missing"}, [&] { load(2); });
}

TEST_F(ModelDir, WideFloatsAreRoundedOnce) {
    config(kLlama);
    add_llama("model.");
    Tensor wide(DType::f64, {4, 6});
    std::fill_n(wide.data<double>(), 24, 1.0 / 3.0);
    tensors_["model.layers.2.self_attn.v_proj.weight"] = std::move(wide);
    save();
    const LayerWeights layer = load(2);
    EXPECT_EQ(layer.v.dtype(), DType::f32);
    EXPECT_EQ(layer.v.data<float>()[23], 1.0f / 3.0f);
}

TEST_F(ModelDir, StoredLayersIgnoresNamesThatOnlyLookAlike) {
    config(kLlama);
    add_llama("model.");
    for (const char* other :
         {"model.layers.02.self_attn.", "model.layers.-1.self_attn.", "model.layers.7.self_attn.",
          "model.layers.1x.self_attn.", "x.layers.1.self_attn."}) {
        for (const char* part : {"q", "k", "v", "o"}) add(std::string(other) + part + "_proj.weight", {1}, 1);
    }
    add("model.layers.1.self_attn.q_proj.weight", {8, 6}, 1);
    save();
    EXPECT_EQ(stored_layers(dir_.path()), std::vector<std::int64_t>{2});
}

// ---- real files ---------------------------------------------------------------------------------------------

TEST(Samples, MiniLm) {
    EXPECT_EQ(stored_layers("samples/minilm"), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
    for (std::int64_t layer = 0; layer < 6; ++layer) {
        const LayerWeights read = load_layer("samples/minilm", {.layer = layer});
        EXPECT_EQ(read.config.heads, 12);
        EXPECT_EQ(read.config.head_dim, 32);
        EXPECT_FALSE(read.config.mask.causal);
        EXPECT_EQ(read.o.view().describe(), "f16 [384, 384]");
        EXPECT_EQ(read.v_bias.view().describe(), "f16 [384]");
    }
}

TEST(Samples, SmolLm2) {
    EXPECT_EQ(stored_layers("samples/smollm2"), (std::vector<std::int64_t>{8, 16, 18}));
    const LayerWeights read = load_layer("samples/smollm2", {.layer = 16});
    EXPECT_EQ(read.config.heads, 9);
    EXPECT_EQ(read.config.kv_heads, 3);
    EXPECT_EQ(read.config.head_dim, 64);
    EXPECT_EQ(read.config.rope->theta, 100000.0);
    EXPECT_TRUE(read.config.mask.causal);
    EXPECT_EQ(read.k.view().describe(), "bf16 [192, 576]");
    expect_error(ErrorCode::bad_data, {"8, 16, 18"}, [] { load_layer("samples/smollm2", {.layer = 0}); });
}

// The model vectors come with a config.json of transformers 5 and often one of version 4: they must say the same.
TEST(ModelVectors, BothSpellingsGiveOneLayer) {
    const std::string root = "tests/vectors/models/";
    const TempDir legacy;
    for (const std::string name : {"llama/plain_mha", "llama/gqa_bias_headdim"}) {
        std::error_code ignored;
        std::filesystem::remove(legacy / "model.safetensors", ignored);
        std::filesystem::create_symlink(std::filesystem::absolute(root + name + "/model.safetensors"),
                                        legacy / "model.safetensors");
        put_file(legacy / "config.json", get_file(root + name + "/config.legacy.json"));
        for (std::int64_t layer = 0; layer < 2; ++layer) {
            const LayerWeights a = load_layer(root + name, {.layer = layer});
            const LayerWeights b = load_layer(legacy.path(), {.layer = layer});
            EXPECT_EQ(a.config.heads, b.config.heads);
            EXPECT_EQ(a.config.kv_heads, b.config.kv_heads);
            EXPECT_EQ(a.config.head_dim, 16);
            EXPECT_EQ(b.config.head_dim, 16);
            EXPECT_EQ(a.config.rope->theta, b.config.rope->theta);
            EXPECT_EQ(a.tensors, b.tensors);
        }
    }
    EXPECT_EQ(load_layer(root + "llama/gqa_bias_headdim").k_bias.view().describe(), "f32 [32]");
    EXPECT_EQ(load_layer(root + "bert/padded").family, "bert");
    EXPECT_EQ(load_layer(root + "roberta/padded", {.layer = 1}).family, "roberta");
}

}  // namespace
}  // namespace headwise
