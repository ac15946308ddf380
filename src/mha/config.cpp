// MhaConfig: every rule of a layer's shapes and choices, checked once.
#include <cmath>
#include <string>

#include <headwise/mha.h>

#include "core/check.h"
#include "heads/check.h"
#include "kernels/storage_of.h"
#include "mha/widths.h"

namespace headwise {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;  // products of two sizes stay inside 64 bits

void check_size(std::int64_t value, const char* name, bool zero_allowed) {
    check(value >= 0 && value <= kMaxSize, "MhaConfig: ", name, " = ", value, " is outside [0, 2^31]");
    check(zero_allowed || value > 0, "MhaConfig: ", name, " must be positive; give it, or what it follows from");
}

// A size that follows from another one where it is 0.
void fill_size(std::int64_t& value, std::int64_t usual, const char* name) {
    check_size(value, name, true);
    if (value == 0) value = usual;
}

void check_number(double value, const char* name, bool positive = false) {
    check(std::isfinite(value), "MhaConfig: ", name, " = ", value, " is not a finite number");
    check(!positive || value > 0, "MhaConfig: ", name, " = ", value, " must be positive");
}

void check_limit(double value, const char* name) {
    check(std::isfinite(value) && value >= 0, "MhaConfig: ", name, " = ", value,
          " must be a positive number, or 0 for none");
}

void resolve_heads(MhaConfig& c) {
    check_size(c.embed_dim, "embed_dim", true);
    check_size(c.heads, "heads", c.routing.has_value());
    check_size(c.kv_heads, "kv_heads", true);
    if (c.routing) {
        const Routing& r = *c.routing;
        check_size(r.experts, "routing.experts", false);
        check(r.top_k >= 1 && r.top_k <= r.experts, "MhaConfig: routing.top_k = ", r.top_k,
              " must be between 1 and routing.experts = ", r.experts);
        check_size(c.kv_heads, "kv_heads", false);
        check(c.kv_heads <= kMaxSize / r.top_k, "MhaConfig: ", r.top_k, " experts of ", c.kv_heads,
              " heads are more than 2^31 heads");
        if (c.heads == 0) c.heads = r.top_k * c.kv_heads;
        check(c.heads == r.top_k * c.kv_heads, "MhaConfig: heads = ", c.heads,
              " with routing, where each of the top_k = ", r.top_k, " experts gives a q for each of the ",
              c.kv_heads, " kv heads; give ", r.top_k * c.kv_heads, ", or 0");
    }
    if (c.kv_heads == 0) c.kv_heads = c.heads;
    check(c.heads % c.kv_heads == 0, "MhaConfig: heads = ", c.heads,
          " is not a multiple of kv_heads = ", c.kv_heads,
          "; every kv head serves the same number of query heads");
}

void resolve_widths(MhaConfig& c) {
    check_size(c.head_dim, "head_dim", true);
    if (c.head_dim == 0) {
        check(c.embed_dim % c.heads == 0, "MhaConfig: embed_dim = ", c.embed_dim,
              " is not a multiple of heads = ", c.heads, "; give head_dim where they are independent");
        c.head_dim = c.embed_dim / c.heads;
    }
    check_size(c.head_dim, "head_dim", false);
    fill_size(c.value_dim, c.head_dim, "value_dim");
    fill_size(c.key_embed_dim, c.embed_dim, "key_embed_dim");
    fill_size(c.value_embed_dim, c.embed_dim, "value_embed_dim");
    fill_size(c.out_dim, c.embed_dim, "out_dim");
    for (const std::int64_t width : {c.head_dim, c.value_dim}) {
        check(c.heads * width <= kMaxSize, "MhaConfig: ", c.heads, " heads of width ", width,
              " make a row of more than 2^31 numbers");
    }
}

void check_norm_rule(const HeadNorm& norm, const char* name) {
    check(std::isfinite(norm.eps) && norm.eps >= 0, "MhaConfig: ", name, " eps = ", norm.eps,
          " must be a number that is not negative");
}

void resolve_latent(MhaConfig& c) {
    Latent& latent = *c.latent;
    check_size(latent.q_rank, "latent.q_rank", true);
    check_size(latent.kv_rank, "latent.kv_rank", false);
    check_size(latent.rope_dim, "latent.rope_dim", true);
    check_number(latent.eps, "latent.eps");
    check(c.kv_heads == c.heads,
          "MhaConfig: a latent layer has a key of its own for every head, so kv_heads = ", c.kv_heads,
          " must be heads = ", c.heads, " (or 0)");
    check(latent.rope_dim < c.head_dim, "MhaConfig: latent.rope_dim = ", latent.rope_dim,
          " must be below head_dim = ", c.head_dim, ", which counts the part without rotation too");
    check(!c.qk_norm, "MhaConfig: qk_norm in a latent layer, which normalises its latents instead");
    check(!c.routing, "MhaConfig: a layer is latent or routed, not both");
    check(c.clip_qkv == 0, "MhaConfig: clip_qkv in a latent layer, where q, k and v are not projected from x");
    check(c.key_embed_dim == c.embed_dim && c.value_embed_dim == c.embed_dim,
          "MhaConfig: a latent layer projects its latent from x; leave key_embed_dim and value_embed_dim out");
    if (!c.rope) return;
    const std::int64_t nope = c.head_dim - latent.rope_dim;
    check(latent.rope_dim > 0, "MhaConfig: rope in a latent layer without rope_dim");
    check((c.rope->width == 0 || c.rope->width == latent.rope_dim) &&
              (c.rope->offset == 0 || c.rope->offset == nope),
          "MhaConfig: a latent layer rotates the last rope_dim = ", latent.rope_dim,
          " columns; leave rope.width and rope.offset at 0");
    c.rope->width = latent.rope_dim;
    c.rope->offset = nope;
}

void check_relative_bias(const MhaConfig& c) {
    const RelativeBias& bias = *c.relative_bias;
    const std::int64_t least = bias.bidirectional ? 4 : 2;
    check_size(bias.buckets, "relative_bias.buckets", false);
    check_size(bias.max_distance, "relative_bias.max_distance", false);
    check(bias.buckets >= least && bias.buckets % (least / 2) == 0,
          "MhaConfig: relative_bias.buckets = ", bias.buckets,
          bias.bidirectional ? " must be even and at least 4, half for each sign" : " must be at least 2");
    const std::int64_t exact = bias.buckets / least;
    check(bias.max_distance > exact, "MhaConfig: relative_bias.max_distance = ", bias.max_distance,
          " must be above ", exact, ", the distances that have a bucket of their own");
    check(bias.max_distance <= kMaxSize / 4 / c.heads,
          "MhaConfig: relative_bias.max_distance = ", bias.max_distance,
          " needs a table of more than 2^31 numbers for ", c.heads, " heads");
}

void check_outputs_of_heads(const MhaConfig& c) {
    check(c.gate == Gate::none || c.gate == Gate::head || c.gate == Gate::element,
          "MhaConfig: gate is none of none, head and element");
    if (c.difference) {
        check(c.heads % 2 == 0,
              "MhaConfig: difference subtracts the second half of the heads from the first, so heads = ", c.heads,
              " must be even");
        check_number(c.difference->lambda, "difference.lambda");
    }
    if (c.merged_norm) {
        check_norm_rule(c.merged_norm->norm, "merged_norm");
        check_number(c.merged_norm->factor, "merged_norm.factor");
    }
    check(!c.routing || (!c.difference && !c.merged_norm),
          "MhaConfig: difference and merged_norm work on the row that W_O reads, which a routed layer does not "
          "have");
}

void check_scores(const MhaConfig& c) {
    check(!c.scale || std::isfinite(*c.scale), "MhaConfig: scale = ", c.scale.value_or(0),
          " is not a finite number; leave it out for 1/sqrt(head_dim)");
    check_limit(c.softcap, "softcap");
    check_limit(c.clip_qkv, "clip_qkv");
    if (c.temperature) {
        check_number(c.temperature->scale, "temperature.scale");
        check_number(c.temperature->floor_scale, "temperature.floor_scale", true);
    }
    if (c.qk_norm) check_norm_rule(*c.qk_norm, "qk_norm");
    if (c.rope) check_rope(*c.rope, c.head_dim, "MhaConfig");
    if (c.relative_bias) check_relative_bias(c);
}

void check_mask_rule(const Mask& mask) {
    check(mask.window_left >= -1 && mask.window_right >= -1, "MhaConfig: window (", mask.window_left, ", ",
          mask.window_right, ") must be >= 0, or -1 for open");
    check(mask.chunk >= 0 && mask.keep_first >= 0, "MhaConfig: mask.chunk = ", mask.chunk,
          " and mask.keep_first = ", mask.keep_first, " must not be negative; 0 is none");
    const bool tensors = !mask.key_lengths.empty() || !mask.key_starts.empty() || !mask.chunk_origins.empty() ||
                         !mask.documents.queries.empty() || !mask.documents.keys.empty() ||
                         !mask.blocks.counts.empty() || !mask.blocks.blocks.empty() || !mask.keep.empty() ||
                         !mask.bias.empty();
    check(!tensors, "MhaConfig: tensors in the mask belong to a call; pass them in ForwardOptions::mask");
}

}  // namespace

MhaConfig resolve(const MhaConfig& given) {
    MhaConfig config = given;
    resolve_heads(config);
    resolve_widths(config);
    if (config.latent) resolve_latent(config);
    check_scores(config);
    check_outputs_of_heads(config);
    check_mask_rule(config.mask);
    check(has_storage(config.dtype), "MhaConfig: dtype ", config.dtype, " is not one of f32, bf16, f16");
    return config;
}

KvCache make_cache(const MhaConfig& config, const KvCacheConfig& wish) {
    return KvCache(cache_config(config, wish));
}

}  // namespace headwise
