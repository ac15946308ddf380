// `headwise run` as an engine would run a layer: through caches, token by token, over many layers, with its weights.
#include <algorithm>
#include <cmath>
#include <numeric>
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

Words operator+(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

const Words kSmolText = {"run",
                         "--model",
                         "samples/smollm2",
                         "--layer",
                         "16",
                         "--input",
                         kSmol + "text.layer16.in",
                         "--check",
                         kSmol + "text.layer16.out"};

Json json_of(const Words& words, int code = 0) {
    const Answer answer = headwise_program(words + Words{"--json"});
    EXPECT_EQ(answer.code, code) << answer.err;
    return Json::parse(answer.out, nullptr, false);
}

TEST(RunCache, TokenByTokenGivesTheKnownAnswerInEveryKind) {
    for (const Words& cache : {Words{},
                               {"--cache", "contiguous"},
                               {"--cache", "ring"},
                               {"--cache", "paged"},
                               {"--cache", "paged", "--page-size", "5"}}) {
        for (const char* decode : {"0", "1", "19"}) {
            if (cache.empty() && decode == std::string("0")) continue;
            SCOPED_TRACE(testing::PrintToString(cache) + " decode " + decode);
            const Json json = json_of(kSmolText + cache + Words{"--decode", decode});
            EXPECT_TRUE(json.at("check").at("passed"));
            EXPECT_EQ(json.at("check").at("tolerance"), 4e-6);
            EXPECT_EQ(json.at("cache").at("decoded"), std::stoi(decode));
            EXPECT_EQ(json.at("cache").at("kind"), cache.empty() ? "contiguous" : cache[1]);
            EXPECT_GE(json.at("cache").at("bytes"), 2 * 19 * 3 * 64 * 4);
        }
    }
}

TEST(RunCache, SmallerTypesCostBytesAndAccuracy) {
    double error = 0;
    std::int64_t bytes = 1 << 30;
    for (const char* type : {"f32", "f16", "int8", "int4"}) {
        SCOPED_TRACE(type);
        const Json json = json_of(kSmolText + Words{"--cache-type", type, "--decode", "4", "--tolerance", "0.5"});
        EXPECT_LT(json.at("cache").at("bytes"), bytes);
        EXPECT_GT(json.at("check").at("max_error"), error);
        bytes = json.at("cache").at("bytes"), error = json.at("check").at("max_error");
    }
}

TEST(RunCache, BatchesOfDifferentLengths) {
    const Words words = {"run",
                         "--model",
                         "samples/minilm",
                         "--layer",
                         "0",
                         "--input",
                         kMini + "batch.layer0.in",
                         "--lengths",
                         kMini + "batch.lengths",
                         "--causal"};
    const Scratch scratch;
    ASSERT_EQ(headwise_program(words + Words{"--out", scratch.file("y.npy")}).code, 0);
    const Json check = json_of(words + Words{"--decode", "11", "--check", scratch.file("y.npy")}).at("check");
    EXPECT_TRUE(check.at("passed"));
    EXPECT_GT(check.at("left_out"), 0);
}

TEST(RunWeights, AreThoseOfTheModelAndRowsSumToOne) {
    const Scratch scratch;
    const std::string npy = scratch.file("w.npy");
    const Words words = {
        "run", "--model", "samples/minilm", "--layer", "3", "--input", kMini + "brackets.layer3.in"};
    const Json json = json_of(words + Words{"--weights-out", npy});
    EXPECT_EQ(json.at("weights").at("shape"), Json({1, 12, 16, 16}));
    const Tensor weights = load_npy(npy), known = load_tensor(kMini + "brackets.layer3.probs");
    ASSERT_EQ(weights.count(), known.count());
    for (std::int64_t i = 0; i < known.count(); ++i) {
        EXPECT_NEAR(weights.data<float>()[i], known.data<float>()[i], 2e-6);
    }
}

TEST(RunWeights, DecodingFillsTheSameTriangle) {
    const Scratch scratch;
    const std::string whole = scratch.file("whole.safetensors"), steps = scratch.file("steps.safetensors");
    ASSERT_EQ(headwise_program(kSmolText + Words{"--weights-out", whole}).code, 0);
    ASSERT_EQ(headwise_program(kSmolText + Words{"--weights-out", steps, "--decode", "7"}).code, 0);
    const Tensor a = load_tensor(whole + ":weights"), b = load_tensor(steps + ":weights");
    ASSERT_EQ(a.count(), 9 * 19 * 19);
    EXPECT_TRUE(std::equal(a.data<float>(), a.data<float>() + a.count(), b.data<float>()));
    for (std::int64_t row = 0; row < 9 * 19; ++row) {
        const float* w = a.data<float>() + row * 19;
        EXPECT_NEAR(std::accumulate(w, w + 19, 0.0), 1.0, 1e-5);
        EXPECT_TRUE(std::all_of(w + row % 19 + 1, w + 19, [](float x) { return x == 0; }));
    }
}

TEST(RunWeights, ScoresOfEveryKind) {
    const Scratch scratch;
    const auto scores = [&](const std::string& kind) {
        const std::string file = scratch.file(kind + ".safetensors");
        EXPECT_EQ(headwise_program(kSmolText + Words{"--weights-out", file, "--scores", kind}).code, 0);
        return load_tensor(file + ":" + kind);
    };
    const Tensor raw = scores("raw"), masked = scores("masked");
    ASSERT_EQ(raw.count(), masked.count());
    for (std::int64_t i = 0; i < raw.count(); ++i) {
        const bool hidden = i % 19 > i / 19 % 19;
        EXPECT_TRUE(std::isfinite(raw.data<float>()[i]));
        EXPECT_EQ(masked.data<float>()[i], hidden ? -INFINITY : raw.data<float>()[i]);
    }
}

TEST(RunLayers, PutsTheNumberIntoEveryName) {
    const Scratch scratch;
    const Words words = {"run", "--model", "samples/minilm", "--input", kMini + "plain.layer{layer}.in"};
    const Words check = {"--check", kMini + "plain.layer{layer}.out"};
    const Json all = json_of(words + check + Words{"--layers", "all", "--out", scratch.file("y{layer}.npy")});
    ASSERT_EQ(all.at("layers").size(), 6u);
    for (std::size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(all.at("layers")[i].at("layer"), i);
        EXPECT_TRUE(all.at("layers")[i].at("check").at("passed"));
    }
    EXPECT_EQ(scratch.entries(), 6u);
    EXPECT_EQ(json_of(words + Words{"--layers", "0,2-4"}).at("layers").size(), 4u);
    const Words wrong = {"run",
                         "--model",
                         "samples/minilm",
                         "--input",
                         kMini + "plain.layer{layer}.in",
                         "--check",
                         kMini + "plain.layer0.out",
                         "--layers",
                         "0-1"};
    EXPECT_EQ(json_of(wrong, 1).at("layers")[0].at("check").at("passed"), true);
}

TEST(TraceCache, CountsWhatSharedHeadsAndWindowsSave) {
    const Json cache =
        json_of({"trace", "--model", "samples/smollm2", "--layer", "8", "--context", "1000"}).at("cache");
    EXPECT_EQ(cache.at("token_bytes"), 2 * 3 * 64 * 4);
    EXPECT_EQ(cache.at("multi_head_token_bytes"), 2 * 9 * 64 * 4);
    const Json& model = cache.at("savings");
    ASSERT_EQ(model.size(), 2u);  // H 9, G 3, D 64
    EXPECT_EQ(model[0].at("bytes").at("f32"), 1000 * 2 * 9 * 64 * 4);
    EXPECT_EQ(model[1].at("name"), "GQA 3:1");
    EXPECT_EQ(model[1].at("bytes").at("bf16"), 1000 * 2 * 3 * 64 * 2);
    EXPECT_EQ(model[1].at("bytes").at("int8"), 1000 * 2 * 3 * (64 + 4));
    EXPECT_EQ(model[1].at("bytes").at("int4"), 1000 * 2 * 3 * (32 + 4));
    const Json window = json_of({"trace", "--embed", "64", "--heads", "4", "--kv-heads", "1", "--window", "100",
                                 "--context", "1000"})
                            .at("cache")
                            .at("savings");
    ASSERT_EQ(window.size(), 3u);
    EXPECT_EQ(window[1].at("name"), "MQA");
    EXPECT_EQ(window[2].at("keys"), 100);
    EXPECT_NEAR(window[2].at("share_of_mha").get<double>(), 0.025, 1e-12);
}

TEST(RunFlags, ThatDoNotFitTogetherAreRefused) {
    const auto refused = [&](const Words& more, const std::string& words) {
        SCOPED_TRACE(testing::PrintToString(more));
        expect_refused(headwise_program(kSmolText + more), 2, words);
    };
    refused({"--cache", "heap"}, "--cache");
    refused({"--decode", "20"}, "only 19 tokens");
    refused({"--decode", "-1"}, "--decode");
    refused({"--cache-type", "int8"}, "without --cache");
    refused({"--page-size", "4", "--decode", "2"}, "--page-size");
    refused({"--cache-type", "int8", "--decode", "2"}, "--tolerance");
    refused({"--scores", "raw"}, "--weights-out");
    refused({"--weights-out", "w.txt"}, ".safetensors");
    refused({"--capacity", "7", "--decode", "2"}, "holds 0 of 7 keys");
    refused({"--part", "decoder-ring"}, "decoder-ring");
    const Words layers = {"run", "--model", "samples/minilm", "--input", kMini + "plain.layer0.in"};
    for (const char* list : {",", "x", "3-1", "1-", "-1", "0,,1", "99999999999999999999"}) {
        SCOPED_TRACE(list);
        const Answer answer = headwise_program(layers + Words{"--layers=" + std::string(list)});
        EXPECT_EQ(answer.code, 2) << answer.err;
    }
    expect_refused(headwise_program(layers + Words{"--layers", "0-1", "--out", "y.npy"}), 2, "{layer}");
    expect_refused(headwise_program(layers + Words{"--layers", "0", "--layer", "1"}), 2, "--layer");
}

}  // namespace
}  // namespace headwise::test
