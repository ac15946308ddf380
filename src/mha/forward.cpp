// The whole block: project -> heads -> attend -> heads -> project.
#include "core/parallel.h"
#include "core/storage.h"
#include "mha/stages.h"

namespace headwise {

Flow run_block(const Block& block, const ConstTensorView& x, const TensorView& y, const ForwardOptions& options) {
    const Call call = check_call(block, x, y, options);
    thread_count(options.execution);  // throws here rather than between two stages
    Flow flow;
    const Scratch scratch(lay_out(block, call, nullptr, flow));
    lay_out(block, call, scratch.data(), flow);
    flow.y = with_batch(y);
    fill_positions(block, call, flow);
    check_attention(block, call, flow);

    project(block, flow, options.execution);
    prepare_heads(block, call, flow);
    attend_heads(block, call, flow);
    merge_and_project(block, flow, options.execution);
    return flow;
}

}  // namespace headwise
