// `headwise trace`: the flow from x to y, view by view.
#include <headwise/trace.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <headwise/cpu.h>
#include <headwise/error.h>
#include <headwise/weights.h>

#include "cli/cache_table.h"
#include "cli/commands.h"
#include "cli/describe.h"
#include "cli/inputs.h"
#include "cli/json.h"
#include "cli/text.h"
#include "cli/variants.h"

namespace headwise::cli {

namespace {

constexpr std::int64_t kDefaultTokens = 8;
constexpr std::int64_t kHeadsShown = 16;

void require(bool ok, const char* message) {
    if (!ok) throw Error(ErrorCode::invalid_argument, message);
}

// The same numbers in every run, spread over [-1, 1) * amplitude.
Tensor random_tensor(std::initializer_list<std::int64_t> shape, double amplitude, unsigned seed) {
    Tensor tensor(DType::f32, shape);
    std::mt19937 generator(seed);
    for (std::int64_t i = 0; i < tensor.count(); ++i) {
        const double unit = static_cast<double>(generator()) * 0x1p-31 - 1;
        tensor.data<float>()[i] = static_cast<float>(unit * amplitude);
    }
    return tensor;
}

Mask mask_of(const TraceOptions& options) {
    Mask mask;
    mask.causal = options.layer.causal.value_or(options.window > 0);
    if (options.window > 0) mask.window_left = options.window - 1;
    return mask;
}

LayerWeights random_layer(const TraceOptions& options) {
    LayerWeights layer;
    layer.family = "random weights";
    layer.config = resolve({.embed_dim = options.embed,
                            .heads = options.heads.front(),
                            .kv_heads = options.kv_heads.empty() ? 0 : options.kv_heads.front(),
                            .head_dim = options.head_dim,
                            .mask = mask_of(options),
                            .dtype = options.layer.dtype.value_or(DType::f32)});
    const MhaConfig& c = layer.config;
    const double amplitude = std::sqrt(3.0 / static_cast<double>(c.embed_dim));  // keeps the size of x
    layer.q = random_tensor({c.heads * c.head_dim, c.embed_dim}, amplitude, 1);
    layer.k = random_tensor({c.kv_heads * c.head_dim, c.embed_dim}, amplitude, 2);
    layer.v = random_tensor({c.kv_heads * c.value_dim, c.embed_dim}, amplitude, 3);
    layer.o = random_tensor({c.out_dim, c.heads * c.value_dim}, amplitude, 4);
    return layer;
}

LayerWeights choose_layer(const TraceOptions& options) {
    if (options.layer.model.empty()) {
        require(options.embed > 0 && !options.heads.empty(), "give --model DIR, or --embed E and --heads H");
        require(options.layer.layer == 0, "--layer is given without --model");
        return random_layer(options);
    }
    require(options.embed == 0, "--model and --embed exclude each other");
    require(options.window == 0, "--window is given with --model, whose layers have their own");
    return load_layer(options.layer.model, {.layer = options.layer.layer,
                                            .part = options.layer.part,
                                            .dtype = options.layer.dtype,
                                            .causal = options.layer.causal});
}

Tensor choose_input(const TraceOptions& options, std::int64_t embed) {
    if (!options.input.empty()) return load_input("--input", options.input, embed);
    return random_tensor({1, options.tokens > 0 ? options.tokens : kDefaultTokens, embed}, 1, 0);
}

// ---- where each head lies -----------------------------------------------------------------------------------

// One step's window on the heads of a buffer.
struct HeadWindow {
    std::string step, buffer;
    std::int64_t offset = 0;  // bytes of head 0
    std::int64_t stride = 0;  // bytes from head to head
    std::int64_t heads = 0;   // H, or G where query heads share

    // Byte where query head h of `of_heads` reads or writes its first number: head g(h) of this window.
    std::int64_t place(std::int64_t h, std::int64_t of_heads) const {
        return offset + h / (of_heads / heads) * stride;
    }
    bool same_place(const HeadWindow& other) const {
        return buffer == other.buffer && offset == other.offset && stride == other.stride;
    }
};

// Position of the axis H or G in "[B,T,H,D]"; -1 if heads are not an axis of their own.
int head_axis(const std::string& axes) {
    int axis = 0;
    for (std::size_t i = 1; i + 1 < axes.size(); ++i) {
        if (axes[i] == ',') ++axis;
        const bool alone =
            (axes[i - 1] == ',' || axes[i - 1] == '[') && (axes[i + 1] == ',' || axes[i + 1] == ']');
        if (alone && (axes[i] == 'H' || axes[i] == 'G')) return axis;
    }
    return -1;
}

// The different windows of a trace: a transposed or rotated view of the same heads is not another one.
std::vector<HeadWindow> head_windows(const Trace& trace) {
    std::vector<HeadWindow> windows;
    for (const TraceStep& step : trace.steps) {
        const int axis = head_axis(step.axes);
        if (axis < 0 || axis >= step.view.rank || step.view.size(axis) == 0) continue;
        HeadWindow window{.step = step.name,
                          .buffer = step.buffer,
                          .offset = step.offset,
                          .stride = step.view.stride(axis) * static_cast<std::int64_t>(size_of(step.view.dtype)),
                          .heads = step.view.size(axis)};
        const auto seen = [&](const HeadWindow& other) { return other.same_place(window); };
        if (std::ranges::none_of(windows, seen)) windows.push_back(std::move(window));
    }
    return windows;
}

void print_heads(const Trace& trace, std::int64_t heads) {
    std::printf(
        "\nWhere each head finds its first token, as buffer + bytes: bands of one row, side by side\n\n  head");
    const std::vector<HeadWindow> windows = head_windows(trace);
    for (const HeadWindow& window : windows) std::printf("%18s", window.step.c_str());
    std::printf("\n");
    for (std::int64_t h = 0; h < std::min(heads, kHeadsShown); ++h) {
        std::printf("  %4s", std::to_string(h).c_str());
        for (const HeadWindow& window : windows) {
            std::printf("%18s", join(window.buffer, " + ", window.place(h, heads)).c_str());
        }
        std::printf("\n");
    }
    if (heads > kHeadsShown) std::printf("  ... and %s more\n", std::to_string(heads - kHeadsShown).c_str());
}

Json heads_json(const Trace& trace, std::int64_t heads) {
    const std::vector<HeadWindow> windows = head_windows(trace);
    Json list = Json::array();
    for (std::int64_t h = 0; h < heads; ++h) {
        Json places = Json::array();
        for (const HeadWindow& window : windows) {
            places.push(Json::object(
                {{"step", window.step}, {"buffer", window.buffer}, {"offset_bytes", window.place(h, heads)}}));
        }
        list.push(Json::object({{"head", h}, {"places", places}}));
    }
    return list;
}

// ---- the flow -------------------------------------------------------------------------------------------------

const char* stage_name(int stage) {
    constexpr std::array kNames = {"0 input", "1 project", "2 split", "3 attend", "4 merge", "5 project"};
    return stage >= 0 && stage < static_cast<int>(kNames.size()) ? kNames[static_cast<std::size_t>(stage)] : "";
}

void print_steps(const Trace& trace) {
    int stage = -1;
    for (const TraceStep& step : trace.steps) {
        if (step.stage != stage) std::printf("\n%s\n", stage_name(step.stage));
        stage = step.stage;
        std::printf("  %-16s %-11s %s %s, strides %s\n", step.name.c_str(), step.axes.c_str(),
                    std::string(name_of(step.view.dtype)).c_str(), list_text(sizes_of(step.view)).c_str(),
                    list_text(strides_of(step.view)).c_str());
        std::string place = join(step.buffer, " + ", step.offset, " B, shows ", step.bytes, " B");
        if (step.copied_bytes > 0) {
            place += join(", copied ", step.copied_bytes, " B");
        } else if (step.stage == 2 || step.stage == 4) {
            place += ", nothing copied";
        }
        std::printf("  %-16s %s\n", "", place.c_str());
        if (!step.note.empty()) std::printf("  %-16s %s\n", "", wrap(step.note, 98, 19).c_str());
    }
    std::printf(
        "\nSplit and merge copied %s bytes%s\n", std::to_string(trace.split_merge_copied_bytes).c_str(),
        trace.split_merge_copied_bytes == 0 ? ": the addresses above are windows on the same buffers." : ".");
}

void print_cache(const CacheAccount& cache) {
    std::printf("\nWhat the layer keeps of every token, in %s\n  %s\n", cache.type.c_str(),
                wrap(cache.note, 98, 2).c_str());
}

Json cache_json(const CacheAccount& cache, const std::vector<CacheRow>& savings) {
    return Json::object({{"type", cache.type},
                         {"token_bytes", cache.token_bytes},
                         {"multi_head_token_bytes", cache.multi_head_token_bytes},
                         {"window", cache.window},
                         {"note", cache.note},
                         {"savings", cache_rows_json(savings)}});
}

Json steps_json(const Trace& trace) {
    Json list = Json::array();
    for (const TraceStep& step : trace.steps) {
        list.push(Json::object({{"stage", step.stage},
                                {"name", step.name},
                                {"axes", step.axes},
                                {"dtype", name_of(step.view.dtype)},
                                {"shape", Json::array(sizes_of(step.view))},
                                {"strides", Json::array(strides_of(step.view))},
                                {"buffer", step.buffer},
                                {"offset_bytes", step.offset},
                                {"bytes", step.bytes},
                                {"copied_bytes", step.copied_bytes},
                                {"note", step.note}}));
    }
    return list;
}

}  // namespace

Exit trace(const TraceOptions& options) {
    apply(options.machine);
    const LayerWeights layer = choose_layer(options);
    const MultiHeadAttention block(layer.config, layer.weights());
    const MhaConfig& config = block.config();
    const Tensor x = choose_input(options, config.embed_dim);
    const Biases biases = {!layer.q_bias.empty(), !layer.k_bias.empty(), !layer.v_bias.empty(),
                           !layer.o_bias.empty()};
    std::vector<Variant> variants;
    if (has_variants(config)) variants = variants_of(config, biases, options.heads, options.kv_heads);
    const Trace flow = headwise::trace(block, x.view());
    const std::int64_t tokens = with_batch(x.view()).size(1);
    const std::int64_t context = options.context > 0 ? options.context : tokens;
    const std::vector<CacheRow> savings = cache_rows(config, context);
    if (options.json) {
        const bool stored = !options.layer.model.empty();
        print(Json::object({{"command", "trace"},
                            {"model", stored ? Json(options.layer.model) : Json()},
                            {"layer", stored ? Json(options.layer.layer) : Json()},
                            {"family", layer.family},
                            {"config", config_json(config)},
                            {"isa", active_isa()},
                            {"threads", threads()},
                            {"input", shape_json(x.view())},
                            {"steps", steps_json(flow)},
                            {"split_merge_copied_bytes", flow.split_merge_copied_bytes},
                            {"cache", cache_json(flow.cache, savings)},
                            {"heads", heads_json(flow, config.heads)},
                            {"variants", variants_json(variants, tokens)}}));
    } else {
        const std::string source =
            options.layer.model.empty() ? "" : join(options.layer.model, ", layer ", options.layer.layer, ", ");
        std::printf("From x to y: %s%s\n%s\n", source.c_str(), layer.family.c_str(), describe(config).c_str());
        print_steps(flow);
        print_heads(flow, config.heads);
        if (!variants.empty()) print_variants(variants, tokens);
        print_cache(flow.cache);
        print_cache_rows(savings, context);
    }
    return flow.split_merge_copied_bytes == 0 ? Exit::done : Exit::check_failed;
}

}  // namespace headwise::cli
