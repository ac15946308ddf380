#include "cli/run_result.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include <headwise/cpu.h>

#include "cli/describe.h"
#include "cli/inputs.h"
#include "cli/text.h"

namespace headwise::cli {

namespace {

double mean_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::string cache_text(const RunOptions& options) {
    std::string words = join(options.cache, " ", options.cache_type);
    if (options.cache == "paged") words += join(", pages of ", options.page_size, " tokens");
    return words;
}

Json check_json(const RunOptions& options, const Comparison& check) {
    return Json::object({{"expected", options.check},
                         {"compared", check.compared},
                         {"left_out", check.left_out},
                         {"nan", check.nan},
                         {"inf", check.inf},
                         {"expected_not_finite", check.expected_not_finite},
                         {"max_error", check.max_error},
                         {"worst_at", Json::array(check.worst)},
                         {"max_abs", check.max_abs},
                         {"tolerance", check.tolerance},
                         {"bound", check.bound},
                         {"passed", check.passed}});
}

Json cache_json(const RunOptions& options, const RunResult& result) {
    if (options.cache.empty()) return {};
    Json json = Json::object({{"kind", options.cache},
                              {"type", options.cache_type},
                              {"bytes", result.best.cache_bytes},
                              {"prefill_ms", result.best.prefill_ms},
                              {"decoded", options.decode}});
    if (options.decode > 0) json.set("decode_ms_per_token", mean_of(result.best.step_ms));
    return json;
}

void print_check(const Comparison& check, const std::string& expected) {
    std::printf("check    %s: max error %.2e at %s, allowed %.2e = %g * max|y| %.4g\n",
                check.passed ? "PASS" : "FAIL", check.max_error, list_text(check.worst).c_str(), check.bound,
                check.tolerance, check.max_abs);
    const std::string counts = join(check.compared, " numbers compared, ", check.left_out,
                                    " left out beyond the lengths; in y ", check.nan, " NaN, ", check.inf, " Inf");
    std::printf("         %s\n", counts.c_str());
    if (check.expected_not_finite > 0) {
        std::printf("         %s of the expected numbers are NaN or Inf\n",
                    std::to_string(check.expected_not_finite).c_str());
    }
    if (check.compared == 0 && check.left_out > 0) std::printf("         nothing was compared\n");
    std::printf("         against %s\n", expected.c_str());
}

void print_times(const RunOptions& options, const RunResult& result) {
    if (options.repeat > 1) {
        std::printf("time     %.3f ms, best of %d (first %.3f ms)\n", result.best.all_ms, options.repeat,
                    result.first.all_ms);
    } else {
        std::printf("time     %.3f ms, first call (--repeat N for a best)\n", result.first.all_ms);
    }
    if (options.cache.empty()) return;
    std::printf("cache    %s, %s\n", cache_text(options).c_str(), bytes_text(result.best.cache_bytes).c_str());
    std::printf("         prefill %.3f ms", result.best.prefill_ms);
    if (options.decode > 0) {
        std::printf(", then %s tokens one at a time, %.4f ms each", std::to_string(options.decode).c_str(),
                    mean_of(result.best.step_ms));
    }
    std::printf("\n");
}

}  // namespace

Json run_json(const RunOptions& options, const RunResult& result) {
    Json input = shape_json(result.x.view()), output = shape_json(result.y.view());
    input.set("file", options.input);
    output.set("file", options.out.empty() ? Json() : Json(options.out));
    Json json = Json::object({{"command", "run"},
                              {"model", options.layer.model},
                              {"layer", options.layer.layer},
                              {"family", result.family},
                              {"tensors", Json::array(result.tensors)},
                              {"config", config_json(result.config)},
                              {"isa", active_isa()},
                              {"threads", threads()},
                              {"input", input},
                              {"output", output},
                              {"time_ms", Json::object({{"first", result.first.all_ms},
                                                        {"best", result.best.all_ms},
                                                        {"calls", options.repeat}})}});
    if (!options.layer.part.empty()) json.set("part", options.layer.part);
    if (!options.cache.empty()) json.set("cache", cache_json(options, result));
    if (!options.weights_out.empty()) {
        Json scores = shape_json(result.scores.view());
        scores.set("kind", options.scores);
        scores.set("file", options.weights_out);
        json.set("weights", scores);
    }
    if (result.check) json.set("check", check_json(options, *result.check));
    return json;
}

void print_run(const RunOptions& options, const RunResult& result) {
    std::printf("layer    %s, layer %s (%s%s%s)\n", options.layer.model.c_str(),
                std::to_string(options.layer.layer).c_str(), result.family.c_str(),
                options.layer.part.empty() ? "" : ", ", options.layer.part.c_str());
    std::printf("         %s\n", wrap(describe(result.config), 100, 9).c_str());
    std::printf("input    %s  %s\n", shape_text(result.x.view()).c_str(), options.input.c_str());
    if (!result.key.empty()) {
        std::printf("keys     %s  %s\n", shape_text(result.key.view()).c_str(), options.key.c_str());
    }
    std::printf("output   %s%s%s\n", shape_text(result.y.view()).c_str(), options.out.empty() ? "" : "  ",
                options.out.c_str());
    if (!options.weights_out.empty()) {
        std::printf("%-9s%s  %s\n", options.scores == "weights" ? "weights" : "scores",
                    shape_text(result.scores.view()).c_str(), options.weights_out.c_str());
    }
    std::printf("machine  %s, %d threads\n", active_isa().c_str(), threads());
    print_times(options, result);
    if (result.check) print_check(*result.check, options.check);
}

}  // namespace headwise::cli
