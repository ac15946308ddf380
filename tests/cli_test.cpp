// The command line as a user meets it: help, flags, exit codes, and the commands that need no files.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <headwise/cpu.h>

#include "program.h"

namespace headwise::test {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kCommands = {"run", "trace", "example", "info"};

Json parsed(const Answer& answer) {
    EXPECT_EQ(answer.err, "");
    Json json = Json::parse(answer.out, nullptr, false);
    EXPECT_TRUE(json.is_object()) << answer.out;
    return json;
}

// The commands below "Example:" in a help text, as argument lists without the leading "headwise".
std::vector<std::vector<std::string>> examples_of(const std::string& help) {
    std::string text = help.substr(std::min(help.find("Example"), help.size()));
    for (std::size_t at; (at = text.find("\\\n")) != std::string::npos;) text[at] = text[at + 1] = ' ';
    std::vector<std::vector<std::string>> examples;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string word;
        if (!(words >> word) || word != "headwise") continue;
        examples.emplace_back();
        while (words >> word) examples.back().push_back(word);
    }
    return examples;
}

TEST(Help, OfEveryCommandHasAnExampleThatRuns) {
    for (const std::string& command : kCommands) {
        SCOPED_TRACE(command);
        const Answer help = headwise_program({command, "--help"});
        EXPECT_EQ(help.code, 0);
        EXPECT_EQ(help.err, "");
        EXPECT_NE(help.out.find("--json"), std::string::npos);
        EXPECT_NE(help.out.find("--isa"), std::string::npos);
        EXPECT_NE(help.out.find("--threads"), std::string::npos);
        const auto examples = examples_of(help.out);
        ASSERT_FALSE(examples.empty()) << help.out;
        for (const auto& example : examples) {
            EXPECT_EQ(example.front(), command);
            const Answer answer = headwise_program(example);
            EXPECT_EQ(answer.code, 0) << answer.err;
            EXPECT_NE(answer.out, "");
            EXPECT_EQ(answer.err, "");  // no progress bar outside a terminal
        }
    }
}

TEST(Help, NamesTheCommandsAndTheExitCodes) {
    const Answer help = headwise_program({"--help"});
    EXPECT_EQ(help.code, 0);
    for (const std::string& command : kCommands) EXPECT_NE(help.out.find("\n  " + command), std::string::npos);
    EXPECT_NE(help.out.find("2 wrong use"), std::string::npos);
}

TEST(Version, IsTheLibrarys) {
    const Answer answer = headwise_program({"--version"});
    EXPECT_EQ(answer.code, 0);
    EXPECT_EQ(answer.out, std::string("headwise ") + version() + "\n");
}

TEST(WrongUse, IsExitCode2AndOneSentence) {
    expect_refused(headwise_program({}), 2, "run, trace, example or info");
    expect_refused(headwise_program({"fly"}), 2, "fly");
    expect_refused(headwise_program({"run"}), 2, "--model");
    for (const std::string& command : kCommands) {
        SCOPED_TRACE(command);
        const bool files = command == "run";
        const std::vector<std::string> base =
            files ? std::vector<std::string>{command, "--model", "m", "--input", "x"}
                  : std::vector<std::string>{command};
        const auto with = [&](std::vector<std::string> more) {
            more.insert(more.begin(), base.begin(), base.end());
            return headwise_program(more);
        };
        expect_refused(with({"--frobnicate"}), 2, "--frobnicate");
        expect_refused(with({"--isa", "mmx"}), 2, "mmx");
        expect_refused(with({"--threads", "0"}), 2, "--threads");
        expect_refused(with({"--threads", "many"}), 2, "--threads");
        expect_refused(headwise_program(base, {"HEADWISE_ISA=mmx"}), 2, "mmx");
        expect_refused(headwise_program(base, {"HEADWISE_THREADS=many"}), 2, "many");
    }
    const std::vector<std::string> run = {"run", "--model", "samples/minilm", "--input", "x.npy"};
    const auto run_with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), run.begin(), run.end());
        return headwise_program(more);
    };
    expect_refused(run_with({"--dtype", "f8"}), 2, "--dtype");
    expect_refused(run_with({"--out", "y.txt"}), 2, ".safetensors");
    expect_refused(run_with({"--layer", "-1"}), 2, "--layer");
    expect_refused(run_with({"--repeat", "0"}), 2, "--repeat");
    expect_refused(run_with({"--tolerance", "1"}), 2, "--check");
    expect_refused(run_with({"--check", "y.npy", "--tolerance", "nan"}), 2, "finite");
    expect_refused(run_with({"--check", "y.npy", "--tolerance", "-1"}), 2, "at least 0");
    expect_refused(headwise_program({"trace"}), 2, "--embed");
    expect_refused(headwise_program({"trace", "--embed", "8", "--heads", "4", "--kv-heads", "3"}), 2, "kv_heads");
    expect_refused(headwise_program({"trace", "--embed", "8", "--model", "samples/minilm"}), 2, "--embed");
    expect_refused(headwise_program({"trace", "--model", "samples/minilm", "--heads", "5"}), 2, "--heads 5");
}

TEST(Machine, EveryUsableIsaAndTheThreadsAreObeyed) {
    for (const IsaInfo& isa : isas()) {
        if (!isa.usable) {
            expect_refused(headwise_program({"example", "--isa", isa.name}), 2, isa.name);
            continue;
        }
        EXPECT_EQ(parsed(headwise_program({"example", "--json", "--isa", isa.name})).at("isa"), isa.name);
        EXPECT_EQ(parsed(headwise_program({"info", "--json"}, {"HEADWISE_ISA=" + isa.name})).at("isa"), isa.name);
    }
    EXPECT_EQ(parsed(headwise_program({"info", "--json", "--threads", "3"})).at("threads"), 3);
}

TEST(Info, TellsTheMachineInTextAndJson) {
    const Json json = parsed(headwise_program({"info", "--json"}));
    EXPECT_EQ(json.at("version"), version());
    EXPECT_EQ(json.at("isas").size(), isas().size());
    EXPECT_EQ(json.at("kernels").size(), kernel_table().size());
    EXPECT_GT(json.at("cpu").at("logical_cpus"), 0);
    const Answer text = headwise_program({"info"});
    EXPECT_EQ(text.code, 0);
    EXPECT_NE(text.out.find(active_isa()), std::string::npos);
    for (const KernelInfo& kernel : kernel_table()) EXPECT_NE(text.out.find(kernel.name), std::string::npos);
}

TEST(Example, ShowsTheNumbersThatPaperAndPencilGive) {
    const Json json = parsed(headwise_program({"example", "--json"}));
    EXPECT_TRUE(json.at("passed"));
    const auto near = [](const Json& number, double expected) {
        EXPECT_NEAR(number.get<double>(), expected, 1e-6);
    };
    const auto first_weight = [](double a, double b, double scale) { return 1 / (1 + std::exp((b - a) * scale)); };
    const double head_0 = first_weight(0.9, 0.1, std::sqrt(0.5)), head_1 = first_weight(0.2, 0.8, std::sqrt(0.5));
    const double wide = first_weight(1.1, 0.9, 0.5);
    EXPECT_GT(head_0, 0.6);  // head 0 prefers A, head 1 prefers B, the wide head is undecided
    EXPECT_LT(head_1, 0.4);
    EXPECT_NEAR(wide, 0.525, 1e-3);
    for (const char* side : {"library", "by_hand"}) {
        const Json& split = json.at(side);
        near(split["heads"][0]["weights"][0], head_0), near(split["heads"][0]["weights"][1], 1 - head_0);
        near(split["heads"][1]["weights"][0], head_1), near(split["heads"][1]["weights"][1], 1 - head_1);
        near(split["heads"][0]["scores"][0], 0.9), near(split["heads"][1]["scores"][1], 0.8);
        near(split["heads"][0]["scaled"][0], 0.9 * std::sqrt(0.5));
        near(split["wide"]["weights"][0], wide), near(split["wide"]["scores"][0], 1.1);
        const std::vector<double> concat = {head_0, 1 - head_0, head_1, 1 - head_1};
        for (std::size_t j = 0; j < 4; ++j) {
            double y = 0;
            for (std::size_t i = 0; i < 4; ++i) y += concat[i] * json["w_o"][i][j].get<double>();
            near(split["concat"][j], concat[j]), near(split["y"][j], y), near(split["sum"][j], y);
        }
    }
    EXPECT_LT(json.at("identity_difference"), 1e-6);
}

TEST(Example, IsReadable) {
    const Answer answer = headwise_program({"example"});
    EXPECT_EQ(answer.code, 0);
    std::istringstream lines(answer.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
    for (const char* number : {"0.6378", "0.3622", "0.3955", "0.6045", "0.5250", "PASS"}) {
        EXPECT_NE(answer.out.find(number), std::string::npos) << number;
    }
}

TEST(Output, ThatCannotBeWrittenIsAnError) {
    const Answer answer = headwise_program({"info"}, {}, "/dev/full");
    EXPECT_EQ(answer.code, 3);
    EXPECT_NE(answer.err.find("standard output"), std::string::npos);
}

}  // namespace
}  // namespace headwise::test
