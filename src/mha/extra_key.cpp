// The extra key (add_bias_kv): attention over the real keys is one part, the extra key is another. Its output is its value
// and its log-sum-exp is its score, so nothing of the masks has to know it, and caches hold real keys only.
#include "core/storage.h"
#include "mha/stages.h"

namespace headwise {
namespace {

// The extra key of every sequence: [B,1,G,D], the same memory for all.
ConstTensorView extra_key(const Block& block, std::int64_t batch) {
    const MhaConfig& c = block.config;
    return ConstTensorView(block.extra_key.view().data, c.dtype, {batch, 1, c.kv_heads, c.head_dim},
                           {0, c.kv_heads * c.head_dim, c.head_dim, 1});
}

}  // namespace

AttendInputs extra_key_inputs(const Block& block, const Call& call, const Flow& flow) {
    const ConstTensorView key = extra_key(block, call.B);
    return {.q = flow.q,
            .k = key,
            .v = key.slice(3, 0, 0),
            .scale = block.config.scale,
            .softcap = block.config.softcap,
            .tau = flow.tau};
}

void join_extra_key(const Block& block, const Call& call, const Flow& flow) {
    const MhaConfig& c = block.config;
    const Execution& execution = call.options.execution;
    const Scratch memory(static_cast<std::size_t>(call.B * c.heads * call.T) * sizeof(float));
    const TensorView score(memory.data(), DType::f32, {call.B, c.heads, call.T});
    const AttendInputs inputs = extra_key_inputs(block, call, flow);
    const TensorView nothing(flow.all_heads.data, DType::f32, {call.B, call.T, c.heads, 0});
    attend(*block.kernels, inputs, {.out = nothing, .lse = score}, execution);
    const ConstTensorView value(block.extra_value.view().data, DType::f32, {call.B, call.T, c.heads, c.value_dim},
                                {0, 0, c.value_dim, 1});
    const AttendPart parts[] = {{flow.all_heads, flow.lse}, {value, score}};
    merge(parts, {.out = flow.all_heads, .lse = flow.lse}, block.sinks, execution);
}

}  // namespace headwise
