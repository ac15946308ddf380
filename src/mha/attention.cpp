// Stage 3: which inputs attend() gets, for every kind of layer.
#include <cmath>

#include "mha/latent.h"
#include "mha/stages.h"
#include "mha/widths.h"

namespace headwise {
namespace {

// All sequences in the absorbed form: one key of width kv_rank + rope_dim for all heads, whose first part is the value.
void attend_absorbed(const Block& block, const Call& call, const Flow& flow, AttendInputs in,
                     const AttendOutputs& outputs) {
    const Execution& execution = call.options.execution;
    absorb_queries(block, flow, execution);
    in.q = flow.absorbed_q;
    const AttendOutputs out{.out = flow.absorbed_out, .lse = outputs.lse};
    in.k = flow.latent, in.v = flow.latent.slice(3, 0, block.config.latent->kv_rank);
    attend(*block.kernels, in, out, execution);
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
    attend_absorbed(block, call, flow, in, out);
}

}  // namespace

AttendInputs attend_inputs(const Block& block, const Call& call, const Flow& flow) {
    const MhaConfig& c = block.config;
    AttendInputs in;
    in.q = flow.q, in.k = flow.k, in.v = flow.v;
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

void check_attention(const Block& block, const Call& call, const Flow& flow) {
    AttendInputs in = attend_inputs(block, call, flow);
    if (in.k.empty() || in.cache != nullptr) {
        // Keys that a cache or a latent will have: checked for their shape alone, so any memory stands for them.
        const MhaConfig& c = block.config;
        in.cache = nullptr;
        in.k =
            ConstTensorView(flow.all_heads.data, c.dtype, {call.B, call.S, c.kv_heads, c.head_dim}, {0, 0, 0, 1});
        in.v =
            ConstTensorView(flow.all_heads.data, c.dtype, {call.B, call.S, c.kv_heads, c.value_dim}, {0, 0, 0, 1});
    }
    check_attend(in, {.out = flow.all_heads, .lse = call.options.lse});
}

void attend_heads(const Block& block, const Call& call, const Flow& flow) {
    const AttendInputs in = attend_inputs(block, call, flow);
    const Execution& execution = call.options.execution;
    const AttendOutputs out{.out = flow.all_heads, .lse = flow.lse};
    if (block.latent) {
        attend_latent(block, call, flow, in, out);
    } else {
        attend(*block.kernels, in, out, execution);
    }
}

}  // namespace headwise
