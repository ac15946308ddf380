// Stage 3 of a latent layer, in either form, with and without a cache.
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

}  // namespace

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

}  // namespace headwise
