// `headwise example`: the worked split, explained.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <headwise/cpu.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/text.h"
#include "cli/worked_split.h"

namespace headwise::cli {

namespace {

constexpr double kTolerance = 1e-6;  // f32 arithmetic on numbers below 3

// How far the library is from plain arithmetic, and the two sides of the identity from each other.
struct Verdict {
    std::size_t compared = 0;
    double worst = 0;     // library against double, all numbers
    double identity = 0;  // concat * W_O against the sum over the heads
    bool passed = false;
};

Verdict judge(const WorkedSplit& library, const WorkedSplit& hand) {
    const std::vector<double> got = all_numbers(library), expected = all_numbers(hand);
    Verdict verdict{.compared = got.size(), .passed = got.size() == expected.size()};
    const auto take = [&](double difference, double& worst) {
        if (!(difference <= kTolerance)) verdict.passed = false;  // NaN fails too
        worst = std::max(worst, difference);
    };
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
        take(std::fabs(got[i] - expected[i]), verdict.worst);
    }
    for (std::size_t j = 0; j < library.y.size(); ++j) {
        take(std::fabs(library.y[j] - library.sum[j]), verdict.identity);
    }
    return verdict;
}

Json look_json(const Look& look) {
    return Json::object({{"scores", Json::array(look.scores)},
                         {"scaled", Json::array(look.scaled)},
                         {"weights", Json::array(look.weights)},
                         {"output", Json::array(look.output)}});
}

Json rows_json(std::span<const Row4> rows) {
    Json list = Json::array();
    for (const Row4& row : rows) list.push(Json::array(row));
    return list;
}

Json split_json(const WorkedSplit& split) {
    Json heads = Json::array();
    for (const Look& look : split.heads) heads.push(look_json(look));
    return Json::object({{"heads", heads},
                         {"wide", look_json(split.wide)},
                         {"concat", Json::array(split.concat)},
                         {"contributions", rows_json(split.contributions)},
                         {"sum", Json::array(split.sum)},
                         {"y", Json::array(split.y)}});
}

void print_json(const WorkedSplit& library, const WorkedSplit& hand, const Verdict& verdict) {
    print(Json::object({{"command", "example"},
                        {"isa", active_isa()},
                        {"query", Json::array(kQuery)},
                        {"keys", rows_json(kTokens)},
                        {"values", rows_json(kTokens)},
                        {"w_o", rows_json(kOutput)},
                        {"library", split_json(library)},
                        {"by_hand", split_json(hand)},
                        {"compared", verdict.compared},
                        {"worst_difference", verdict.worst},
                        {"identity_difference", verdict.identity},
                        {"tolerance", kTolerance},
                        {"passed", verdict.passed}}));
}

void print_row(const char* name, const Row4& row, const char* remark) {
    std::printf("  %-6s %5.1f %5.1f  | %5.1f %5.1f    %s\n", name, row[0], row[1], row[2], row[3], remark);
}

void print_split() {
    std::printf(
        "Why heads? Two of them, worked by hand: E = 4, h = 2, so each head is 2 wide.\n"
        "One query looks at two tokens, A and B.\n\n"
        "1. Split. Head 0 owns columns 0-1 of every projected row, head 1 owns columns 2-3.\n"
        "   A split is a view: the same four numbers in memory, read through two windows.\n\n"
        "             head 0         head 1\n");
    print_row("q", kQuery, "head 0 asks for direction 0, head 1 for direction 1");
    print_row("k(A)", kTokens[0], "A's key is [1,0] to both heads");
    print_row("k(B)", kTokens[1], "B's key is [0,1] to both heads");
    print_row("v(A)", kTokens[0], "values are one-hot too, so an output");
    print_row("v(B)", kTokens[1], "reads: [how much of A, how much of B]");
}

void print_look(const char* name, const Look& look) {
    std::printf("  %-7s %7.4f %7.4f   %7.4f %7.4f   %7.4f %7.4f   %s\n", name, look.scores[0], look.scores[1],
                look.scaled[0], look.scaled[1], look.weights[0], look.weights[1],
                numbers_text(look.output).c_str());
}

void print_look_title() {
    std::printf(
        "              <q,k>        times 1/sqrt(D)        softmax\n"
        "               A       B         A       B         A       B   output\n");
}

void print_heads(const WorkedSplit& split) {
    const Look& a = split.heads[0];
    const Look& b = split.heads[1];
    std::printf(
        "\n2. Each head on its own: scores <q,k>, times 1/sqrt(2) = 0.7071, softmax over the tokens,\n"
        "   and the blend of the values with these weights.\n\n");
    print_look_title();
    print_look("head 0", a);
    print_look("head 1", b);
    std::printf(
        "\n   Head 0 prefers A (%.0f%%) while head 1, in the same step, prefers B (%.0f%%).\n"
        "   Two softmaxes: two places can be looked at at once, and the answers stay apart.\n",
        100 * a.weights[0], 100 * b.weights[1]);
}

void print_wide(const WorkedSplit& split) {
    std::printf("\n3. One wide head instead: the same four numbers, one softmax, scale 1/sqrt(4) = 0.5.\n\n");
    print_look_title();
    print_look("wide", split.wide);
    std::printf(
        "\n   Its score is the sum over all columns: %.1f + %.1f for A, %.1f + %.1f for B. The two wishes\n"
        "   meet in one number before the softmax and nearly cancel: a blend of A and B, in all columns.\n",
        split.heads[0].scores[0], split.heads[1].scores[0], split.heads[0].scores[1], split.heads[1].scores[1]);
}

void print_product(const char* name, std::span<const double> left, std::span<const double> product) {
    std::printf("  %-16s %-36s -> %s\n", name, left.empty() ? "" : numbers_text(left).c_str(),
                numbers_text(product).c_str());
}

void print_output(const WorkedSplit& split) {
    std::printf(
        "\n4. Concat and W_O. The outputs side by side are multiplied by W_O. Rows 0-1 of W_O meet\n"
        "   head 0 only (W_O^0), rows 2-3 meet head 1 only (W_O^1): concat * W_O = sum of head_h * W_O^h.\n\n");
    for (std::size_t i = 0; i < kOutput.size(); ++i) {
        const char* name = i == 0 ? "W_O^0" : i == 2 ? "W_O^1" : "";
        std::printf("  %-16s %s\n", name, numbers_text(kOutput[i]).c_str());
    }
    std::printf("\n");
    print_product("head 0 * W_O^0", split.heads[0].output, split.contributions[0]);
    print_product("head 1 * W_O^1", split.heads[1].output, split.contributions[1]);
    print_product("sum", {}, split.sum);
    print_product("concat * W_O", split.concat, split.y);
}

void print_verdict(const Verdict& verdict) {
    std::printf(
        "\nChecked: all %zu numbers above come from the library (%s, f32); plain arithmetic in double\n"
        "differs by at most %.1e, the two sides of the identity by %.1e; allowed %.0e: %s\n",
        verdict.compared, active_isa().c_str(), verdict.worst, verdict.identity, kTolerance,
        verdict.passed ? "PASS" : "FAIL");
}

}  // namespace

Exit example(const ExampleOptions& options) {
    apply(options.machine);
    const WorkedSplit library = split_by_library(), hand = split_by_hand();
    const Verdict verdict = judge(library, hand);
    if (options.json) {
        print_json(library, hand, verdict);
    } else {
        print_split();
        print_heads(library);
        print_wide(library);
        print_output(library);
        print_verdict(verdict);
    }
    return verdict.passed ? Exit::done : Exit::check_failed;
}

}  // namespace headwise::cli
