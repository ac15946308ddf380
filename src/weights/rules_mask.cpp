// Rules about which keys a layer sees.
#include "core/check.h"
#include "weights/quote.h"
#include "weights/rules.h"

namespace headwise::rules {
namespace {

// sliding_window and the like: null and 0 mean none.
std::int64_t read_window(Config& config, std::string_view key, std::int64_t preset = 0) {
    if (!config.given(key)) return preset;
    const Json* value = config.find(key);
    if (value != nullptr && value->kind == Json::Kind::integer && value->whole == 0) return 0;
    return config.size(key).value_or(0);
}

// A window W keeps W keys, the query's own among them.
void apply_window(LayerPlan& plan, std::int64_t window) {
    if (plan.kind == LayerKind::windowed && window > 0) plan.config.mask.window_left = window - 1;
}

// layer_types decide; without them the rule of older files does.
void choose(LayerPlan& plan, bool windowed) {
    plan.kind_used = true;
    if (plan.kind == LayerKind::chunked || plan.kind == LayerKind::other) {
        plan.kind_used = false;  // refused by name
    } else if (!plan.kind_given) {
        plan.kind = windowed ? LayerKind::windowed : LayerKind::full;
    }
}

void except_every(Config& config, LayerPlan& plan, std::int64_t pattern, std::int64_t window) {
    choose(plan, (plan.layer + 1) % pattern != 0);
    apply_window(plan, read_window(config, "sliding_window", window));
}

// A pattern of older files. Where there are layer_types it has no effect, and may be a string such as "LLLG".
std::int64_t read_pattern(Config& config, const LayerPlan& plan, std::int64_t preset) {
    if (plan.kind_given) {
        config.ignore("sliding_window_pattern");
        return preset;
    }
    return config.size("sliding_window_pattern").value_or(preset);
}

}  // namespace

void window(Config& config, LayerPlan& plan) {
    choose(plan, true);
    apply_window(plan, read_window(config, "sliding_window", plan.family->preset_window));
}

void window_if_used(Config& config, LayerPlan& plan) {
    const bool use = config.flag("use_sliding_window").value_or(false);
    const std::int64_t window = read_window(config, "sliding_window", plan.family->preset_window);
    choose(plan, use);
    apply_window(plan, use ? window : 0);
}

void window_on_even_layers(Config& config, LayerPlan& plan) {
    choose(plan, plan.layer % 2 == 0);
    apply_window(plan, read_window(config, "sliding_window", plan.family->preset_window));
}

void window_except_every_4th(Config& config, LayerPlan& plan) {
    const std::int64_t pattern = read_pattern(config, plan, 4);
    except_every(config, plan, pattern, plan.family->preset_window);
}

void window_except_every_4th_from_0(Config& config, LayerPlan& plan) {
    choose(plan, plan.layer % 4 != 0);
    apply_window(plan, read_window(config, "sliding_window", plan.family->preset_window));
}

void window_except_every_6th(Config& config, LayerPlan& plan) {
    const std::int64_t pattern = read_pattern(config, plan, 6);
    except_every(config, plan, pattern, plan.family->preset_window);
}

void window_from_max_window_layers(Config& config, LayerPlan& plan) {
    const bool use = config.flag("use_sliding_window").value_or(false);
    const std::int64_t window = read_window(config, "sliding_window", plan.family->preset_window);
    const std::int64_t first = read_window(config, "max_window_layers", 28);
    choose(plan, use && plan.layer >= first);
    apply_window(plan, use ? window : 0);
}

void window_on_even_layers_below_max_window_layers(Config& config, LayerPlan& plan) {
    const bool use = config.flag("use_sliding_window").value_or(false);
    const std::int64_t window = read_window(config, "sliding_window", plan.family->preset_window);
    const std::int64_t end = read_window(config, "max_window_layers", 28);
    choose(plan, use && plan.layer % 2 == 0 && plan.layer < end);
    apply_window(plan, use ? window : 0);
}

void window_where_not_rotated(Config& config, LayerPlan& plan) {
    const bool use = config.flag("use_sliding_window").value_or(false);
    const std::int64_t window = read_window(config, "sliding_window", plan.family->preset_window);
    choose(plan, use && window > 0 && !plan.rotates);
    apply_window(plan, window);
}

void two_sided_local_attention(Config& config, LayerPlan& plan) {
    const std::int64_t every = config.size("global_attn_every_n_layers").value_or(3);
    choose(plan, plan.layer % every != 0);
    const std::int64_t half = config.size("local_attention").value_or(128) / 2;
    if (plan.kind == LayerKind::windowed) plan.config.mask.window_left = plan.config.mask.window_right = half;
}

// attention_types: [[["global", "local"], 12], ...], each list repeated so many times.
void gpt_neo_attention_types(Config& config, LayerPlan& plan) {
    config.ignore("attention_layers");  // the same, written out
    const std::int64_t window = read_window(config, "window_size", 256);
    const auto malformed = [&] {
        fail(ErrorCode::bad_data, config.where(),
             ": attention_types must be a list of pairs like [[\"global\", \"local\"], 12]");
    };
    const Json* types = config.list("attention_types");
    std::int64_t at = plan.layer;
    std::string found = at % 2 == 0 ? "global" : "local";
    bool settled = types == nullptr;
    for (std::size_t i = 0; !settled && i < types->items.size(); ++i) {
        const Json& pair = types->items[i];
        if (pair.kind != Json::Kind::array || pair.items.size() != 2) malformed();
        const Json &names = pair.items[0], &repeats = pair.items[1];
        if (names.kind != Json::Kind::array || repeats.kind != Json::Kind::integer || repeats.whole < 0)
            malformed();
        const auto period = static_cast<std::int64_t>(names.items.size());
        if (period > 0 && at / period < repeats.whole) {
            const Json& name = names.items[static_cast<std::size_t>(at % period)];
            if (name.kind != Json::Kind::string) malformed();
            found = name.text;
            settled = true;
        } else {
            if (period > 0 && repeats.whole > plan.layers / period) malformed();
            at -= period * repeats.whole;
        }
    }
    if (!settled)
        fail(ErrorCode::bad_data, config.where(), ": attention_types has no entry for layer ", plan.layer);
    if (found != "global" && found != "local") {
        fail(ErrorCode::unsupported, config.where(), ": attention_types names ", quote(found),
             "; headwise knows global and local");
    }
    plan.kind = found == "local" ? LayerKind::windowed : LayerKind::full;
    apply_window(plan, window);
}

void maybe_bidirectional(Config& config, LayerPlan& plan) {
    if (!config.flag("use_bidirectional_attention").value_or(false)) return;
    Mask& mask = plan.config.mask;
    mask.causal = false;
    if (mask.window_left < 0) return;
    const std::int64_t written = mask.window_left + 1;  // |t - p| < written / 2 + 1
    mask.window_left = mask.window_right = written / 2;
}

void chunks_where_rotated(Config& config, LayerPlan& plan) {
    const std::int64_t chunk = read_window(config, "attention_chunk_size", 8192);
    if (plan.kind_given) {
        plan.kind_used = plan.kind == LayerKind::full || plan.kind == LayerKind::chunked;
    } else {
        plan.kind = plan.rotates ? LayerKind::chunked : LayerKind::full;
    }
    if (plan.kind == LayerKind::chunked) plan.config.mask.chunk = chunk;
}

void only_full_attention(Config& config, LayerPlan& plan) {
    plan.kind_used = true;
    if (!plan.kind_given) {
        const std::int64_t interval = config.size("full_attention_interval").value_or(4);
        plan.kind = (plan.layer + 1) % interval == 0 ? LayerKind::full : LayerKind::other;
        plan.kind_name = "linear_attention";
    } else {
        config.ignore("full_attention_interval");
    }
    if (plan.kind == LayerKind::windowed || plan.kind == LayerKind::chunked) plan.kind_used = false;
}

}  // namespace headwise::rules
