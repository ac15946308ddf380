// Stage 2: what happens to the projected rows, in place.
#include "heads/rope.h"
#include "kernels/storage_of.h"
#include "mha/latent.h"
#include "mha/rows.h"
#include "mha/stages.h"

namespace headwise {
namespace {

// Heads of a token lie side by side.
void clip(const Block& block, const TensorView& heads, const Execution& execution) {
    const auto limit = static_cast<float>(block.config.clip_qkv);
    const std::int64_t width = heads.size(2) * heads.size(3);
    for_each_token(heads.size(0), heads.size(1), width, execution, [&](std::int64_t b, std::int64_t t) {
        block.kernels->rows.clip(element(heads, b * heads.stride(0) + t * heads.stride(1)),
                                 storage_of(heads.dtype), width, limit);
    });
}

void normalize_q_k(const Block& block, const Flow& flow, const Execution& execution) {
    normalize_heads(block, flow.q, *block.q_norm, execution);
    if (!flow.k.empty()) normalize_heads(block, flow.k, *block.k_norm, execution);
}

void rotate_heads(const Block& block, const Call& call, const Flow& flow, const TensorView& heads,
                  const Rotation& rotation) {
    const ForwardOptions& options = call.options;
    const RopePositions positions{.given = options.rope_positions, .offsets = flow.rope_offsets};
    if (options.rope_tables.cos.empty())
        return rotate(*block.kernels, heads, rotation, positions, options.execution);
    rotate(*block.kernels, heads, rotation.layout(), options.rope_tables, positions, options.execution);
}

void rotate_q_k(const Block& block, const Call& call, const Flow& flow) {
    rotate_heads(block, call, flow, flow.q, *block.rotation);
    if (block.latent) {
        if (flow.latent.empty()) return;
        const Latent& latent = *block.config.latent;
        return rotate_heads(block, call, flow, flow.latent.slice(3, latent.kv_rank, latent.rope_dim),
                            *block.key_rotation);
    }
    if (!flow.k.empty()) rotate_heads(block, call, flow, flow.k, *block.rotation);
}

}  // namespace

void normalize_heads(const Block& block, const TensorView& heads, const Normalization& norm,
                     const Execution& execution) {
    normalize(*block.kernels, heads, norm.norm(), norm.factors(), execution);
}

void prepare_heads(const Block& block, const Call& call, const Flow& flow) {
    const MhaConfig& c = block.config;
    const Execution& execution = call.options.execution;
    if (c.routing) route_queries(block, flow, execution);
    if (c.latent) finish_latents(block, flow, execution);
    if (c.clip_qkv > 0) {
        clip(block, flow.q, execution);
        if (!flow.k.empty()) clip(block, flow.k, execution), clip(block, flow.v, execution);
    }
    if (c.qk_norm && !c.qk_norm->after_rope) normalize_q_k(block, flow, execution);
    if (c.rope) rotate_q_k(block, call, flow);
    if (c.qk_norm && c.qk_norm->after_rope) normalize_q_k(block, flow, execution);
}

}  // namespace headwise
