#include "weights/rope_config.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "weights/quote.h"

namespace headwise {
namespace {

using Kind = RopeScaling::Kind;

// Keys of scaling that some kind reads. Files carry more of them than their kind needs.
constexpr std::string_view kScalingKeys =
    "factor original_max_position_embeddings low_freq_factor high_freq_factor beta_fast beta_slow truncate mscale "
    "mscale_all_dim attention_factor short_factor long_factor finetuned";

std::string_view type_name(LayerKind kind) {
    return kind == LayerKind::windowed  ? "sliding_attention"
           : kind == LayerKind::chunked ? "chunked_attention"
                                        : "full_attention";
}

Kind read_kind(Config& settings) {
    std::string type = settings.string("type").value_or("default");
    type = settings.string("rope_type").value_or(type);
    if (type == "default") return Kind::none;
    if (type == "linear") return Kind::linear;
    if (type == "dynamic") return Kind::dynamic;
    if (type == "llama3") return Kind::llama3;
    if (type == "yarn") return Kind::yarn;
    if (type == "longrope" || type == "su") return Kind::longrope;
    fail(ErrorCode::unsupported, settings.where(), ": rope scaling of type ", quote(type),
         " is not supported; supported: default, linear, dynamic, llama3, yarn, longrope");
}

double positive(Config& settings, std::string_view key, double preset) {
    const double value = settings.number(key).value_or(preset);
    if (!(value > 0)) fail(ErrorCode::bad_data, settings.where(), ": ", key, " is ", value, ", expected > 0");
    return value;
}

double required(Config& settings, std::string_view key) {
    if (settings.find(key) == nullptr) fail(ErrorCode::bad_data, settings.where(), ": ", key, " is missing");
    return positive(settings, key, 1);
}

std::int64_t required_positions(Config& config) {
    const auto positions = config.size("max_position_embeddings");
    if (!positions) {
        fail(ErrorCode::bad_data, config.where(),
             ": max_position_embeddings is missing, which the scaling of rope depends on");
    }
    return *positions;
}

// A key of the whole file wins over the one beside the scaling (Phi-3).
std::int64_t original_positions(Config& config, Config& settings) {
    const auto inner = settings.size("original_max_position_embeddings");
    if (const auto outer = config.size("original_max_position_embeddings")) return *outer;
    return inner ? *inner : required_positions(config);
}

std::vector<double> read_divisors(Config& settings, std::string_view key, std::int64_t width) {
    const Json* list = settings.list(key);
    if (list == nullptr) fail(ErrorCode::bad_data, settings.where(), ": ", key, " is missing");
    if (static_cast<std::int64_t>(list->items.size()) != width / 2) {
        fail(ErrorCode::bad_data, settings.where(), ": ", key, " has ", list->items.size(),
             " numbers, but the rotated width ", width, " needs ", width / 2);
    }
    std::vector<double> divisors;
    for (const Json& item : list->items) {
        if ((item.kind != Json::Kind::number && item.kind != Json::Kind::integer) || !(item.real > 0)) {
            fail(ErrorCode::bad_data, settings.where(), ": ", key,
                 " holds something that is not a positive number");
        }
        divisors.push_back(item.real);
    }
    return divisors;
}

void read_yarn(Config& config, Config& settings, RopeScaling& s) {
    s.original_max_position = original_positions(config, settings);
    s.factor = settings.find("factor") != nullptr ? positive(settings, "factor", 1)
                                                  : static_cast<double>(required_positions(config)) /
                                                        static_cast<double>(s.original_max_position);
    s.beta_fast = positive(settings, "beta_fast", 32);
    s.beta_slow = positive(settings, "beta_slow", 1);
    s.truncate = settings.flag("truncate").value_or(true);
}

void read_longrope(Config& config, Config& settings, std::int64_t width, RopeScaling& s) {
    s.original_max_position = original_positions(config, settings);
    s.factor = settings.find("factor") != nullptr ? positive(settings, "factor", 1)
                                                  : static_cast<double>(required_positions(config)) /
                                                        static_cast<double>(s.original_max_position);
    s.short_factor = read_divisors(settings, "short_factor", width);
    s.long_factor = read_divisors(settings, "long_factor", width);
    // PhiMoE: multipliers of cos and sin of its own, equal in published files.
    const auto near = settings.number("short_mscale"), far = settings.number("long_mscale");
    if (near != far) {
        fail(ErrorCode::unsupported, settings.where(), ": short_mscale and long_mscale differ; headwise has one ",
             "multiplier for both lengths");
    }
    if (near) s.attention_factor = near;
}

RopeScaling read_scaling(Config& config, Config& settings, const Rotary& row, std::int64_t width) {
    RopeScaling s{.kind = read_kind(settings)};
    if (s.kind == Kind::none) {
        settings.ignore("original_max_position_embeddings");  // of no consequence without scaling
        return s;
    }
    if (const auto factor = settings.number("attention_factor")) s.attention_factor = factor;
    s.mscale = settings.number("mscale");
    s.mscale_all_dim = settings.number("mscale_all_dim");
    switch (s.kind) {
        case Kind::linear:
            s.factor = required(settings, "factor");
            break;
        case Kind::dynamic:
            if (row.fixed_alpha && settings.find("alpha") != nullptr) {
                s.kind = Kind::dynamic_alpha;
                s.alpha = positive(settings, "alpha", 1);
            } else {
                s.factor = required(settings, "factor");
                s.max_position = required_positions(config);
            }
            break;
        case Kind::llama3:
            s.factor = required(settings, "factor");
            s.original_max_position = original_positions(config, settings);
            s.low_freq_factor = required(settings, "low_freq_factor");
            s.high_freq_factor = required(settings, "high_freq_factor");
            break;
        case Kind::yarn:
            read_yarn(config, settings, s);
            break;
        default:
            read_longrope(config, settings, width, s);
    }
    for (std::string_view rest = kScalingKeys; !rest.empty();) {
        const std::size_t end = std::min(rest.find(' '), rest.size());
        settings.ignore(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return s;
}

// The object that holds the settings of this layer: rope_parameters, the entry for its type in there, or rope_scaling.
std::optional<Config> find_settings(Config& config, const LayerPlan& plan) {
    const Rotary& row = plan.family->rotary;
    std::optional<Config> old_style = config.object("rope_scaling"), current = config.object("rope_parameters");
    if (old_style && current) {
        fail(ErrorCode::bad_data, config.where(), ": has rope_parameters and rope_scaling, which mean the same");
    }
    if (!old_style && !current && row.scaled_preset) {
        fail(ErrorCode::unsupported, config.where(), ": has neither rope_parameters nor rope_scaling; ",
             plan.family->model_type, " models scale their rotation, so headwise assumes nothing");
    }
    if (!current) {
        const bool holds = plan.kind != LayerKind::windowed || row.scale_windowed;
        return holds ? std::move(old_style) : std::nullopt;
    }
    bool nested = false;
    for (const LayerKind kind : {LayerKind::full, LayerKind::windowed, LayerKind::chunked}) {
        const Json* entry = current->find(type_name(kind));
        nested = nested || (plan.kind_used && entry != nullptr && entry->kind == Json::Kind::object);
    }
    if (nested) return current->object(type_name(plan.kind));
    return Config(*config.find("rope_parameters"), current->where());  // afresh: full_attention counts as unknown
}

// A number under the family's own key, or under the usual one: files of a transition carry both.
std::optional<double> read_either(Config& config, std::string_view own, std::string_view usual) {
    if (own.empty()) return std::nullopt;
    const std::optional<double> a = config.number(own), b = config.number(usual);
    if (a && b && *a != *b) {
        fail(ErrorCode::bad_data, config.where(), ": ", own, " is ", *a, " but ", usual, " is ", *b,
             ", which mean the same");
    }
    return a ? a : b;
}

double read_theta(Config& config, Config* settings, const LayerPlan& plan) {
    const Rotary& row = plan.family->rotary;
    const bool windowed = plan.kind == LayerKind::windowed && row.windowed_theta > 0;
    const std::optional<double> plain = read_either(config, row.theta_key, "rope_theta");
    std::optional<double> outer = plain;
    if (!row.windowed_theta_key.empty()) {
        const std::optional<double> local = config.number(row.windowed_theta_key);
        if (windowed) outer = local;
    }
    const std::optional<double> inner = settings != nullptr ? settings->number("rope_theta") : std::nullopt;
    if (inner && outer && *inner != *outer) {
        fail(ErrorCode::bad_data, settings->where(), ": rope_theta is ", *inner, " here and ", *outer,
             " in another place of the file");
    }
    const double preset = windowed ? row.windowed_theta : row.theta;
    const double theta = inner ? *inner : outer ? *outer : preset;
    if (!(theta > 0)) fail(ErrorCode::bad_data, config.where(), ": rope_theta is ", theta, ", expected > 0");
    return theta;
}

// The rotated columns of a head of width D.
std::int64_t read_width(Config& config, Config* settings, const LayerPlan& plan, std::int64_t D) {
    const Rotary& row = plan.family->rotary;
    const std::optional<double> outer = read_either(config, row.partial_key, "partial_rotary_factor");
    const std::optional<double> inner =
        settings != nullptr ? settings->number("partial_rotary_factor") : std::nullopt;
    const double share = inner ? *inner : outer ? *outer : row.partial;
    if (!(share > 0) || share > 1) {
        fail(ErrorCode::bad_data, config.where(), ": partial_rotary_factor is ", share, ", expected (0, 1]");
    }
    const std::int64_t width =
        plan.rotary_width > 0 ? plan.rotary_width : static_cast<std::int64_t>(static_cast<double>(D) * share);
    if (width > D) {
        fail(ErrorCode::bad_data, config.where(), ": rotary_dim ", width, " is more than the head width ", D);
    }
    if (width % 2 != 0 || width == 0) {
        fail(ErrorCode::bad_data, config.where(), ": the rotated width ", width, " of a head of width ", D,
             " is odd, but rotation works on pairs");
    }
    return width;
}

// DeepSeek multiplies its scale by m^2, m = 0.1 mscale_all_dim ln(factor) + 1, with any scaling.
double latent_scale(const RopeScaling& scaling, double head_dim) {
    const double all = scaling.kind == Kind::none ? 0 : scaling.mscale_all_dim.value_or(0);
    const double m = all != 0 && scaling.factor > 1 ? 0.1 * all * std::log(scaling.factor) + 1 : 1;
    return m * m / std::sqrt(head_dim);
}

}  // namespace

void read_rope(Config& config, LayerPlan& plan) {
    MhaConfig& c = plan.config;
    const Rotary& row = plan.family->rotary;
    std::optional<Config> found = find_settings(config, plan);
    Config* settings = found ? &*found : nullptr;
    Rope rope{.theta = read_theta(config, settings, plan), .pairs = plan.pairs.value_or(row.pairs)};
    const std::int64_t D = c.latent ? c.latent->rope_dim : c.head_dim;
    rope.width = read_width(config, settings, plan, D);
    rope.offset = c.latent ? c.head_dim - D : 0;
    rope.inverse = plan.rotates_backwards;
    if (settings != nullptr) {
        rope.scaling = read_scaling(config, *settings, row, rope.width);
        settings->refuse_unknown({});
    }
    if (c.latent) c.scale = latent_scale(rope.scaling, static_cast<double>(c.head_dim));
    if (plan.rotates) c.rope = rope;
}

}  // namespace headwise
