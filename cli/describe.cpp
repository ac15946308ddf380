#include "cli/describe.h"

#include <headwise/tensor.h>

#include "cli/text.h"

namespace headwise::cli {

namespace {

const char* name_of_scaling(RopeScaling::Kind kind) {
    switch (kind) {
        case RopeScaling::Kind::none:
            return "none";
        case RopeScaling::Kind::linear:
            return "linear";
        case RopeScaling::Kind::dynamic:
            return "dynamic";
        case RopeScaling::Kind::dynamic_alpha:
            return "dynamic with alpha";
        case RopeScaling::Kind::llama3:
            return "llama3";
        case RopeScaling::Kind::yarn:
            return "yarn";
        case RopeScaling::Kind::longrope:
            return "longrope";
    }
    return "";
}

const char* name_of_gate(Gate gate) {
    return gate == Gate::none ? "none" : gate == Gate::head ? "head" : "element";
}

std::string rope_text(const Rope& rope, std::int64_t head_dim) {
    std::string words = join(", rope theta ", rope.theta);
    if (rope.pairs == Rope::Pairs::interleaved) words += " interleaved";
    if (rope.width > 0 && rope.width < head_dim) words += join(" on ", rope.width, " columns");
    if (rope.offset > 0) words += join(" from column ", rope.offset);
    if (rope.inverse) words += " backwards";
    if (rope.scaling.kind != RopeScaling::Kind::none)
        words += join(" scaled by ", name_of_scaling(rope.scaling.kind));
    return words;
}

std::string norm_text(const HeadNorm& norm) {
    return join(norm.kind == HeadNorm::Kind::rms ? "RMS norm" : "layer norm", " over each ",
                norm.extent == HeadNorm::Extent::head ? "head" : "row");
}

std::string mask_text(const Mask& mask) {
    std::string words = mask.causal ? ", causal" : ", not causal";
    if (mask.window_left >= 0) words += join(", window left ", mask.window_left);
    if (mask.window_right >= 0) words += join(", window right ", mask.window_right);
    if (mask.keep_first > 0) words += join(", first ", mask.keep_first, " always seen");
    if (mask.chunk > 0) words += join(", chunks of ", mask.chunk);
    return words;
}

Json rope_json(const MhaConfig& config) {
    if (!config.rope) return {};
    const Rope& rope = *config.rope;
    return Json::object({{"theta", rope.theta},
                         {"pairs", rope.pairs == Rope::Pairs::interleaved ? "interleaved" : "half_split"},
                         {"width", rope.width},
                         {"offset", rope.offset},
                         {"inverse", rope.inverse},
                         {"scaling", name_of_scaling(rope.scaling.kind)},
                         {"factor", rope.scaling.factor}});
}

Json norm_json(const std::optional<HeadNorm>& norm) {
    if (!norm) return {};
    return Json::object({{"kind", norm->kind == HeadNorm::Kind::rms ? "rms" : "layer_norm"},
                         {"extent", norm->extent == HeadNorm::Extent::head ? "head" : "row"},
                         {"after_rope", norm->after_rope},
                         {"eps", norm->eps}});
}

}  // namespace

std::string describe(const MhaConfig& c) {
    std::string words =
        join("E ", c.embed_dim, ", ", c.heads, " query heads, ", c.kv_heads, " key/value heads, D ", c.head_dim);
    if (c.value_dim != c.head_dim) words += join(", Dv ", c.value_dim);
    if (c.scale) words += join(", scale ", *c.scale);
    words += mask_text(c.mask);
    if (c.softcap > 0) words += join(", softcap ", c.softcap);
    if (c.clip_qkv > 0) words += join(", q, k, v clipped at ", c.clip_qkv);
    if (c.qk_norm) words += join(", ", norm_text(*c.qk_norm), c.qk_norm->after_rope ? " after rope" : "");
    if (c.rope) words += rope_text(*c.rope, c.head_dim);
    if (c.temperature) words += join(", temperature by position, scale ", c.temperature->scale);
    if (c.relative_bias) words += join(", relative bias of ", c.relative_bias->buckets, " buckets");
    if (c.latent) words += join(", latent of ", c.latent->kv_rank, " + ", c.latent->rope_dim);
    if (c.routing) words += join(", ", c.routing->top_k, " of ", c.routing->experts, " experts");
    if (c.gate != Gate::none) words += join(", a gate for each ", name_of_gate(c.gate));
    if (c.difference) words += join(", difference of head pairs, lambda ", c.difference->lambda);
    if (c.merged_norm) words += join(", ", norm_text(c.merged_norm->norm), " before W_O");
    if (c.zero_key) words += ", a zero key";
    return words;
}

Json config_json(const MhaConfig& c) {
    Json json = Json::object({{"embed_dim", c.embed_dim},
                              {"heads", c.heads},
                              {"kv_heads", c.kv_heads},
                              {"head_dim", c.head_dim},
                              {"value_dim", c.value_dim},
                              {"out_dim", c.out_dim},
                              {"causal", c.mask.causal},
                              {"window_left", c.mask.window_left},
                              {"window_right", c.mask.window_right},
                              {"keep_first", c.mask.keep_first},
                              {"chunk", c.mask.chunk},
                              {"scale", c.scale ? Json(*c.scale) : Json()},
                              {"softcap", c.softcap},
                              {"clip_qkv", c.clip_qkv},
                              {"qk_norm", norm_json(c.qk_norm)},
                              {"rope_theta", c.rope ? Json(c.rope->theta) : Json()},
                              {"rope", rope_json(c)},
                              {"gate", name_of_gate(c.gate)},
                              {"zero_key", c.zero_key},
                              {"dtype", name_of(c.dtype)}});
    if (c.temperature) json.set("temperature", c.temperature->scale);
    if (c.relative_bias) json.set("relative_bias_buckets", c.relative_bias->buckets);
    if (c.difference) json.set("difference_lambda", c.difference->lambda);
    if (c.merged_norm) json.set("merged_norm", norm_json(c.merged_norm->norm));
    if (c.latent)
        json.set("latent", Json::object({{"kv_rank", c.latent->kv_rank}, {"rope_dim", c.latent->rope_dim}}));
    if (c.routing) {
        json.set("routing", Json::object({{"experts", c.routing->experts}, {"top_k", c.routing->top_k}}));
    }
    return json;
}

}  // namespace headwise::cli
