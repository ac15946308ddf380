// `headwise run`: layers of a checkpoint on input tensors, timed and checked.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
#include "cli/run_result.h"
#include "cli/text.h"

namespace headwise::cli {

namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

bool ends_with_npy(const std::string& path) { return path.ends_with(".npy"); }

void require_known_ending(const char* flag, const std::string& path) {
    if (path.empty() || ends_with_npy(path) || path.ends_with(".safetensors")) return;
    refuse(join(flag, " ", path, " must end in .npy or .safetensors"));
}

bool is_quantised(const RunOptions& options) { return options.cache_type.starts_with("int"); }

void require_sane_tolerance(const RunOptions& options) {
    if (options.check.empty()) {
        if (options.tolerance) refuse("--tolerance is given without --check");
        return;
    }
    if (!options.tolerance) {
        if (is_quantised(options)) {
            refuse(join("--check with an ", options.cache_type,
                        " cache needs --tolerance: what it costs depends on the layer"));
        }
        return;
    }
    if (!std::isfinite(*options.tolerance) || *options.tolerance < 0) {
        refuse(join("--tolerance ", *options.tolerance, " must be a finite number of at least 0"));
    }
}

void save(const std::string& path, const char* name, const ConstTensorView& tensor) {
    if (path.empty()) return;
    if (ends_with_npy(path)) {
        save_npy(path, tensor);
    } else {
        save_safetensors(path, {{name, tensor}});
    }
}

// ---- which layers -------------------------------------------------------------------------------------------------

std::int64_t parse_layer(const std::string& text, const std::string& list) {
    std::int64_t layer = -1;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, layer);
    if (error != std::errc() || rest != end || layer < 0) {
        refuse(join("--layers ", list, " must be numbers like 0,8,16, a range like 2-5, or all"));
    }
    return layer;
}

std::vector<std::int64_t> chosen_layers(const RunOptions& options) {
    if (options.layers.empty()) return {options.layer.layer};
    if (options.layers == "all") return stored_layers(options.layer.model, {.part = options.layer.part});
    constexpr std::int64_t kMost = 1 << 20;
    std::vector<std::int64_t> layers;
    for (std::size_t begin = 0; begin <= options.layers.size();) {
        const std::size_t end = std::min(options.layers.find(',', begin), options.layers.size());
        const std::string part = options.layers.substr(begin, end - begin);
        const std::size_t dash = part.find('-');
        const std::int64_t first = parse_layer(part.substr(0, dash), options.layers);
        const std::int64_t last =
            dash == std::string::npos ? first : parse_layer(part.substr(dash + 1), options.layers);
        if (last < first || last - first >= kMost)
            refuse(join("--layers ", options.layers, ": ", part, " is no range"));
        for (std::int64_t layer = first; layer <= last; ++layer) layers.push_back(layer);
        begin = end + 1;
    }
    return layers;
}

// The options of one layer: its number stands for every "{layer}".
RunOptions options_of(const RunOptions& options, std::int64_t layer) {
    RunOptions own = options;
    own.layer.layer = layer;
    for (std::string* text :
         {&own.input, &own.key, &own.positions, &own.lengths, &own.out, &own.weights_out, &own.check}) {
        constexpr std::string_view kMark = "{layer}";
        for (std::size_t at = 0; (at = text->find(kMark, at)) != std::string::npos;) {
            text->replace(at, kMark.size(), std::to_string(layer));
        }
    }
    return own;
}

// ---- one layer ----------------------------------------------------------------------------------------------------

ScoreKind score_kind(const std::string& name) {
    static const std::map<std::string, ScoreKind> kKinds = {{"raw", ScoreKind::raw},
                                                            {"capped", ScoreKind::capped},
                                                            {"masked", ScoreKind::masked},
                                                            {"weights", ScoreKind::weights}};
    return kKinds.at(name);
}

std::optional<KvCacheConfig> cache_of(const RunOptions& options, const Passes& passes) {
    static const std::map<std::string, CacheKind> kKinds = {
        {"contiguous", CacheKind::contiguous}, {"ring", CacheKind::ring}, {"paged", CacheKind::paged}};
    static const std::map<std::string, CacheType> kTypes = {{"f32", CacheType::f32},
                                                            {"bf16", CacheType::bf16},
                                                            {"f16", CacheType::f16},
                                                            {"int8", CacheType::int8},
                                                            {"int4", CacheType::int4}};
    if (options.cache.empty()) return std::nullopt;
    KvCacheConfig wish{.batch = passes.x.size(0),
                       .capacity = options.capacity > 0 ? options.capacity : keys_of(passes),
                       .kind = kKinds.at(options.cache),
                       .type = kTypes.at(options.cache_type)};
    if (options.page_size > 0) wish.page_size = options.page_size;
    return wish;
}

// Everything that can be refused is read before anything is computed.
Passes load(const RunOptions& options, LayerWeights& layer, RunResult& result) {
    result.family = layer.family;
    result.tensors = layer.tensors;
    result.config = resolve(layer.config);
    const MhaConfig& config = result.config;
    result.x = load_input("--input", options.input, config.embed_dim);
    if (!options.key.empty()) result.key = load_input("--key", options.key, config.key_embed_dim);
    Passes passes{.x = with_batch(result.x.view()), .decode = options.decode};
    if (!result.key.empty()) passes.key = with_batch(result.key.view());
    const std::int64_t batch = passes.x.size(0), tokens = passes.x.size(1);
    result.lengths = load_lengths(options.lengths, batch, keys_of(passes));
    result.positions = load_positions(options.positions, config, batch, tokens);
    passes.lengths = result.lengths.view(), passes.positions = result.positions.view();
    if (options.decode > tokens) {
        refuse(join("--decode ", options.decode, ": the input has only ", tokens, " tokens"));
    }
    std::vector<std::int64_t> shape = sizes_of(result.x.view());
    shape.back() = config.out_dim;
    result.y = Tensor(config.dtype, shape);
    if (!options.check.empty()) result.expected = load_expected(options.check, result.y.view());
    if (!options.weights_out.empty()) {
        result.scores = Tensor(DType::f32, {batch, config.heads, tokens, keys_of(passes)});
        passes.scores = score_kind(options.scores);
        passes.scores_to = result.scores.view();
    }
    passes.cache = cache_of(options, passes);
    return passes;
}

void compute(const RunOptions& options, RunResult& result, Progress& progress) {
    LayerWeights layer = load_layer(options.layer.model, {.layer = options.layer.layer,
                                                          .part = options.layer.part,
                                                          .dtype = options.layer.dtype,
                                                          .causal = options.layer.causal});
    const Passes passes = load(options, layer, result);
    progress.step("packing weights");
    const MultiHeadAttention block(layer.config, layer.weights());
    progress.step("computing");
    for (int i = 0; i < options.repeat; ++i) {
        const PassTimes times = run_passes(block, passes, with_batch(result.y.view()));
        if (i == 0) result.first = result.best = times;
        if (times.all_ms < result.best.all_ms) result.best = times;
        progress.step();
    }
}

// Rows of x beyond the lengths are no tokens; with a source of keys of their own, lengths count those.
std::span<const std::int64_t> real_rows(const RunResult& result) {
    if (result.lengths.empty() || !result.key.empty()) return {};
    return {result.lengths.data<std::int64_t>(), static_cast<std::size_t>(result.lengths.count())};
}

RunResult run_layer(const RunOptions& options) {
    RunResult result;
    {
        Progress progress("loading", options.repeat + 2);
        compute(options, result, progress);
    }
    save(options.out, "y", result.y.view());
    save(options.weights_out, options.scores.c_str(), result.scores.view());
    if (!options.check.empty()) {
        result.check = compare(with_batch(result.y.view()), with_batch(result.expected.view()), real_rows(result),
                               options.tolerance.value_or(default_tolerance(result.config.dtype)));
    }
    return result;
}

// What is not said, filled in; what contradicts itself, refused.
RunOptions settled(const RunOptions& given) {
    RunOptions options = given;
    require_known_ending("--out", options.out);
    require_known_ending("--weights-out", options.weights_out);
    if (!options.scores.empty() && options.weights_out.empty()) refuse("--scores is given without --weights-out");
    if (options.scores.empty()) options.scores = "weights";
    if (options.cache.empty() && options.decode > 0) options.cache = "contiguous";
    const bool details = !options.cache_type.empty() || options.page_size > 0 || options.capacity > 0;
    if (options.cache.empty() && details) refuse("a setting of the cache is given without --cache or --decode");
    if (options.page_size > 0 && options.cache != "paged") refuse("--page-size is given without --cache paged");
    if (options.cache_type.empty()) options.cache_type = "f32";
    if (options.cache == "paged" && options.page_size == 0) options.page_size = KvCacheConfig{}.page_size;
    require_sane_tolerance(options);
    return options;
}

}  // namespace

Exit run(const RunOptions& given) {
    apply(given.machine);
    const RunOptions options = settled(given);
    const std::vector<std::int64_t> layers = chosen_layers(options);
    if (layers.size() > 1) {
        for (const auto& [flag, path] :
             {std::pair{"--out", &options.out}, {"--weights-out", &options.weights_out}}) {
            if (!path->empty() && path->find("{layer}") == std::string::npos) {
                refuse(join(flag, " ", *path, " would be written once for each layer; put {layer} into its name"));
            }
        }
    }
    bool passed = true;
    Json list = Json::array();
    for (const std::int64_t layer : layers) {
        const RunOptions own = options_of(options, layer);
        const RunResult result = run_layer(own);
        passed = passed && (!result.check || result.check->passed);
        if (!options.json) {
            if (layer != layers.front()) std::printf("\n");
            print_run(own, result);
        } else if (options.layers.empty()) {
            print(run_json(own, result));
        } else {
            list.push(run_json(own, result));
        }
    }
    if (options.json && !options.layers.empty()) print(Json::object({{"command", "run"}, {"layers", list}}));
    return passed ? Exit::done : Exit::check_failed;
}

}  // namespace headwise::cli
