// Stage 3: which inputs attend() gets, for every kind of layer.
#include <cmath>

#include "mha/cached.h"
#include "mha/stages.h"

namespace headwise {

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
    if (!block.extra_key.empty()) join_extra_key(block, call, flow);
    if (!call.options.scores_to.empty()) write_scores(block, call, flow, in);
}

}  // namespace headwise
