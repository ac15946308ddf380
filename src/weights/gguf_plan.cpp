#include "weights/gguf_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "core/check.h"
#include "weights/quote.h"

namespace headwise {
namespace {

// Settings that attention does not depend on: bookkeeping and other stages.
constexpr std::string_view kHarmless[] = {"name",
                                          "vocab_size",
                                          "context_length",
                                          "embedding_length_out",
                                          "feed_forward_length",
                                          "tensor_data_layout",
                                          "use_parallel_residual",
                                          "leading_dense_block_count",
                                          "expert_feed_forward_length",
                                          "expert_shared_feed_forward_length",
                                          "expert_count",
                                          "expert_used_count",
                                          "expert_shared_count",
                                          "expert_group_count",
                                          "expert_group_used_count",
                                          "expert_weights_scale",
                                          "expert_weights_norm",
                                          "expert_gating_func",
                                          "interleave_moe_layer_step",
                                          "moe_every_n_layers",
                                          "pooling_type",
                                          "logit_scale",
                                          "residual_scale",
                                          "embedding_scale",
                                          "final_logit_softcapping",
                                          "router_logit_softcapping",
                                          "attention.layer_norm_epsilon",
                                          "attention.layer_norm_rms_epsilon",
                                          "rope.scaling.finetuned",
                                          "rope.scaling.original_context_length",
                                          "rope.scaling.yarn_beta_fast",
                                          "rope.scaling.yarn_beta_slow"};

// clang-format off
constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama", .rotation = GgufRotation::interleaved, .full_every = 0},
    {.name = "qwen2", .rotation = GgufRotation::half_split, .biases = GgufBiases::qkv},
    {.name = "gpt2", .rotation = GgufRotation::none, .biases = GgufBiases::all},
    {.name = "gemma2", .rotation = GgufRotation::half_split, .full_every = 2, .default_window = 4096, .softcap = true,
     .wide_scale_layers = 46},

    {.name = "qwen2moe", .rotation = GgufRotation::half_split, .biases = GgufBiases::qkv},
    {.name = "qwen3", .rotation = GgufRotation::half_split, .norm = GgufNorm::head},
    {.name = "qwen3moe", .rotation = GgufRotation::half_split, .norm = GgufNorm::head},
    {.name = "gemma", .rotation = GgufRotation::half_split},
    {.name = "gemma3", .rotation = GgufRotation::half_split, .norm = GgufNorm::head, .full_every = 6,
     .window_theta = 10000, .wide_scale_layers = 62},
    {.name = "phi2", .rotation = GgufRotation::half_split, .biases = GgufBiases::all},
    {.name = "phi3", .rotation = GgufRotation::half_split, .full_every = 0},
    {.name = "starcoder", .rotation = GgufRotation::none, .biases = GgufBiases::all},
    {.name = "starcoder2", .rotation = GgufRotation::half_split, .full_every = 0},
    {.name = "gptneox", .rotation = GgufRotation::half_split, .biases = GgufBiases::all},
    {.name = "bloom", .rotation = GgufRotation::none, .biases = GgufBiases::all, .alibi = 8},
    {.name = "mpt", .rotation = GgufRotation::none},
    {.name = "falcon", .rotation = GgufRotation::half_split},
    {.name = "olmo", .rotation = GgufRotation::interleaved},
    {.name = "olmo2", .rotation = GgufRotation::half_split, .norm = GgufNorm::row},
    {.name = "granite", .rotation = GgufRotation::interleaved},
    {.name = "granitemoe", .rotation = GgufRotation::interleaved},
    {.name = "cohere2", .rotation = GgufRotation::interleaved, .full_every = 4, .unrotated_without_window = true},
    {.name = "smollm3", .rotation = GgufRotation::interleaved, .unrotated_every = 4},
    {.name = "arcee", .rotation = GgufRotation::interleaved},
    {.name = "ernie4_5", .rotation = GgufRotation::interleaved},
    {.name = "nemotron", .rotation = GgufRotation::half_split},
    {.name = "exaone", .rotation = GgufRotation::half_split},
    {.name = "seed_oss", .rotation = GgufRotation::half_split},
};
// clang-format on

const GgufArchitecture& find_architecture(const GgufMetadata& metadata) {
    std::string supported;
    for (const GgufArchitecture& row : kArchitectures) {
        if (row.name == metadata.architecture()) return row;
        supported += text(supported.empty() ? "" : ", ", row.name);
    }
    fail(ErrorCode::unsupported, metadata.where(), ": the architecture ", quote(metadata.architecture()),
         " is not supported; supported: ", supported);
}

struct Layer {
    std::int64_t number = 0, count = 0;
};

void read_heads(GgufMetadata& metadata, const Layer& layer, MhaConfig& mha) {
    const std::int64_t E = metadata.need("embedding_length", layer.number, layer.count);
    const std::int64_t H = metadata.need("attention.head_count", layer.number, layer.count);
    const auto kv_heads = metadata.size("attention.head_count_kv", layer.number, layer.count);
    const std::int64_t G = kv_heads.value_or(H);
    if (G == 0 || H % G != 0) {
        fail(ErrorCode::bad_data, metadata.where(), ": attention.head_count ", H,
             " is not a multiple of attention.head_count_kv ", G);
    }
    const auto width = [&](std::string_view setting) {
        const auto given = metadata.size(setting, layer.number, layer.count);
        if (given.value_or(0) > 0) return *given;
        if (E % H != 0) {
            fail(ErrorCode::bad_data, metadata.where(), ": embedding_length ", E,
                 " is not a multiple of attention.head_count ", H, ", and ", setting, " is missing");
        }
        return E / H;
    };
    mha.embed_dim = E;
    mha.heads = H;
    mha.kv_heads = G;
    mha.head_dim = width("attention.key_length");
    mha.value_dim = width("attention.value_length");
}

// Whether the layer is windowed; then the mask has the window.
bool read_window(GgufMetadata& metadata, const GgufArchitecture& row, const Layer& layer, MhaConfig& mha) {
    if (row.full_every < 0) return false;
    const std::int64_t keys = metadata.size("attention.sliding_window").value_or(row.default_window);
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    std::int64_t every = row.full_every;
    const auto listed = metadata.flag(kPattern, layer.number, layer.count);
    if (!listed) every = metadata.size(kPattern).value_or(every);
    const bool windowed = listed.value_or(every == 0 || (layer.number + 1) % every != 0);
    if (keys == 0 || !windowed) return false;
    mha.mask.window_left = keys - 1;  // the window counts the query's own key
    return true;
}

void read_scaling(GgufMetadata& metadata, Rope& rope) {
    const double factor =
        metadata.number("rope.scaling.factor").value_or(metadata.number("rope.scale_linear").value_or(1));
    const std::string type = metadata.word("rope.scaling.type").value_or("linear");
    if (factor == 0 || factor == 1 || type == "none") return;
    if (factor < 0) fail(ErrorCode::bad_data, metadata.where(), ": rope.scaling.factor is ", factor);
    rope.scaling.factor = factor;
    if (type == "linear") {
        rope.scaling.kind = RopeScaling::Kind::linear;
    } else if (type == "yarn") {
        rope.scaling.kind = RopeScaling::Kind::yarn;
        const auto context = metadata.size("context_length");
        rope.scaling.original_max_position =
            metadata.size("rope.scaling.original_context_length").value_or(context.value_or(0));
        rope.scaling.beta_fast = metadata.number("rope.scaling.yarn_beta_fast").value_or(32);
        rope.scaling.beta_slow = metadata.number("rope.scaling.yarn_beta_slow").value_or(1);
    } else {
        fail(ErrorCode::unsupported, metadata.where(), ": rope.scaling.type is ", quote(type),
             "; supported: 'none', 'linear', 'yarn'");
    }
}

Rope read_rope(GgufMetadata& metadata, const GgufArchitecture& row, const Layer& layer, const GgufPlan& plan) {
    Rope rope;
    rope.pairs = row.rotation == GgufRotation::interleaved ? Rope::Pairs::interleaved : Rope::Pairs::half_split;
    rope.theta = metadata.number("rope.freq_base").value_or(10000);
    rope.width = metadata.size("rope.dimension_count", layer.number, layer.count).value_or(plan.config.head_dim);
    read_scaling(metadata, rope);
    if (row.window_theta > 0) {
        const double theta = metadata.number("rope.freq_base_swa").value_or(row.window_theta);
        if (plan.windowed) rope.theta = theta, rope.scaling = {};
    }
    if (rope.theta <= 0) fail(ErrorCode::bad_data, metadata.where(), ": rope.freq_base is ", rope.theta);
    if (rope.width == 0 || rope.width % 2 != 0 || rope.width > plan.config.head_dim) {
        fail(ErrorCode::bad_data, metadata.where(), ": rope.dimension_count ", rope.width,
             " is no even part of a head of width ", plan.config.head_dim);
    }
    return rope;
}

// The factors themselves are tensors.
void read_longrope(GgufMetadata& metadata, const GgufFile& file, GgufPlan& plan) {
    if (file.find("rope_factors_long.weight") == nullptr) return;
    plan.rope_magnitude = metadata.number("rope.scaling.attn_factor").value_or(1);
    const auto context = metadata.size("context_length");
    plan.original_context = metadata.size("rope.scaling.original_context_length").value_or(context.value_or(0));
}

void read_norm(GgufMetadata& metadata, const GgufArchitecture& row, MhaConfig& mha) {
    if (row.norm == GgufNorm::none) return;
    const auto eps = metadata.number("attention.layer_norm_rms_epsilon");
    if (!eps || *eps < 0) {
        fail(ErrorCode::bad_data, metadata.where(),
             ": attention.layer_norm_rms_epsilon is missing or negative; q and k are normalised with it");
    }
    mha.qk_norm = HeadNorm{.extent = row.norm == GgufNorm::row ? HeadNorm::Extent::row : HeadNorm::Extent::head,
                           .eps = *eps};
}

void read_scores(GgufMetadata& metadata, const GgufArchitecture& row, const Layer& layer, GgufPlan& plan) {
    MhaConfig& mha = plan.config;
    const double scale = metadata.number("attention.scale").value_or(0);
    if (scale != 0) mha.scale = scale;
    if (scale == 0 && layer.count == row.wide_scale_layers) {
        mha.scale = 1 / std::sqrt(static_cast<double>(mha.embed_dim / mha.heads));
    }
    if (row.softcap) mha.softcap = metadata.number("attn_logit_softcapping").value_or(0);
    mha.clip_qkv = metadata.number("attention.clamp_kqv").value_or(0);
    plan.alibi =
        row.rotation == GgufRotation::none ? metadata.number("attention.max_alibi_bias").value_or(row.alibi) : 0;
    if (mha.softcap < 0 || mha.clip_qkv < 0 || plan.alibi < 0) {
        fail(ErrorCode::bad_data, metadata.where(), ": a softcap, a clamp or a largest ALiBi bias is negative");
    }
}

void read_causal(GgufMetadata& metadata, const GgufArchitecture& row, std::optional<bool> asked, MhaConfig& mha) {
    const bool causal = metadata.flag("attention.causal").value_or(true);
    check(asked.value_or(causal) == causal, "load_layer: this ", row.name, " model is ",
          causal ? "causal" : "not causal", "; leave LayerOptions::causal out");
    mha.mask.causal = causal;
}

}  // namespace

GgufPlan plan_gguf(const GgufFile& file, std::int64_t number, std::optional<bool> causal) {
    GgufMetadata metadata(file);
    const GgufArchitecture& row = find_architecture(metadata);
    GgufPlan plan;
    plan.architecture = &row;
    plan.layers = metadata.need("block_count", 0, 0);
    check(number >= 0 && number < plan.layers, "load_layer: layer ", number, ", but ", file.path(),
          " has the layers 0 to ", plan.layers - 1);
    const Layer layer{number, plan.layers};
    read_heads(metadata, layer, plan.config);
    plan.windowed = read_window(metadata, row, layer, plan.config);
    plan.rotates = row.rotation != GgufRotation::none &&
                   (row.unrotated_every == 0 || (number + 1) % row.unrotated_every != 0) &&
                   (!row.unrotated_without_window || plan.windowed);
    if (row.rotation != GgufRotation::none) {
        const Rope rope = read_rope(metadata, row, layer, plan);
        if (plan.rotates) plan.config.rope = rope;
    }
    read_longrope(metadata, file, plan);
    read_norm(metadata, row, plan.config);
    read_scores(metadata, row, layer, plan);
    read_causal(metadata, row, causal, plan.config);
    metadata.refuse_unknown(kHarmless);
    return plan;
}

}  // namespace headwise
