// The table of families: what a config.json says about one layer, by layer and part, and what a file must not get away with.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include <headwise/weights.h>

#include "file_support.h"
#include "weights/layout.h"
#include "weights/plan.h"

namespace headwise {
namespace {

using namespace testing_support;

LayerPlan plan(const std::string& config, std::int64_t layer = 0, std::string_view part = {}) {
    return plan_layer(parse_json_tree(config, 64, "config.json"), "config.json", {.layer = layer, .part = part});
}

void refused(const std::string& config, ErrorCode code, std::initializer_list<std::string_view> parts,
             std::int64_t layer = 0) {
    SCOPED_TRACE(config);
    expect_error(code, parts, [&] { plan(config, layer); });
}

TEST(Families, NamesAreUnique) {
    std::set<std::string_view> names;
    for (const auto table : family_tables()) {
        for (const Family& family : table)
            EXPECT_TRUE(names.insert(family.model_type).second) << family.model_type;
    }
    EXPECT_GT(names.size(), 90u);
}

// A file with nothing but its name has the presets of the model class, unless the class scales its rotation.
TEST(Families, EveryFamilyHasPresets) {
    for (const auto table : family_tables()) {
        for (const Family& family : table) {
            std::string config = "{\"model_type\":\"" + std::string(family.model_type) + "\"";
            if (!family.names.modules[0].section.empty()) config += R"(,"text_config":{},"vision_config":{})";
            if (family.rotary.scaled_preset) config += R"(,"rope_parameters":{"rope_type":"default"})";
            if (family.model_type == "glm4_moe") config += R"(,"head_dim":128)";
            SCOPED_TRACE(config);
            for (const Module& module : family.names.modules) {
                if (module.path.empty()) break;
                const LayerPlan layer = plan(config + "}", 1, module.part);
                EXPECT_EQ(layer.config.heads % layer.config.kv_heads, 0);
                EXPECT_FALSE(layer.matrices.empty());
            }
            expect_error(ErrorCode::unsupported, {"'surprise'"}, [&] { plan(config + ",\"surprise\":1}"); });
            expect_error(ErrorCode::invalid_argument, {"part 'tail'"}, [&] { plan(config + "}", 0, "tail"); });
        }
    }
}

TEST(Families, WindowsDependOnTheLayer) {
    const auto left = [](const std::string& config, std::int64_t layer) {
        return plan(config, layer).config.mask.window_left;
    };
    const std::string gemma2 = R"({"model_type":"gemma2","sliding_window":6})";
    EXPECT_EQ(left(gemma2, 0), 5);
    EXPECT_EQ(left(gemma2, 1), -1);
    const std::string qwen2 =
        R"({"model_type":"qwen2","use_sliding_window":true,"sliding_window":6,"max_window_layers":2})";
    EXPECT_EQ(left(qwen2, 1), -1);
    EXPECT_EQ(left(qwen2, 2), 5);
    EXPECT_EQ(left(R"({"model_type":"mistral"})", 0), 4095);
    EXPECT_EQ(left(R"({"model_type":"mistral","sliding_window":null})", 0), -1);
    EXPECT_EQ(left(R"({"model_type":"mixtral"})", 0), -1);
    const std::string types =
        R"({"model_type":"ministral","sliding_window":6,"layer_types":["full_attention","sliding_attention"]})";
    EXPECT_EQ(left(types, 0), -1);
    EXPECT_EQ(left(types, 1), 5);
    const std::string neo =
        R"({"model_type":"gpt_neo","num_layers":5,"window_size":6,"attention_types":[[["global"],2],[["local","global"],2]]})";
    EXPECT_EQ(left(neo, 1), -1);
    EXPECT_EQ(left(neo, 2), 5);
    EXPECT_EQ(left(neo, 3), -1);
    EXPECT_EQ(left(neo, 4), 5);
}

TEST(Families, RotationDependsOnTheLayer) {
    const std::string gemma3 =
        R"({"model_type":"gemma3_text","rope_theta":1000,"rope_scaling":{"type":"linear","factor":8.0}})";
    EXPECT_EQ(plan(gemma3, 0).config.rope->theta, 10000);
    EXPECT_EQ(plan(gemma3, 0).config.rope->scaling.kind, RopeScaling::Kind::none);
    EXPECT_EQ(plan(gemma3, 5).config.rope->theta, 1000);
    EXPECT_EQ(plan(gemma3, 5).config.rope->scaling.factor, 8);
    const std::string llama4 = R"({"model_type":"llama4_text","no_rope_layers":[1,0]})";
    EXPECT_TRUE(plan(llama4, 0).config.rope && plan(llama4, 0).config.qk_norm);
    EXPECT_FALSE(plan(llama4, 0).config.temperature);
    EXPECT_EQ(plan(llama4, 0).config.mask.chunk, 8192);
    EXPECT_FALSE(plan(llama4, 1).config.rope || plan(llama4, 1).config.qk_norm);
    EXPECT_TRUE(plan(llama4, 1).config.temperature);
    EXPECT_EQ(plan(llama4, 1).config.mask.chunk, 0);
    EXPECT_EQ(plan(R"({"model_type":"gptj","rotary_dim":8})").config.rope->width, 8);
}

// Files written while transformers renamed the keys of GPT-NeoX carry both spellings.
TEST(Families, TwoSpellingsOfOneNumberMustAgree) {
    const std::string neox = R"({"model_type":"gpt_neox","rotary_emb_base":500,"rotary_pct":0.5,)";
    const MhaConfig both = plan(neox + R"("rope_theta":500,"partial_rotary_factor":0.5})").config;
    EXPECT_EQ(both.rope->theta, 500);
    EXPECT_EQ(both.rope->width, both.head_dim / 2);
    EXPECT_EQ(plan(R"({"model_type":"gpt_neox","rope_theta":700})").config.rope->theta, 700);
    refused(neox + R"("rope_theta":501})", ErrorCode::bad_data, {"rotary_emb_base is 500", "rope_theta is 501"});
    refused(neox + R"("partial_rotary_factor":1})", ErrorCode::bad_data, {"rotary_pct", "partial_rotary_factor"});
}

TEST(Families, PartsHaveTheirOwnSizesAndMasks) {
    const std::string bart =
        R"({"model_type":"bart","d_model":64,"encoder_layers":1,"decoder_layers":3,"encoder_attention_heads":4,)"
        R"("decoder_attention_heads":8})";
    EXPECT_EQ(plan(bart, 2).config.heads, 8);
    EXPECT_TRUE(plan(bart, 2).config.mask.causal);
    EXPECT_FALSE(plan(bart, 2, "cross").config.mask.causal);
    EXPECT_EQ(plan(bart, 0, "encoder").config.heads, 4);
    expect_error(ErrorCode::invalid_argument, {"layers 0 to 0"}, [&] { plan(bart, 1, "encoder"); });
    const std::string t5 = R"({"model_type":"t5"})";
    EXPECT_TRUE(plan(t5, 1, "encoder").config.relative_bias->bidirectional);
    EXPECT_FALSE(plan(t5, 1).config.relative_bias->bidirectional);
    EXPECT_FALSE(plan(t5, 1, "cross").config.relative_bias);
}

TEST(Families, BadConfigsAreNamed) {
    const ErrorCode bad = ErrorCode::bad_data, unsupported = ErrorCode::unsupported;
    refused(R"({"model_type":"llama","layer_types":["sliding_attention"]})", unsupported, {"sliding_attention"});
    refused(R"({"model_type":"qwen2","layer_types":["linear_attention"]})", unsupported, {"linear_attention"});
    refused(R"({"model_type":"qwen2","layer_types":[]})", bad, {"layer_types has 0 entries"});
    refused(R"({"model_type":"qwen2","layer_types":[7]})", bad, {"layer_types", "a whole number"});
    refused(R"({"model_type":"smollm3","no_rope_layers":[2]})", bad, {"no_rope_layers"});
    refused(R"({"model_type":"gpt_neo","attention_types":[["global",1]]})", bad, {"attention_types"});
    refused(R"({"model_type":"gpt_neo","attention_types":[[["global"],1],[["global"],-1]]})", bad,
            {"attention_types"}, 1);
    refused(R"({"model_type":"mpt","attn_config":{"prefix_lm":true}})", unsupported, {"prefix_lm"});
    refused(R"({"model_type":"mpt","attn_config":{"surprise":1}})", unsupported, {"attn_config", "'surprise'"});
    refused(R"({"model_type":"gpt_oss"})", unsupported, {"rope_parameters"});
    refused(R"({"model_type":"diffllama","num_key_value_heads":1})", bad, {"num_key_value_heads 1", "odd"});
    refused(R"({"model_type":"jetmoe","num_experts_per_tok":9})", bad, {"num_experts_per_tok 9"});
    refused(R"({"model_type":"albert","inner_group_num":2})", unsupported, {"inner_group_num"});
    refused(R"({"model_type":"codegen","n_head":2})", bad, {"n_head 2"});
    refused(R"({"model_type":"clip","text_config":{}, "surprise":1})", unsupported, {"'surprise'"});
    refused(R"({"model_type":"gemma3"})", bad, {"text_config is missing"});
    refused(R"({"model_type":"gpt2","n_embd":64,"hidden_size":65})", bad, {"hidden_size is 65", "n_embd"});
}

TEST(Layouts, SlopesOfHeadsThatAreNoPowerOfTwo) {
    const Tensor slopes = alibi_slopes(6, 1, false);
    const double expected[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
    for (std::int64_t h = 0; h < 6; ++h) EXPECT_EQ(slopes.data<float>()[h], expected[h]);
}

TEST(Layouts, RowsAreGathered) {
    Tensor stored(DType::f16, {5, 2});
    for (std::uint16_t i = 0; i < 10; ++i) stored.data<std::uint16_t>()[i] = i;
    const Tensor rows = gather_rows(stored, {{3, 2}, {0, 1}});
    const std::uint16_t expected[] = {6, 7, 8, 9, 0, 1};
    for (int i = 0; i < 6; ++i) EXPECT_EQ(rows.data<std::uint16_t>()[i], expected[i]);
    EXPECT_EQ(transpose(rows).data<std::uint16_t>()[1], 8);
}

TEST(ModelVectors, EveryCaseLoadsUnderBothSpellings) {
    namespace fs = std::filesystem;
    int cases = 0;
    for (const auto& family : fs::directory_iterator("tests/vectors/models")) {
        if (!family.is_directory()) continue;
        for (const auto& dir : fs::directory_iterator(family)) {
            SCOPED_TRACE(dir.path().string());
            for (const char* name : {"config.json", "config.legacy.json"}) {
                if (!fs::exists(dir.path() / name)) continue;
                const Json config = parse_json_tree(get_file(dir.path() / name), 64, name);
                EXPECT_FALSE(plan_layer(config, name, {}).matrices.empty());
                ++cases;
            }
        }
    }
    EXPECT_GT(cases, 100);
}

}  // namespace
}  // namespace headwise
