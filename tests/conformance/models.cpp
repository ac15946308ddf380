// Suite models: a Hugging Face directory in, one layer out. A unit runs one layer under one of the config files of its
// case; `split` (a cache) and gradients are not judged.
#include <cmath>
#include <filesystem>

#include <unistd.h>

#include <headwise/error.h>
#include <headwise/weights.h>

#include "conformance/judge.h"
#include "core/check.h"
#include "core/dtype.h"

namespace headwise::conformance {

namespace fs = std::filesystem;

namespace {

// The case's directory as a user would have it: one config.json. Made for the legacy spelling, removed at the end.
class ModelDirectory {
public:
    explicit ModelDirectory(const Test& test) : path_(test.directory) {
        if (test.config == "config.json") return;
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

MultiHeadAttention load(const std::string& directory, std::int64_t layer) {
    try {
        return load_attention(directory, {.layer = layer});
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

}  // namespace

Outcome run_models(const Test& test, const Execution& execution) {
    const Value& point = test.point;
    require_known(point,
                  {"key", "layer", "kind", "module", "position_ids", "padding_mask", "kv_mask", "split", "grads",
                   "step_stored"},
                  "point field");
    const ModelDirectory directory(test);
    const MultiHeadAttention block = load(directory.path(), point.at("layer").as_integer());
    const std::string& kind = point.at("kind").as_text();
    if (kind != "causal_self" && kind != "bidirectional_self") throw Unsupported{"kind " + kind};

    const TensorFile file(test.files.front().path);
    const std::string key = point.at("key").as_text();
    const Tensor x = file.load(key + ".x"), expected = file.load(key + ".y");
    const Tensor positions = load_named(file, point.at("position_ids"));
    const Tensor real = load_named(file, point.at("padding_mask"));
    const std::int64_t B = x.size(0), T = x.size(1);
    ForwardOptions options{.rope_positions = positions.view(), .execution = execution};
    if (!real.empty()) options.mask.keep = ConstTensorView(real.view().data, DType::boolean, {B, 1, 1, T});
    Tensor y = make_output(DType::f32, {B, T, expected.size(2)});
    block.forward(x, y, options);

    Outcome outcome{.outputs = {judge("y", y, expected, bounds_of(expected, real.view()))}};
    if (!point.at("split").is_null()) outcome.not_judged.emplace_back("split");
    if (point.at("grads").as_bool()) outcome.not_judged.emplace_back("grads");
    if (fs::exists(test.directory + "/model.gguf")) outcome.not_judged.emplace_back("model.gguf");
    outcome.reason = outcome.outputs[0].fault;
    if (!outcome.reason.empty()) outcome.status = Status::fail;
    return outcome;
}

}  // namespace headwise::conformance
