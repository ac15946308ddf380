// Stage 3: which inputs attend() gets, for every kind of layer.
#include <cmath>

#include "core/storage.h"
#include "heads/bands.h"
#include "heads/kv_cache.h"
#include "mha/cached.h"
#include "mha/latent.h"
#include "mha/stages.h"
#include "mha/widths.h"

namespace headwise {
namespace {

// One sequence of everything that has a batch axis; axes of size 1 serve all.
ConstTensorView sequence(const ConstTensorView& view, int rank, std::int64_t b) {
    const bool own = !view.empty() && view.rank == rank && view.size(0) > 1;
    return own ? view.slice(0, b, 1) : view;
}

Mask mask_of(const Mask& mask, std::int64_t b) {
    Mask own = mask;
    own.chunk_origins = sequence(mask.chunk_origins, 1, b), own.key_starts = sequence(mask.key_starts, 1, b);
    own.key_lengths = sequence(mask.key_lengths, 1, b);
    own.blocks.counts = sequence(mask.blocks.counts, 3, b), own.blocks.blocks = sequence(mask.blocks.blocks, 4, b);
    own.keep = sequence(mask.keep, 4, b), own.bias = sequence(mask.bias, 4, b);
    return own;
}

// One sequence of a latent layer in the naive form over what the cache holds.
void attend_expanded(const Block& block, const Call& call, const AttendInputs& all, const AttendOutputs& outputs,
                     std::int64_t b) {
    const MhaConfig& c = block.config;
    const Execution& execution = call.options.execution;
    const std::int64_t keys = call.options.cache->length(b);
    const Tensor latents = call.options.cache->keys(b, 0, keys);  // [keys,1,W]
    Tensor rows(c.dtype, {1, keys, c.heads * (c.head_dim + c.value_dim)});
    const ConstTensorView batch(latents.view().data, DType::f32, {1, keys, 1, latent_width(c)});
    expand_latents(block, batch, rows, execution);
    AttendInputs in = all;
    in.cache = nullptr;
    in.q = all.q.slice(0, b, 1);
    in.k = split_heads(rows.view(), {0, c.heads, c.head_dim});
    in.v = split_heads(rows.view(), {c.heads * c.head_dim, c.heads, c.value_dim});
    in.mask = mask_of(all.mask, b);
    in.positions = Positions::at(all.positions.offsets.slice(0, b, 1));
    in.tau = sequence(all.tau, 2, b);
    AttendOutputs out{.out = outputs.out.slice(0, b, 1)};
    if (!outputs.lse.empty()) out.lse = outputs.lse.slice(0, b, 1);
    attend(*block.kernels, in, out, execution);
}

// All sequences in the absorbed form: one key of width kv_rank + rope_dim for all heads, whose first part is the value.
void attend_absorbed(const Block& block, const Call& call, const Flow& flow, AttendInputs in,
                     const AttendOutputs& outputs) {
    const Execution& execution = call.options.execution;
    absorb_queries(block, flow, execution);
    in.q = flow.absorbed_q;
    const AttendOutputs out{.out = flow.absorbed_out, .lse = outputs.lse};
    if (call.appends()) {
        const TensorView value = flow.latent.slice(3, 0, block.config.latent->kv_rank);
        append_and_attend(block, call, in, out, {.k = flow.latent, .v = {}, .attended_v = value});
    } else {
        if (call.options.cache == nullptr)
            in.k = flow.latent, in.v = flow.latent.slice(3, 0, block.config.latent->kv_rank);
        attend(*block.kernels, in, out, execution);
    }
    expand_outputs(block, flow, execution);
}

void attend_latent(const Block& block, const Call& call, const Flow& flow, const AttendInputs& in,
                   const AttendOutputs& out) {
    const LatentForms forms = latent_forms(block.config, call);
    const Execution& execution = call.options.execution;
    if (call.options.cache == nullptr && forms.naive) {
        expand_latents(block, flow.latent, flow.up_rows, execution);
        return attend(*block.kernels, in, out, execution);
    }
    // Which sequences are naive is asked before the append, which makes them longer.
    const Scratch memory(static_cast<std::size_t>(call.B));
    bool* naive = memory.data<bool>();
    for (std::int64_t b = 0; b < call.B; ++b) naive[b] = !latent_absorbed(block.config, call, b);
    if (forms.absorbed) {
        attend_absorbed(block, call, flow, in, out);
    } else if (call.appends()) {
        call.options.cache->impl().append(*block.kernels, flow.latent, {}, call.options.counts, execution);
    }
    for (std::int64_t b = 0; b < call.B; ++b)
        if (naive[b]) attend_expanded(block, call, in, out, b);
}

}  // namespace

AttendInputs attend_inputs(const Block& block, const Call& call, const Flow& flow) {
    const MhaConfig& c = block.config;
    AttendInputs in;
    in.q = flow.q;
    if (call.options.cache == nullptr) in.k = flow.k, in.v = flow.v;
    in.mask = call.mask;
    in.positions = call.options.cache != nullptr ? Positions::at(flow.offsets) : call.options.positions;
    in.scale = c.latent && !c.scale ? 1 / std::sqrt(static_cast<double>(c.head_dim)) : c.scale;
    in.softcap = c.softcap;
    in.tau = flow.tau;
    in.alibi_slopes = block.alibi_slopes;
    if (c.relative_bias) in.distance_bias = {block.distance_table, first_distance(*c.relative_bias)};
    in.dropout = call.options.dropout;
    in.cache = call.options.cache;
    if (block.extra_key.empty()) in.sinks = block.sinks;
    return in;
}

// Keys of a cache that is still to be appended to, or of a latent, are checked by their shape: any memory stands for them.
void check_attention(const Block& block, const Call& call, const Flow& flow) {
    const MhaConfig& c = block.config;
    AttendInputs in = attend_inputs(block, call, flow);
    const TensorView& heads = flow.all_heads;
    if (call.reads()) {
        const KvCacheConfig& has = call.options.cache->config();
        in.q = ConstTensorView(heads.data, c.dtype, {call.B, call.T, c.heads, has.key_dim}, {0, 0, 0, 1});
        const TensorView out(heads.data, DType::f32, {call.B, call.T, c.heads, has.value_dim});
        return check_attend(in, {.out = out, .lse = call.options.lse});
    }
    if (in.k.empty()) {
        in.cache = nullptr;
        in.k = ConstTensorView(heads.data, c.dtype, {call.B, call.S, c.kv_heads, c.head_dim}, {0, 0, 0, 1});
        in.v = ConstTensorView(heads.data, c.dtype, {call.B, call.S, c.kv_heads, c.value_dim}, {0, 0, 0, 1});
    }
    check_attend(in, {.out = heads, .lse = call.options.lse});
}

void attend_heads(const Block& block, const Call& call, const Flow& flow) {
    const AttendInputs in = attend_inputs(block, call, flow);
    const Execution& execution = call.options.execution;
    const AttendOutputs out{.out = flow.all_heads, .lse = flow.lse};
    if (block.latent) {
        attend_latent(block, call, flow, in, out);
    } else if (call.appends()) {
        append_and_attend(block, call, in, out, {.k = flow.k, .v = flow.v, .attended_v = flow.v});
    } else {
        attend(*block.kernels, in, out, execution);
    }
}

}  // namespace headwise
