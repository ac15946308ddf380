// `headwise run`: one layer of a checkpoint on an input tensor, timed and checked.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <headwise/cpu.h>
#include <headwise/error.h>
#include <headwise/mha.h>
#include <headwise/weights.h>

#include "cli/commands.h"
#include "cli/compare.h"
#include "cli/inputs.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/text.h"

namespace headwise::cli {

namespace {

struct Times {
    double first_ms = 0;
    double best_ms = 0;
};

struct Result {
    LayerWeights layer;
    Tensor x, lengths, positions, y, expected;
    Times times;
    std::optional<Comparison> check;
};

bool ends_with_npy(const std::string& path) { return path.ends_with(".npy"); }

void require_known_ending(const std::string& path) {
    if (path.empty() || ends_with_npy(path) || path.ends_with(".safetensors")) return;
    throw Error(ErrorCode::invalid_argument, "--out " + path + " must end in .npy or .safetensors");
}

void require_sane_tolerance(const RunOptions& options) {
    if (!options.tolerance) return;
    if (options.check.empty()) throw Error(ErrorCode::invalid_argument, "--tolerance is given without --check");
    if (!std::isfinite(*options.tolerance) || *options.tolerance < 0) {
        throw Error(ErrorCode::invalid_argument,
                    join("--tolerance ", *options.tolerance, " must be a finite number of at least 0"));
    }
}

void save(const std::string& path, const ConstTensorView& y) {
    if (ends_with_npy(path)) {
        save_npy(path, y);
    } else {
        save_safetensors(path, {{"y", y}});
    }
}

Times compute(const MultiHeadAttention& block, const RunOptions& options, Result& result, Progress& progress) {
    ForwardOptions forward;
    if (!result.lengths.empty()) forward.mask = key_lengths(result.lengths.view());
    forward.rope_positions = result.positions.view();
    Times times;
    for (int i = 0; i < options.repeat; ++i) {
        const auto start = std::chrono::steady_clock::now();
        block.forward(result.x.view(), result.y.view(), forward);
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
        if (i == 0) times.first_ms = times.best_ms = took.count();
        times.best_ms = std::min(times.best_ms, took.count());
        progress.step();
    }
    return times;
}

// Everything that can be refused is read before anything is computed.
Result load(const RunOptions& options) {
    Result result;
    result.layer =
        load_layer(options.layer.model,
                   {.layer = options.layer.layer, .dtype = options.layer.dtype, .causal = options.layer.causal});
    const MhaConfig config = resolve(result.layer.config);
    result.x = load_input(options.input, config.embed_dim);
    const ConstTensorView x = with_batch(result.x.view());
    result.lengths = load_lengths(options.lengths, x.size(0), x.size(1));
    result.positions = load_positions(options.positions, config, x.size(0), x.size(1));
    std::vector<std::int64_t> shape = sizes_of(result.x.view());
    shape.back() = config.out_dim;
    result.y = Tensor(config.dtype, shape);
    if (!options.check.empty()) result.expected = load_expected(options.check, result.y.view());
    return result;
}

Json to_json(const RunOptions& options, const Result& result, const MhaConfig& config) {
    Json input = shape_json(result.x.view()), output = shape_json(result.y.view());
    input.set("file", options.input);
    output.set("file", options.out.empty() ? Json() : Json(options.out));
    Json json = Json::object({{"command", "run"},
                              {"model", options.layer.model},
                              {"layer", options.layer.layer},
                              {"family", result.layer.family},
                              {"tensors", Json::array(result.layer.tensors)},
                              {"config", config_json(config)},
                              {"isa", active_isa()},
                              {"threads", threads()},
                              {"input", input},
                              {"output", output},
                              {"time_ms", Json::object({{"first", result.times.first_ms},
                                                        {"best", result.times.best_ms},
                                                        {"calls", options.repeat}})}});
    if (!result.check) return json;
    const Comparison& check = *result.check;
    json.set("check", Json::object({{"expected", options.check},
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
                                    {"passed", check.passed}}));
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

void print_text(const RunOptions& options, const Result& result, const MhaConfig& config) {
    std::printf("layer    %s, layer %s (%s)\n", options.layer.model.c_str(),
                std::to_string(options.layer.layer).c_str(), result.layer.family.c_str());
    std::printf("         %s\n", describe(config).c_str());
    std::printf("input    %s  %s\n", shape_text(result.x.view()).c_str(), options.input.c_str());
    std::printf("output   %s%s%s\n", shape_text(result.y.view()).c_str(), options.out.empty() ? "" : "  ",
                options.out.c_str());
    std::printf("machine  %s, %d threads\n", active_isa().c_str(), threads());
    if (options.repeat > 1) {
        std::printf("time     %.3f ms, best of %d (first %.3f ms)\n", result.times.best_ms, options.repeat,
                    result.times.first_ms);
    } else {
        std::printf("time     %.3f ms, first call (--repeat N for a best)\n", result.times.first_ms);
    }
    if (result.check) print_check(*result.check, options.check);
}

}  // namespace

Exit run(const RunOptions& options) {
    apply(options.machine);
    require_known_ending(options.out);
    require_sane_tolerance(options);
    Result result;
    MhaConfig config;
    {
        Progress progress("loading", options.repeat + 2);
        result = load(options);
        progress.step("packing weights");
        const MultiHeadAttention block(result.layer.config, result.layer.weights());
        config = block.config();
        progress.step("computing");
        result.times = compute(block, options, result, progress);
    }
    if (!options.out.empty()) save(options.out, result.y.view());
    if (!options.check.empty()) {
        std::span<const std::int64_t> lengths;
        if (!result.lengths.empty()) {
            lengths = {result.lengths.data<std::int64_t>(), static_cast<std::size_t>(result.lengths.count())};
        }
        result.check = compare(with_batch(result.y.view()), with_batch(result.expected.view()), lengths,
                               options.tolerance.value_or(default_tolerance(config.dtype)));
    }
    if (options.json) {
        print(to_json(options, result, config));
    } else {
        print_text(options, result, config);
    }
    return !result.check || result.check->passed ? Exit::done : Exit::check_failed;
}

}  // namespace headwise::cli
