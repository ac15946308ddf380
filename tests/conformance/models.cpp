// Suite models: a Hugging Face directory or a GGUF file in, one layer out. A unit runs one attention of one layer under
// one of the config files of its case, or from its model.gguf: whole, and in the pieces of `split` through caches.
// Gradients are not judged.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include <unistd.h>

#include <headwise/error.h>
#include <headwise/weights.h>

#include "conformance/judge.h"
#include "conformance/models.h"
#include "core/check.h"
#include "core/dtype.h"

namespace headwise::conformance {

namespace fs = std::filesystem;

namespace {

// The case as a user would have it: a directory with one config.json, or a GGUF file. Made for the legacy spelling,
// removed at the end.
class ModelDirectory {
public:
    explicit ModelDirectory(const Test& test) : path_(test.directory) {
        if (test.config == "config.json") return;
        if (test.config == "model.gguf") {
            path_ += "/model.gguf";
            return;
        }
        std::string name = (fs::temp_directory_path() / "headwise_model_XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw BadData("cannot make a directory like " + name);
        made_ = path_ = name;
        fs::copy_file(test.directory + "/" + test.config, path_ + "/config.json");
        fs::create_symlink(fs::absolute(test.directory + "/model.safetensors"), path_ + "/model.safetensors");
    }
    ~ModelDirectory() {
        std::error_code ignored;
        if (!made_.empty()) fs::remove_all(made_, ignored);
    }
    ModelDirectory(const ModelDirectory&) = delete;
    ModelDirectory& operator=(const ModelDirectory&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_, made_;
};

// LayerOptions::part, from the kind of the point and the name of the module. Where a layer has one attention: "".
std::string part_of(const std::string& kind, const std::string& module) {
    if (kind == "cross") return "cross";
    for (const char* tower : {"vision", "text"}) {
        if (module.find(std::string(tower) + "_model.") != std::string::npos) return tower;
    }
    for (const char* stack : {"encoder.block.", "model.encoder.layers."}) {
        if (module.starts_with(stack)) return "encoder";
    }
    return "";
}

MultiHeadAttention load(const std::string& directory, const LayerOptions& options) {
    try {
        return load_attention(directory, options);
    } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported) throw;
        throw Unsupported{error.what()};
    }
}

// Bounds 4e-6 max|y| over the rows whose padding_mask is true; rows of padding are not compared (bound -1).
std::vector<double> bounds_of(const ConstTensorView& y, const ConstTensorView& real) {
    const std::int64_t width = y.size(2);
    const auto is_real = [&](std::int64_t row) {
        return real.empty() || static_cast<const std::uint8_t*>(real.data)[row] != 0;
    };
    double largest = 0;
    for (std::int64_t n = 0; n < y.count(); ++n) {
        if (is_real(n / width)) largest = std::max(largest, std::abs(load_f64(y.data, y.dtype, n)));
    }
    std::vector<double> bounds(static_cast<std::size_t>(y.count()));
    for (std::size_t n = 0; n < bounds.size(); ++n) {
        bounds[n] = is_real(static_cast<std::int64_t>(n) / width) ? 4e-6 * largest : -1;
    }
    return bounds;
}

Tensor load_named(const TensorFile& file, const Value& name) {
    return name.is_null() ? Tensor{} : file.load(name.as_text());
}

// true = real token, [B,S] -> a mask that hides the other keys from all rows.
ConstTensorView keep_real(const Tensor& real) {
    if (real.empty()) return {};
    return ConstTensorView(real.view().data, DType::boolean, {real.size(0), 1, 1, real.size(1)});
}

// i64 [B]: the first real token of each sequence, where chunks begin.
Tensor first_real(const Tensor& real, std::int64_t B) {
    Tensor origins(DType::i64, {B});
    for (std::int64_t b = 0; !real.empty() && b < B; ++b) {
        const std::uint8_t* row = real.data<std::uint8_t>() + b * real.size(1);
        origins.data<std::int64_t>()[b] = std::find(row, row + real.size(1), 1) - row;
    }
    return origins;
}

}  // namespace

Outcome run_models(const Test& test, const Execution& execution) {
    const Value& point = test.point;
    require_known(point,
                  {"key", "layer", "kind", "module", "position_ids", "padding_mask", "kv_mask", "split", "grads",
                   "step_stored"},
                  "point field");
    const std::string& kind = point.at("kind").as_text();
    if (kind != "causal_self" && kind != "bidirectional_self" && kind != "cross")
        throw Unsupported{"kind " + kind};
    const ModelDirectory directory(test);
    const MultiHeadAttention block = load(directory.path(), {.layer = point.at("layer").as_integer(),
                                                             .part = part_of(kind, point.at("module").as_text())});

    const TensorFile file(test.files.front().path);
    const std::string key = point.at("key").as_text();
    const Tensor x = file.load(key + ".x"), expected = file.load(key + ".y");
    const Tensor kv = kind == "cross" ? file.load(key + ".kv") : Tensor{};
    const Tensor positions = load_named(file, point.at("position_ids"));
    const Tensor real = load_named(file, point.at("padding_mask")),
                 kv_real = load_named(file, point.at("kv_mask"));
    const std::int64_t B = x.size(0);
    const Tensor origins = first_real(real, B);

    ModelPoint loaded{.block = &block, .x = x, .kv = kv, .expected = expected};
    loaded.options = {.rope_positions = positions.view(), .execution = execution};
    loaded.options.mask.keep = keep_real(kind == "cross" ? kv_real : real);
    if (block.config().mask.chunk > 0) loaded.options.mask.chunk_origins = origins;
    loaded.bounds = bounds_of(expected, real.view());

    ForwardOptions whole = loaded.options;
    whole.key = kv.view();
    Tensor y = make_output(DType::f32, {B, x.size(1), expected.size(2)});
    block.forward(x, y, whole);
    Outcome outcome{.outputs = {judge("y", y, expected, loaded.bounds)}};
    if (!point.at("split").is_null()) {
        loaded.split = point.at("split").as_integers();
        judge_split(loaded, outcome.outputs);
    }
    if (point.at("grads").as_bool()) outcome.not_judged.emplace_back("grads");
    for (const OutputResult& output : outcome.outputs) {
        if (output.fault.empty()) continue;
        outcome.status = Status::fail;
        outcome.reason = output.name + ": " + output.fault;
        break;
    }
    return outcome;
}

}  // namespace headwise::conformance
