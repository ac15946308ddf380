#include "weights/layer_names.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "core/check.h"
#include "weights/quote.h"

namespace headwise {
namespace {

// Before the family's own base.
constexpr std::string_view kPrefixes[] = {"", "model.", "language_model.", "model.language_model."};

std::vector<std::string> possible_bases(const LayerPlan& plan) {
    std::vector<std::string> bases;
    for (const std::string_view own : {plan.family->names.base, std::string_view()}) {
        for (const std::string_view prefix : kPrefixes) {
            std::string base = text(prefix, own);
            if (std::find(bases.begin(), bases.end(), base) == bases.end()) bases.push_back(std::move(base));
        }
    }
    return bases;
}

// `path` with the number in the place of '#'.
std::string at_number(std::string_view path, std::int64_t number) {
    const std::size_t mark = path.find('#');
    if (mark == std::string_view::npos) return std::string(path);
    return text(path.substr(0, mark), number, path.substr(mark + 1));
}

// The names under the module that every such layer must have.
std::vector<std::string> weight_names(const LayerPlan& plan) {
    std::vector<std::string> names;
    for (const PlannedMatrix& matrix : plan.matrices) names.push_back(text(matrix.name, ".weight"));
    for (const PlannedTensor& tensor : plan.tensors) {
        if (!tensor.outside && tensor.stack == 0 && tensor.shape.size() >= 2) names.push_back(tensor.name);
    }
    return names;
}

std::string describe_layers(const std::vector<std::int64_t>& layers) {
    if (layers.empty()) return "none";
    std::string result;
    for (const std::int64_t layer : layers) result += (result.empty() ? "" : ", ") + std::to_string(layer);
    return result;
}

bool matches_stack(const PlannedTensor& tensor, std::string_view rest) {
    const std::string_view name = tensor.name;
    const std::size_t mark = name.find('#');
    std::int64_t number = -1;
    if (!rest.starts_with(name.substr(0, mark)) || !rest.ends_with(name.substr(mark + 1))) return false;
    const auto [end, error] = std::from_chars(rest.data() + mark, rest.data() + rest.size(), number);
    return error == std::errc() && number >= 0 && number < tensor.stack && rest == at_number(name, number) &&
           end != rest.data();
}

bool is_planned(const LayerPlan& plan, std::string_view rest) {
    for (const PlannedMatrix& matrix : plan.matrices) {
        if (rest == text(matrix.name, ".weight") || (matrix.bias && rest == text(matrix.name, ".bias")))
            return true;
    }
    return std::any_of(plan.tensors.begin(), plan.tensors.end(), [&](const PlannedTensor& tensor) {
        if (tensor.outside) return false;
        return tensor.stack > 0 ? matches_stack(tensor, rest) : rest == tensor.name;
    });
}

}  // namespace

std::vector<std::int64_t> complete_layers(const LayerPlan& plan, const std::vector<std::string>& names) {
    const std::string_view path = plan.module->path;
    const std::size_t mark = path.find('#');
    const std::vector<std::string> weights = weight_names(plan);
    const std::string tail = text(path.substr(mark + 1), weights.front());
    std::set<std::int64_t> stored;
    for (const std::string& base : possible_bases(plan)) {
        const std::string head = text(base, path.substr(0, mark));
        for (auto at = std::lower_bound(names.begin(), names.end(), head);
             at != names.end() && at->starts_with(head); ++at) {
            const char* const end = at->data() + at->size();
            std::int64_t number = -1;
            const auto [rest, error] = std::from_chars(at->data() + head.size(), end, number);
            if (error != std::errc() || number < 0 || number >= plan.layers / plan.repeats ||
                std::string_view(rest, end) != tail)
                continue;
            const std::string module = text(base, at_number(path, number));
            const bool complete = std::all_of(weights.begin(), weights.end(), [&](const std::string& weight) {
                return std::binary_search(names.begin(), names.end(), module + weight);
            });
            if (complete) stored.insert(number);
        }
    }
    std::vector<std::int64_t> layers;
    for (const std::int64_t number : stored) {
        for (std::int64_t i = 0; i < plan.repeats; ++i) layers.push_back(number * plan.repeats + i);
    }
    return layers;
}

LayerPlace find_layer(const LayerPlan& plan, const TensorFile& file, const std::string& directory) {
    const std::string path = at_number(plan.module->path, plan.layer / plan.repeats);
    const std::vector<std::string> weights = weight_names(plan);
    std::optional<LayerPlace> found;
    for (const std::string& base : possible_bases(plan)) {
        LayerPlace place{.base = base, .module = base + path};
        const bool here = std::any_of(weights.begin(), weights.end(), [&](const std::string& weight) {
            return file.find(place.module + weight).has_value();
        });
        if (!here) continue;
        if (found) {
            fail(ErrorCode::bad_data, directory, ": layer ", plan.layer, " is stored twice, under ",
                 quote(found->module), " and ", quote(place.module));
        }
        found = std::move(place);
    }
    if (!found) {
        fail(ErrorCode::bad_data, directory, ": no attention weights of layer ", plan.layer, " (",
             quote(text(plan.family->names.base, path, "*")),
             "); stored layers: ", describe_layers(complete_layers(plan, file.names())));
    }
    return std::move(*found);
}

void refuse_unknown_tensors(const LayerPlan& plan, const LayerPlace& place, const TensorFile& file,
                            const std::string& directory) {
    const std::vector<std::string> names = file.names();
    const auto& beside = plan.family->names.beside;
    for (auto at = std::lower_bound(names.begin(), names.end(), place.module);
         at != names.end() && at->starts_with(place.module); ++at) {
        const std::string_view rest = std::string_view(*at).substr(place.module.size());
        const bool other = std::any_of(beside.begin(), beside.end(), [&](std::string_view start) {
            return !start.empty() && (start.ends_with('.') ? rest.starts_with(start) : rest == start);
        });
        if (!other && !is_planned(plan, rest)) {
            fail(ErrorCode::unsupported, directory, ": tensor ", quote(*at),
                 " belongs to this attention layer, but a ", plan.family->model_type,
                 " layer with this config.json has no place for it");
        }
    }
}

}  // namespace headwise
