#include "weights/plan.h"

#include <algorithm>

#include "core/check.h"
#include "weights/config.h"
#include "weights/harmless.h"
#include "weights/plan_tensors.h"
#include "weights/quote.h"
#include "weights/rope_config.h"

namespace headwise {
namespace {

using Sees = Module::Sees;

// Models that wrap a text model of their own family: its settings are in text_config.
struct Wrapper {
    std::string_view model_type, text_type;  // text_type: where text_config does not name one
};
constexpr Wrapper kWrappers[] = {{"gemma3", "gemma3_text"}, {"llama4", "llama4_text"}, {"llava", "llama"},
                                 {"llava_next", "llama"},   {"mistral3", "mistral"},   {"aya_vision", "cohere2"}};

std::string supported_families() {
    std::string names;
    for (const auto table : family_tables()) {
        for (const Family& family : table) names += text(names.empty() ? "" : ", ", family.model_type);
    }
    return names;
}

const Family* look_up(std::string_view model_type) {
    for (const auto table : family_tables()) {
        for (const Family& family : table) {
            if (family.model_type == model_type) return &family;
        }
    }
    return nullptr;
}

// The family, and the object of the file that describes its text model.
const Family& find_family(Config& config) {
    std::optional<std::string> model_type = config.string("model_type");
    if (!model_type) {
        fail(ErrorCode::bad_data, config.where(), ": model_type is missing; supported: ", supported_families());
    }
    const auto wrapper = std::find_if(std::begin(kWrappers), std::end(kWrappers),
                                      [&](const Wrapper& w) { return w.model_type == *model_type; });
    if (wrapper != std::end(kWrappers)) {
        std::optional<Config> inner = config.object("text_config");
        if (!inner) fail(ErrorCode::bad_data, config.where(), ": text_config is missing");
        config.refuse_unknown({kHarmlessAnywhere, kHarmlessBesideText});
        config = std::move(*inner);
        model_type = config.string("model_type").value_or(std::string(wrapper->text_type));
    }
    const Family* family = look_up(*model_type);
    if (family == nullptr) {
        fail(ErrorCode::unsupported, config.where(), ": the model family ", quote(*model_type),
             " is not supported; supported: ", supported_families());
    }
    return *family;
}

const Module& find_module(const Family& family, const std::string& where, std::string_view part) {
    const auto& modules = family.names.modules;
    if (part.empty()) return modules[0];
    std::string parts;
    for (const Module& module : modules) {
        if (module.path.empty()) break;
        if (module.part == part) return module;
        parts += text(parts.empty() ? "" : ", ", quote(module.part));
    }
    fail(ErrorCode::invalid_argument, "load_layer: part ", quote(part), ", but ", family.model_type, " layers (",
         where, ") have ", parts);
}

// The first of `keys` that the file has, and its value; a null counts as 0.
std::int64_t read_size(Config& config, const SizeKey& size, std::string_view side) {
    std::optional<std::int64_t> found;
    std::string name;
    std::string_view rest = size.keys;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find('|'), rest.size());
        std::string key(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (const std::size_t at = key.find('@'); at != std::string::npos) key.replace(at, 1, side);
        if (!config.given(key)) continue;
        const std::int64_t value = config.size(key).value_or(0);
        if (found && *found != value) {
            fail(ErrorCode::bad_data, config.where(), ": ", key, " is ", value, ", but ", name,
                 ", which means the same, is ", *found);
        }
        found = value;
        name = key;
    }
    return found.value_or(size.preset);
}

std::string_view first_key(const SizeKey& size) { return size.keys.substr(0, size.keys.find('|')); }

std::int64_t required_size(Config& config, const SizeKey& size, std::string_view side) {
    const std::int64_t value = read_size(config, size, side);
    if (value == 0) fail(ErrorCode::bad_data, config.where(), ": ", first_key(size), " is missing");
    return value;
}

void read_sizes(Config& config, LayerPlan& plan) {
    const Sizes& sizes = plan.family->sizes;
    const std::string_view side = plan.module->part == "encoder" ? "encoder" : "decoder";
    const std::int64_t E = required_size(config, sizes.embed_dim, side);
    const std::int64_t H = required_size(config, sizes.heads, side);
    const std::int64_t G = read_size(config, sizes.kv_heads, side);
    const std::int64_t D = read_size(config, sizes.head_dim, side);
    plan.layers = required_size(config, sizes.layers, side);
    if (const std::int64_t n = read_size(config, sizes.decoder_layers, side); n > 0 && side == "decoder") {
        plan.layers = n;
    }
    check(plan.layer >= 0 && plan.layer < plan.layers, "load_layer: layer ", plan.layer, ", but ", config.where(),
          " has the layers 0 to ", plan.layers - 1);
    plan.config.embed_dim = E;
    plan.config.heads = H;
    plan.config.kv_heads = G == 0 ? H : G;
    plan.config.head_dim = D;
}

// After the rules, which may know more about heads than the keys say.
void check_heads(const Config& config, LayerPlan& plan) {
    const Sizes& sizes = plan.family->sizes;
    MhaConfig& c = plan.config;
    if (c.head_dim == 0) {
        if (c.embed_dim % c.heads != 0) {
            fail(ErrorCode::bad_data, config.where(), ": ", first_key(sizes.embed_dim), " ", c.embed_dim,
                 " is not a multiple of ", first_key(sizes.heads), " ", c.heads);
        }
        c.head_dim = c.embed_dim / c.heads;
    }
    if (c.heads % c.kv_heads != 0) {
        fail(ErrorCode::bad_data, config.where(), ": ", first_key(sizes.heads), " ", c.heads,
             " is not a multiple of ", first_key(sizes.kv_heads), " ", c.kv_heads);
    }
    if (plan.layout == Layout::four_blocks_qvk && c.heads % 4 != 0) {
        fail(ErrorCode::bad_data, config.where(), ": ", first_key(sizes.heads), " ", c.heads,
             " is not a multiple of 4, the blocks of a ", plan.family->model_type, " tensor");
    }
    if (c.value_dim == 0) c.value_dim = c.head_dim;
    checked_rows(config.where(), c.heads, std::max(c.head_dim, c.value_dim));
}

// layer_types, where the file has them; the rules of the family say what a type means.
void read_layer_type(Config& config, LayerPlan& plan) {
    const Json* types = config.list("layer_types");
    if (types == nullptr) return;
    if (static_cast<std::int64_t>(types->items.size()) <= plan.layer) {
        fail(ErrorCode::bad_data, config.where(), ": layer_types has ", types->items.size(),
             " entries, none for layer ", plan.layer);
    }
    const Json& type = types->items[static_cast<std::size_t>(plan.layer)];
    if (type.kind != Json::Kind::string) {
        fail(ErrorCode::bad_data, config.where(), ": an entry of layer_types is ", describe(type.kind),
             ", expected a string");
    }
    plan.kind = type.text == "full_attention"      ? LayerKind::full
                : type.text == "sliding_attention" ? LayerKind::windowed
                : type.text == "chunked_attention" ? LayerKind::chunked
                                                   : LayerKind::other;
    plan.kind_name = type.text;
    plan.kind_given = true;
}

void read_causal(Config& config, LayerPlan& plan, std::optional<bool> asked) {
    const Sees sees = plan.module->sees;
    const bool is_decoder = config.flag("is_decoder").value_or(false);
    if (sees == Sees::asked) {
        plan.config.mask.causal = asked.value_or(is_decoder);
        return;
    }
    plan.config.mask.causal = sees == Sees::past;
    check(asked.value_or(plan.config.mask.causal) == plan.config.mask.causal, "load_layer: this attention of ",
          plan.family->model_type, " models is ", plan.config.mask.causal ? "causal" : "not causal",
          "; leave LayerOptions::causal out");
}

void refuse_other_settings(Config& config, const Family& family) {
    for (const FixedKey& fixed : family.fixed) {
        if (fixed.key.empty()) break;
        const auto found = config.spelling(fixed.key);
        if (found && *found != fixed.setting) {
            fail(ErrorCode::unsupported, config.where(), ": ", fixed.key, " is ", quote(*found),
                 ", which headwise does not support; supported: ", quote(fixed.setting));
        }
    }
    const Json* pruned = config.find("pruned_heads");
    if (pruned != nullptr && !pruned->items.empty()) {
        fail(ErrorCode::unsupported, config.where(),
             ": pruned_heads is not empty; headwise needs all heads of a layer");
    }
}

bool read_switch(Config& config, const Switch& s) {
    return s.key.empty() ? s.preset : config.flag(s.key).value_or(s.preset);
}

void read_biases(Config& config, LayerPlan& plan) {
    plan.q_bias = plan.k_bias = plan.v_bias = read_switch(config, plan.family->qkv_bias);
    plan.o_bias = read_switch(config, plan.family->o_bias);
}

void read_qk_norm(Config& config, LayerPlan& plan) {
    const QkNorm& row = plan.family->qk_norm;
    if (!read_switch(config, row.on) || !plan.normalises) return;
    HeadNorm norm = row.norm;
    if (!row.eps_key.empty()) norm.eps = config.number(row.eps_key).value_or(norm.eps);
    if (!(norm.eps >= 0)) {
        fail(ErrorCode::bad_data, config.where(), ": ", row.eps_key, " is ", norm.eps, ", expected 0 or more");
    }
    plan.config.qk_norm = norm;
}

}  // namespace

std::int64_t checked_rows(const std::string& where, std::int64_t heads, std::int64_t width) {
    constexpr std::int64_t kLargest = std::int64_t{1} << 31;
    if (heads > kLargest / width) {
        fail(ErrorCode::bad_data, where, ": ", heads, " heads of width ", width,
             " make a row of more than 2^31 numbers");
    }
    return heads * width;
}

LayerPlan plan_layer(const Json& root, const std::string& where, const PlanRequest& request) {
    Config file(root, where);
    const Family& family = find_family(file);
    LayerPlan plan;
    plan.family = &family;
    plan.layer = request.layer;
    plan.layout = family.layout;
    plan.module = &find_module(family, where, request.part);

    std::optional<Config> section;
    if (!plan.module->section.empty()) {
        for (const Module& module : family.names.modules) file.ignore(module.section);
        section = file.object(plan.module->section);
        if (!section) fail(ErrorCode::bad_data, where, ": ", plan.module->section, " is missing");
        section->ignore("model_type");
        file.refuse_unknown({kHarmlessAnywhere, family.harmless});
    }
    Config& config = section ? *section : file;
    read_sizes(config, plan);
    read_biases(config, plan);
    read_causal(config, plan, request.causal);
    read_layer_type(config, plan);
    for (const Rule rule : family.rules) {
        if (rule != nullptr) rule(config, plan);
    }
    check_heads(config, plan);
    if (family.rotary.theta > 0 && plan.module->sees != Sees::other_side) read_rope(config, plan);
    read_qk_norm(config, plan);
    refuse_other_settings(config, family);
    if (plan.kind_given && !plan.kind_used && plan.kind != LayerKind::full) {
        fail(ErrorCode::unsupported, config.where(), ": layer_types says ", quote(plan.kind_name), " for layer ",
             plan.layer, "; headwise knows only full_attention in ", family.model_type, " models");
    }
    config.refuse_unknown({kHarmlessAnywhere, family.harmless});
    plan_tensors(plan, config.where());
    return plan;
}

}  // namespace headwise
