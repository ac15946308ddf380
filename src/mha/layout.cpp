// One block of scratch per run, cut into the buffers that its stages write.
#include <algorithm>

#include "core/storage.h"
#include "heads/bands.h"
#include "mha/flow.h"
#include "mha/latent.h"
#include "mha/widths.h"

namespace headwise {
namespace {

class Carver {
public:
    explicit Carver(std::byte* base) : base_(base) {}

    TensorView take(DType dtype, std::initializer_list<std::int64_t> sizes) {
        const TensorView view(base_ == nullptr ? nullptr : base_ + used_, dtype, sizes);
        std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
        for (const std::int64_t size : sizes) bytes = checked_multiply(bytes, size, "forward");
        used_ = checked_multiply((bytes + kPad - 1) / kPad + used_ / kPad, kPad, "forward");
        return view;
    }
    std::size_t bytes() const { return static_cast<std::size_t>(used_); }

private:
    static constexpr std::int64_t kPad = kAlignment;
    std::byte* base_;
    std::int64_t used_ = 0;
};

// Hands out the bands of a row from left to right.
struct Row {
    TensorView rows;
    std::int64_t at = 0;

    TensorView heads(std::int64_t count, std::int64_t width) {
        const BandGroup group{at, count, width};
        at += count * width;
        return split_heads(rows, group);
    }
};

// q, what q is made from, and the gate.
void take_first(const MhaConfig& c, Row& row, Flow& flow) {
    if (c.routing) {
        flow.router = row.rows.slice(2, row.at, c.routing->experts);
        row.at += c.routing->experts;
    } else if (c.latent && c.latent->q_rank > 0) {
        flow.q_latent = row.heads(1, c.latent->q_rank);
    } else {
        flow.q = row.heads(c.heads, c.head_dim);
    }
    if (c.gate == Gate::none) return;
    const std::int64_t width = c.gate == Gate::head ? 1 : c.value_dim;
    flow.gate = row.heads(c.heads, width);
    if (c.gate == Gate::head) {
        const TensorView& g = flow.gate;
        flow.gate = TensorView(g.data, g.dtype, {g.size(0), g.size(1), g.size(2)},
                               {g.stride(0), g.stride(1), g.stride(2)});
    }
}

void take_keys(const MhaConfig& c, Row& row, Flow& flow) {
    if (c.latent) {
        flow.latent = row.heads(1, latent_width(c));
    } else {
        flow.k = row.heads(c.kv_heads, c.head_dim);
    }
}

void lay_out_projections(const MhaConfig& c, const Call& call, Carver& carver, Flow& flow) {
    const std::int64_t q_width = first_width(c) + gate_width(c);
    const std::int64_t k_width = c.latent ? latent_width(c) : c.kv_heads * c.head_dim;
    const std::int64_t v_width = c.latent ? 0 : c.kv_heads * c.value_dim;
    if (call.self) {
        Row row{carver.take(c.dtype, {call.B, call.T, q_width + k_width + v_width})};
        flow.q_rows = flow.k_rows = flow.v_rows = row.rows;
        take_first(c, row, flow);
        take_keys(c, row, flow);
        if (!c.latent) flow.v = row.heads(c.kv_heads, c.value_dim);
        return;
    }
    Row q_row{carver.take(c.dtype, {call.B, call.T, q_width})};
    flow.q_rows = q_row.rows;
    take_first(c, q_row, flow);
    if (call.reads()) return;
    flow.fused_kv = call.one_kv && c.key_embed_dim == c.value_embed_dim;
    Row k_row{carver.take(c.dtype, {call.B, call.N, flow.fused_kv ? k_width + v_width : k_width})};
    flow.k_rows = flow.v_rows = k_row.rows;
    take_keys(c, k_row, flow);
    if (flow.fused_kv) {
        flow.v = k_row.heads(c.kv_heads, c.value_dim);
        return;
    }
    Row v_row{carver.take(c.dtype, {call.B, call.N, v_width})};
    flow.v_rows = v_row.rows;
    flow.v = v_row.heads(c.kv_heads, c.value_dim);
}

void lay_out_latent(const MhaConfig& c, const Call& call, Carver& carver, Flow& flow) {
    const LatentForms forms = latent_forms(c, call);
    // Scores are taken from what a cache holds, which is latents.
    const bool scores = call.options.cache != nullptr && !call.options.scores_to.empty();
    if (forms.absorbed || scores) {
        flow.absorbed_q = carver.take(c.dtype, {call.B, call.T, c.heads, latent_width(c)});
        flow.absorbed_out = carver.take(DType::f32, {call.B, call.T, c.heads, c.latent->kv_rank});
    }
    if (forms.naive && call.options.cache == nullptr) {
        Row row{carver.take(c.dtype, {call.B, call.N, c.heads * (c.head_dim + c.value_dim)})};
        flow.up_rows = row.rows;
        flow.k = row.heads(c.heads, c.head_dim);
        flow.v = row.heads(c.heads, c.value_dim);
    }
}

void lay_out_positions(const Block& block, const Call& call, Carver& carver, Flow& flow) {
    const bool cached = call.options.cache != nullptr;
    if (cached) flow.offsets = carver.take(DType::i64, {call.B});
    if (cached && block.config.rope && call.options.rope_positions.empty())
        flow.rope_offsets = carver.take(DType::i64, {call.B});
    if (block.config.temperature) flow.tau = carver.take(DType::f32, {call.B, call.T});
    const bool weights = !call.options.scores_to.empty() && call.options.scores.kind == ScoreKind::weights;
    flow.lse = call.options.lse;
    if (flow.lse.empty() && (weights || !block.extra_key.empty()))
        flow.lse = carver.take(DType::f32, {call.B, block.config.heads, call.T});
}

}  // namespace

std::size_t lay_out(const Block& block, const Call& call, std::byte* base, Flow& flow) {
    const MhaConfig& c = block.config;
    Carver carver(base);
    flow.x = call.x, flow.key = call.key, flow.value = call.value, flow.self = call.self;
    lay_out_projections(c, call, carver, flow);
    if (c.routing || (c.latent && c.latent->q_rank > 0)) {
        flow.q_up_rows = carver.take(c.dtype, {call.B, call.T, c.heads * c.head_dim});
        flow.q = split_heads(flow.q_up_rows, {0, c.heads, c.head_dim});
    }
    if (c.latent) lay_out_latent(c, call, carver, flow);
    const TensorView rows = carver.take(DType::f32, {call.B, call.T, c.heads * c.value_dim});
    flow.all_heads = split_heads(rows, {0, c.heads, c.value_dim});
    flow.merged_heads = flow.all_heads.slice(2, 0, merged_heads(c));
    flow.merged = rows.slice(2, 0, merged_width(c));
    lay_out_positions(block, call, carver, flow);
    return carver.bytes();
}

}  // namespace headwise
