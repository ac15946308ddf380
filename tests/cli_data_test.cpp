// `headwise run` and `headwise trace` on real layers, on bad files, and on altered answers.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <headwise/weights.h>

#include "program.h"

namespace headwise::test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

const std::string kMini = "samples/minilm/hidden.safetensors:";
const std::string kSmol = "samples/smollm2/hidden.safetensors:";
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Words mini(const std::string& input, const Words& more = {}) {
    Words words = {"run", "--model", "samples/minilm", "--layer", "0", "--input", input};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

Words smol(const Words& more = {}) {
    Words words = {"run", "--model", "samples/smollm2", "--layer", "16", "--input", kSmol + "text.layer16.in"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

// One more number in a list as it is typed.
void add(std::string& list, std::int64_t number) {
    if (!list.empty()) list += ',';
    list += std::to_string(number);
}

Json json_of(Words words, int code = 0) {
    words.push_back("--json");
    const Answer answer = headwise_program(words);
    EXPECT_EQ(answer.code, code) << answer.err;
    EXPECT_EQ(answer.err, "");
    Json json = Json::parse(answer.out, nullptr, false);
    EXPECT_TRUE(json.is_object()) << answer.out;
    return json;
}

// ---- checks that pass and checks that fail ------------------------------------------------------------------

TEST(Run, ChecksRealLayersInEveryStorageType) {
    const Words minilm = mini(kMini + "brackets.layer0.in", {"--check", kMini + "brackets.layer0.out"});
    const Words smollm2 = smol({"--check", kSmol + "text.layer16.out"});
    for (const auto& [dtype, tolerance] : {std::pair{"f32", 4e-6}, {"bf16", 2e-2}, {"f16", 2e-3}}) {
        for (Words words : {minilm, smollm2}) {
            SCOPED_TRACE(words[2] + " " + dtype);
            words.insert(words.end(), {"--dtype", dtype});
            const Json json = json_of(words);
            EXPECT_EQ(json.at("output").at("dtype"), dtype);
            EXPECT_EQ(json.at("check").at("tolerance"), tolerance);
            EXPECT_TRUE(json.at("check").at("passed"));
            EXPECT_GT(json.at("check").at("max_error"), 0);
            EXPECT_LE(json.at("check").at("max_error"), json.at("check").at("bound"));
        }
    }
}

TEST(Run, CountsEveryNumberAndReportsThePlaceOfTheWorst) {
    const Scratch scratch;
    Tensor expected = load_tensor(kMini + "brackets.layer0.out");  // [16, 384]
    expected.data<float>()[3 * 384 + 5] += 0.5f;
    const std::string path = scratch.file("altered.npy");
    save_npy(path, expected.view());
    const Words words = mini(kMini + "brackets.layer0.in", {"--check", path});
    const Json check = json_of(words, 1).at("check");
    EXPECT_FALSE(check.at("passed"));
    EXPECT_EQ(check.at("compared"), 16 * 384);
    EXPECT_EQ(check.at("worst_at"), Json({0, 3, 5}));
    EXPECT_NEAR(check.at("max_error").get<double>(), 0.5, 1e-4);
    const Answer text = headwise_program(words);
    EXPECT_EQ(text.code, 1);
    EXPECT_NE(text.out.find("FAIL"), std::string::npos);
    Words tolerant = words;
    tolerant.insert(tolerant.end(), {"--tolerance", "1"});
    EXPECT_EQ(headwise_program(tolerant).code, 0);
}

TEST(Run, NaNAndInfAreCountedAndFail) {
    const Scratch scratch;
    Tensor x = load_tensor(kMini + "brackets.layer0.in");
    x.data<float>()[0] = kNaN;  // not causal: every row attends to token 0
    save_npy(scratch.file("nan.npy"), x.view());
    const Json check =
        json_of(mini(scratch.file("nan.npy"), {"--check", kMini + "brackets.layer0.out"}), 1)["check"];
    EXPECT_EQ(check.at("nan"), 16 * 384);
    EXPECT_FALSE(check.at("passed"));

    Tensor expected = load_tensor(kMini + "brackets.layer0.out");
    expected.data<float>()[7] = kNaN;
    expected.data<float>()[8] = std::numeric_limits<float>::infinity();
    save_npy(scratch.file("expected.npy"), expected.view());
    const Words words = mini(kMini + "brackets.layer0.in", {"--check", scratch.file("expected.npy")});
    const Json other = json_of(words, 1)["check"];
    EXPECT_EQ(other.at("expected_not_finite"), 2);
    EXPECT_EQ(other.at("nan"), 0);
}

TEST(Run, LeavesOutRowsBeyondTheLengths) {
    const Scratch scratch;
    const Tensor lengths = load_tensor(kMini + "batch.lengths");  // [4]
    Tensor expected = load_tensor(kMini + "batch.layer0.out");    // [4, 16, 384]
    std::int64_t inside = 0;
    std::string typed;
    for (std::int64_t b = 0; b < 4; ++b) {
        const std::int64_t length = lengths.data<std::int64_t>()[b];
        inside += length;
        add(typed, length);
        for (std::int64_t i = length * 384; i < 16 * 384; ++i) {
            expected.data<float>()[b * 16 * 384 + i] = i % 2 == 0 ? kNaN : 1e30f;  // would raise max|y| too
        }
    }
    ASSERT_LT(inside, 4 * 16);
    save_npy(scratch.file("poisoned.npy"), expected.view());
    for (const std::string& given : {kMini + "batch.lengths", typed}) {
        const Json check = json_of(mini(kMini + "batch.layer0.in",
                                        {"--check", scratch.file("poisoned.npy"), "--lengths", given}))["check"];
        EXPECT_TRUE(check.at("passed"));
        EXPECT_EQ(check.at("compared"), inside * 384);
        EXPECT_EQ(check.at("left_out"), (64 - inside) * 384);
        EXPECT_LT(check.at("max_abs"), 1e3);
    }
    EXPECT_EQ(headwise_program(mini(kMini + "batch.layer0.in", {"--check", scratch.file("poisoned.npy")})).code,
              1);
    const Json nothing = json_of(
        mini(kMini + "batch.layer0.in", {"--check", kMini + "batch.layer0.out", "--lengths", "0,0,0,0"}), 1);
    EXPECT_EQ(nothing.at("check").at("compared"), 0);
}

TEST(Run, RotatesByTheGivenPositions) {
    const Scratch scratch;
    std::string usual, shifted, reversed;
    for (int t = 0; t < 19; ++t) {
        add(usual, t), add(shifted, t + 100), add(reversed, 18 - t);
    }
    const Words words = smol({"--check", kSmol + "text.layer16.out", "--positions"});
    const auto with = [&](const std::string& positions, const Words& more = {}) {
        Words all = words;
        all.push_back(positions);
        all.insert(all.end(), more.begin(), more.end());
        return headwise_program(all).code;
    };
    EXPECT_EQ(with(usual), 0);
    EXPECT_EQ(with(shifted, {"--tolerance", "1e-4"}), 0);  // only differences of positions count
    EXPECT_EQ(with(reversed), 1);
    const Tensor zeros(DType::i64, {1, 19});
    save_npy(scratch.file("zeros.npy"), zeros.view());
    EXPECT_EQ(with(scratch.file("zeros.npy")), 1);
}

// ---- files out ------------------------------------------------------------------------------------------------

TEST(Run, WritesYWholeOrNotAtAll) {
    const Scratch scratch;
    const std::string npy = scratch.file("y.npy"), safetensors = scratch.file("y.safetensors");
    const Words words = mini(kMini + "brackets.layer0.in", {"--out"});
    for (const std::string& path : {npy, safetensors}) {
        Words all = words;
        all.push_back(path);
        const Answer answer = headwise_program(all);
        ASSERT_EQ(answer.code, 0) << answer.err;
    }
    EXPECT_EQ(scratch.entries(), 2u);  // no temporary file stays
    const Tensor a = load_npy(npy), b = load_tensor(safetensors + ":y");
    ASSERT_EQ(a.rank(), 2);
    ASSERT_EQ(a.count(), 16 * 384);
    ASSERT_EQ(b.count(), 16 * 384);
    EXPECT_TRUE(std::equal(a.data<float>(), a.data<float>() + a.count(), b.data<float>()));
    EXPECT_EQ(
        headwise_program(mini(kMini + "brackets.layer0.in", {"--check", safetensors, "--tolerance", "0"})).code,
        0);

    for (const std::string& path : {scratch.file("no/such/y.npy"), npy + "/y.safetensors"}) {
        Words all = words;
        all.push_back(path);
        const Answer answer = headwise_program(all);
        expect_refused(answer, 3, path);
    }
    EXPECT_EQ(scratch.entries(), 2u);
}

// ---- what is refused --------------------------------------------------------------------------------------------

TEST(BadData, IsExitCode3AndOneSentence) {
    const Scratch scratch;
    const std::string x = kMini + "brackets.layer0.in";
    expect_refused(headwise_program(mini("no/such.npy")), 3, "no/such.npy");
    expect_refused(headwise_program(mini(kMini + "nobody")), 3, "nobody");
    expect_refused(headwise_program(mini(x, {"--check", "no/such.npy"})), 3, "no/such.npy");
    expect_refused(headwise_program({"run", "--model", "no/model", "--input", x}), 3, "no/model");
    expect_refused(headwise_program({"trace", "--model", "no/model"}), 3, "no/model");

    // A header that claims more bytes than there are, a cut file, and no safetensors at all.
    const std::string lying = std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}";
    expect_refused(headwise_program(mini(scratch.write("lying.safetensors", lying))), 3, "lying.safetensors");
    const std::string whole = slurp("samples/minilm/hidden.safetensors");
    expect_refused(headwise_program(mini(scratch.write("cut.safetensors", whole.substr(0, 100000)))), 3, "cut");
    expect_refused(headwise_program(mini(scratch.write("text.npy", "not numpy"))), 3, "text.npy");

    expect_refused(headwise_program(mini(kMini + "brackets.layer0.probs")), 3, "[12, 16, 16]");
    expect_refused(headwise_program(mini(kMini + "batch.lengths")), 3, "i64 [4]");
    expect_refused(headwise_program(mini(x, {"--check", kMini + "batch.layer0.out"})), 3, "[4, 16, 384]");
    expect_refused(headwise_program(mini(x, {"--lengths", kMini + "batch.lengths"})), 3, "must be [1]");
}

TEST(BadData, UnsupportedFamiliesAndBrokenConfigs) {
    const Scratch scratch;
    const std::string x = kMini + "brackets.layer0.in";
    const auto with_config = [&](const std::string& config) {
        std::filesystem::create_directories(scratch.file("model"));
        scratch.write("model/config.json", config);
        return headwise_program({"run", "--model", scratch.file("model"), "--input", x});
    };
    expect_refused(with_config(R"({"model_type": "rwkv"})"), 3, "rwkv");
    expect_refused(with_config("{"), 3, "config.json");
    expect_refused(with_config("[]"), 3, "config.json");
}

TEST(WrongUse, OfListsAndSwitchesIsExitCode2) {
    const std::string x = kMini + "brackets.layer0.in";
    expect_refused(headwise_program(mini(x, {"--lengths", "3,4"})), 2, "must be [1]");
    expect_refused(headwise_program(mini(x, {"--lengths", "17"})), 2, "17");
    expect_refused(headwise_program(mini(x, {"--lengths", "-1"})), 2, "-1");
    expect_refused(headwise_program(mini(x, {"--lengths", "3,,4"})), 2, "whole numbers");
    expect_refused(headwise_program(mini(x, {"--lengths", "99999999999999999999"})), 2, "whole numbers");
    expect_refused(headwise_program(mini(x, {"--positions", "0"})), 2, "no rotary positions");
    expect_refused(headwise_program(smol({"--positions", "0,1"})), 2, "[19]");
    expect_refused(headwise_program(smol({"--no-causal"})), 2, "causal");
    expect_refused(headwise_program({"run", "--model", "samples/minilm", "--layer", "6", "--input", x}), 2,
                   "layer 6");
}

// ---- trace ------------------------------------------------------------------------------------------------------

TEST(Trace, SplitAndMergeCopyNothing) {
    for (const Words& words : {Words{"trace", "--model", "samples/minilm", "--layer", "5"},
                               Words{"trace", "--model", "samples/smollm2", "--layer", "8", "--tokens", "5"},
                               Words{"trace", "--embed", "48", "--heads", "6", "--kv-heads", "2,3"}}) {
        SCOPED_TRACE(words[2]);
        const Json json = json_of(words);
        EXPECT_EQ(json.at("split_merge_copied_bytes"), 0);
        std::vector<bool> stages(6);
        for (const Json& step : json.at("steps")) {
            stages.at(step.at("stage").get<std::size_t>()) = true;
            EXPECT_EQ(step.at("shape").size(), step.at("strides").size());
            EXPECT_GE(step.at("offset_bytes"), 0);
        }
        EXPECT_EQ(std::count(stages.begin() + 1, stages.end(), true), 5);
        EXPECT_EQ(json.at("heads").size(), json.at("config").at("heads"));
        EXPECT_EQ(headwise_program(words).code, 0);
    }
}

TEST(Trace, CountsWhatMhaGqaAndMqaCost) {
    const Json json = json_of({"trace", "--model", "samples/smollm2", "--layer", "8", "--tokens", "10"});
    const Json& variants = json.at("variants");  // E 576, H 9, D 64, no biases, stored in 4 bytes
    ASSERT_EQ(variants.size(), 3u);
    for (const auto& [index, name, groups] : {std::tuple{0, "MHA", 9}, {1, "GQA", 3}, {2, "MQA", 1}}) {
        const Json& variant = variants[static_cast<std::size_t>(index)];
        EXPECT_EQ(variant.at("name"), name);
        EXPECT_EQ(variant.at("kv_heads"), groups);
        EXPECT_EQ(variant.at("traced"), groups == 3);
        EXPECT_EQ(variant.at("parameters"), 2 * 576 * 576 + 2 * groups * 64 * 576);
        EXPECT_EQ(variant.at("kv_bytes_per_token"), 2 * groups * 64 * 4);
        EXPECT_EQ(variant.at("kv_cache_numbers"), 2 * 10 * groups * 64);
    }
    const Json bert = json_of({"trace", "--model", "samples/minilm"}).at("variants");  // with four biases
    EXPECT_EQ(bert[0].at("parameters"), 4 * 384 * 384 + 4 * 384);
}

TEST(Trace, HeadsOfOneGroupReadTheSameKeys) {
    const Json json = json_of({"trace", "--model", "samples/smollm2", "--layer", "8"});
    const auto place = [&](std::size_t head, const std::string& word) -> std::int64_t {
        for (const Json& entry : json.at("heads").at(head).at("places")) {
            if (entry.at("step").get<std::string>() == word) return entry.at("offset_bytes");
        }
        ADD_FAILURE() << "no step " << word;
        return -1;
    };
    EXPECT_EQ(place(0, "split k"), place(2, "split k"));
    EXPECT_EQ(place(3, "split k"), place(0, "split k") + 64 * 4);
    EXPECT_EQ(place(1, "split q"), place(0, "split q") + 64 * 4);
}

}  // namespace
}  // namespace headwise::test
