// Stage 1: the projections of x and of the sources of k and v, as few passes as their sources allow.
#include "mha/rows.h"
#include "mha/stages.h"

namespace headwise {

void project(const Block& block, const Flow& flow, const Execution& execution) {
    const Projection &first = block.first, &k = block.k, &v = block.v;
    if (flow.self) {
        return block.inputs[first.linear].run(rows_of(flow.x), out_rows_of(flow.q_rows), execution);
    }
    const int from_x = block.config.gate == Gate::none ? 1 : 2;
    block.inputs[first.linear].run(rows_of(flow.x), out_rows_of(flow.q_rows), execution, first.band, from_x);
    if (flow.k_rows.empty()) return;  // keys and values are only read
    block.inputs[k.linear].run(rows_of(flow.key), out_rows_of(flow.k_rows), execution, k.band,
                               flow.fused_kv ? 2 : 1);
    if (!flow.fused_kv)
        block.inputs[v.linear].run(rows_of(flow.value), out_rows_of(flow.v_rows), execution, v.band, 1);
}

}  // namespace headwise
