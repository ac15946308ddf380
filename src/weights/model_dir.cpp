#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <headwise/weights.h>

#include "core/check.h"
#include "weights/config.h"
#include "weights/families.h"
#include "weights/gguf_layer.h"
#include "weights/quote.h"

namespace headwise {
namespace {

using Shape = std::vector<std::int64_t>;

std::string config_path(const std::string& directory) { return directory + "/config.json"; }

// "[base] module" of one layer.
std::string module_name(const Family& family, std::string_view base, std::int64_t layer) {
    const std::size_t mark = family.module.find('#');
    return text(base, family.module.substr(0, mark), layer, family.module.substr(mark + 1));
}

std::vector<std::string_view> projections(const Family& family) {
    return {family.q, family.k, family.v, family.o};
}

std::string describe_layers(const std::vector<std::int64_t>& layers) {
    if (layers.empty()) return "none";
    std::string result;
    for (const std::int64_t layer : layers) result += (result.empty() ? "" : ", ") + std::to_string(layer);
    return result;
}

// The layers below plan.layers whose four weights are all there.
std::vector<std::int64_t> complete_layers(const ModelPlan& plan, const std::vector<std::string>& names) {
    const Family& family = *plan.family;
    const std::size_t mark = family.module.find('#');
    const std::string tail = text(family.module.substr(mark + 1), family.q, ".weight");
    std::set<std::int64_t> layers;
    for (const std::string_view base : {family.base, std::string_view()}) {
        const std::string head = text(base, family.module.substr(0, mark));
        for (auto at = std::lower_bound(names.begin(), names.end(), head);
             at != names.end() && at->starts_with(head); ++at) {
            const char* const end = at->data() + at->size();
            std::int64_t layer = -1;
            const auto [rest, error] = std::from_chars(at->data() + head.size(), end, layer);
            if (error != std::errc() || layer < 0 || layer >= plan.layers || std::string_view(rest, end) != tail)
                continue;
            const std::string module = module_name(family, base, layer);
            const auto parts = projections(family);
            const bool complete = std::all_of(parts.begin(), parts.end(), [&](std::string_view part) {
                return std::binary_search(names.begin(), names.end(), text(module, part, ".weight"));
            });
            if (complete) layers.insert(layer);
        }
    }
    return {layers.begin(), layers.end()};
}

// Which spelling of the layer's names the file uses.
std::string find_module(const ModelPlan& plan, const TensorFile& file, const std::string& directory,
                        std::int64_t layer) {
    const Family& family = *plan.family;
    const std::string with_base = module_name(family, family.base, layer);
    const std::string without = module_name(family, "", layer);
    const auto holds = [&](const std::string& module) {
        const auto parts = projections(family);
        return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
            return file.find(text(module, part, ".weight")).has_value();
        });
    };
    const bool long_form = holds(with_base), short_form = holds(without);
    if (long_form && short_form) {
        fail(ErrorCode::bad_data, directory, ": layer ", layer, " is stored twice, under ", quote(with_base),
             " and ", quote(without));
    }
    if (!long_form && !short_form) {
        fail(ErrorCode::bad_data, directory, ": no attention weights of layer ", layer, " (",
             quote(with_base + "*"), "); stored layers: ", describe_layers(complete_layers(plan, file.names())));
    }
    return long_form ? with_base : without;
}

// A tensor inside the attention module that nobody reads (a norm, a quantisation scale, a bias that config.json denies)
// would change the result.
void refuse_unknown_tensors(const ModelPlan& plan, const TensorFile& file, const std::string& directory,
                            const std::string& module) {
    const Family& family = *plan.family;
    const std::vector<std::string> names = file.names();
    for (auto at = std::lower_bound(names.begin(), names.end(), module);
         at != names.end() && at->starts_with(module); ++at) {
        const std::string_view rest = std::string_view(*at).substr(module.size());
        const auto parts = projections(family);
        const bool used = std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
            return rest == text(part, ".weight") || (plan.biases && rest == text(part, ".bias"));
        });
        const bool beside = std::any_of(family.beside.begin(), family.beside.end(),
                                        [&](std::string_view start) { return rest.starts_with(start); });
        if (!used && !beside) {
            fail(ErrorCode::unsupported, directory, ": tensor ", quote(*at),
                 " belongs to this attention layer, but a ", family.model_type,
                 " layer with this config.json has no place for it");
        }
    }
}

struct Wanted {
    std::string name;
    Shape shape;
    Tensor* to;
};

std::string describe_shape(const Shape& shape) {
    std::string result = "[";
    for (const std::int64_t size : shape) result += (result.size() > 1 ? ", " : "") + std::to_string(size);
    return result + "]";
}

void check_stored(const Wanted& wanted, const TensorFile& file, const std::string& directory) {
    const auto info = file.find(wanted.name);
    if (!info) fail(ErrorCode::bad_data, directory, ": tensor ", quote(wanted.name), " is missing");
    if (info->sizes != wanted.shape) {
        fail(ErrorCode::bad_data, directory, ": tensor ", quote(wanted.name), " has the shape ",
             describe_shape(info->sizes), ", but config.json asks for ", describe_shape(wanted.shape));
    }
    const std::string& type = info->stored_dtype;
    if (type != "F32" && type != "BF16" && type != "F16" && type != "F64") {
        fail(ErrorCode::unsupported, directory, ": tensor ", quote(wanted.name), " is stored as ", type,
             "; weights may be F32, BF16, F16 or F64");
    }
}

std::vector<Wanted> wanted_tensors(const ModelPlan& plan, const std::string& module, LayerWeights& layer) {
    const MhaConfig& c = plan.config;
    const std::int64_t E = c.embed_dim, q_rows = c.heads * c.head_dim, kv_rows = c.kv_heads * c.head_dim;
    const Family& family = *plan.family;
    std::vector<Wanted> result;
    const auto add = [&](std::string_view part, std::int64_t rows, std::int64_t columns, Tensor& weight,
                         Tensor& bias) {
        result.push_back({text(module, part, ".weight"), {rows, columns}, &weight});
        if (plan.biases) result.push_back({text(module, part, ".bias"), {rows}, &bias});
    };
    add(family.q, q_rows, E, layer.q, layer.q_bias);
    add(family.k, kv_rows, E, layer.k, layer.k_bias);
    add(family.v, kv_rows, E, layer.v, layer.v_bias);
    add(family.o, E, q_rows, layer.o, layer.o_bias);
    return result;
}

ModelPlan read_plan(const std::string& directory, const FileLimits& limits, std::optional<bool> causal) {
    const std::string path = config_path(directory);
    return plan_model(read_config(path, limits), path, causal);
}

}  // namespace

MhaWeights LayerWeights::weights() const {
    return {
        .q = q, .k = k, .v = v, .o = o, .q_bias = q_bias, .k_bias = k_bias, .v_bias = v_bias, .o_bias = o_bias};
}

LayerWeights load_layer(const std::string& directory, const LayerOptions& options) {
    const DType dtype = options.dtype.value_or(DType::f32);
    check(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "load_layer: dtype ", name_of(dtype),
          " is not a storage type of attention; use f32, bf16 or f16");
    if (is_gguf_file(directory)) return load_gguf_layer(directory, options);
    const ModelPlan plan = read_plan(directory, options.limits, options.causal);
    check(options.layer >= 0 && options.layer < plan.layers, "load_layer: layer ", options.layer, ", but ",
          directory, " has the layers 0 to ", plan.layers - 1);

    const TensorFile file(directory, options.limits);
    const std::string module = find_module(plan, file, directory, options.layer);
    refuse_unknown_tensors(plan, file, directory, module);
    LayerWeights layer;
    layer.config = plan.config;
    layer.config.dtype = dtype;
    layer.family = plan.family->model_type;
    const std::vector<Wanted> wanted = wanted_tensors(plan, module, layer);
    for (const Wanted& tensor : wanted) check_stored(tensor, file, directory);
    for (const Wanted& tensor : wanted) {
        Tensor stored = file.load(tensor.name);
        *tensor.to = stored.dtype() == DType::f64 ? convert(stored, DType::f32) : std::move(stored);
        layer.tensors.push_back(tensor.name);
    }
    return layer;
}

std::vector<std::int64_t> stored_layers(const std::string& directory, const FileLimits& limits) {
    if (is_gguf_file(directory)) return stored_gguf_layers(directory, limits);
    const ModelPlan plan = read_plan(directory, limits, std::nullopt);
    return complete_layers(plan, TensorFile(directory, limits).names());
}

}  // namespace headwise
