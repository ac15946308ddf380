// Telling what a run of the block did, from the addresses it used.
#include <headwise/trace.h>

#include "mha/impl.h"
#include "mha/stages.h"

namespace headwise {
namespace {

struct Buffer {
    std::string name;
    ConstTensorView rows;
};

std::int64_t bytes_of(const ConstTensorView& view) {
    return view.count() * static_cast<std::int64_t>(size_of(view.dtype));
}

// Bytes from the start of `buffer` to the view; negative or beyond the end if the view lies elsewhere.
std::int64_t distance(const ConstTensorView& view, const Buffer& buffer) {
    return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(view.data) -
                                     reinterpret_cast<std::intptr_t>(buffer.rows.data));
}

// What had to be moved so that `view` could exist: nothing if all of it lies inside the buffer that the stage before
// wrote, everything otherwise.
std::int64_t copied_bytes(const ConstTensorView& view, const Buffer& buffer) {
    if (view.count() == 0) return 0;
    std::int64_t last = 0;
    for (int axis = 0; axis < view.rank; ++axis) last += (view.size(axis) - 1) * view.stride(axis);
    const std::int64_t begin = distance(view, buffer);
    const std::int64_t end = begin + (last + 1) * static_cast<std::int64_t>(size_of(view.dtype));
    return begin >= 0 && end <= bytes_of(buffer.rows) ? 0 : bytes_of(view);
}

class Recorder {
public:
    // A stage that computes `view` (nothing is moved only to change a layout).
    void computed(int stage, std::string name, std::string axes, const ConstTensorView& view, const Buffer& buffer,
                  std::string note) {
        trace_.steps.push_back({.stage = stage,
                                .name = std::move(name),
                                .axes = std::move(axes),
                                .view = view,
                                .buffer = buffer.name,
                                .offset = distance(view, buffer),
                                .bytes = bytes_of(view),
                                .copied_bytes = 0,
                                .note = std::move(note)});
    }

    // A stage that looks at what an earlier stage wrote into `buffer`.
    void viewed(int stage, std::string name, std::string axes, const ConstTensorView& view, const Buffer& buffer,
                std::string note) {
        computed(stage, std::move(name), std::move(axes), view, buffer, std::move(note));
        trace_.steps.back().copied_bytes = copied_bytes(view, buffer);
        trace_.split_merge_copied_bytes += trace_.steps.back().copied_bytes;
    }

    Trace take() { return std::move(trace_); }

private:
    Trace trace_;
};

void record_projection(Recorder& recorder, const Flow& flow, const Buffer& q, const Buffer& k, const Buffer& v) {
    if (flow.self) {
        recorder.computed(1, "project q, k, v", "[B,T,H*D + G*D + G*Dv]", flow.q_rows, q,
                          "one pass over x writes the rows of q, k and v side by side");
        return;
    }
    recorder.computed(1, "project q", "[B,T,H*D]", flow.q_rows, q, "x through W_Q");
    if (flow.fused_kv) {
        recorder.computed(1, "project k, v", "[B,S,G*D + G*Dv]", flow.k_rows, k,
                          "one pass over the source of k and v");
        return;
    }
    recorder.computed(1, "project k", "[B,S,G*D]", flow.k_rows, k, "the key source through W_K");
    recorder.computed(1, "project v", "[B,S,G*Dv]", flow.v_rows, v, "the value source through W_V");
}

void record_heads(Recorder& recorder, const Flow& flow, const Buffer& q, const Buffer& k, const Buffer& v) {
    recorder.viewed(2, "split q", "[B,T,H,D]", flow.q, q, "reshape: a band of D columns is a head");
    recorder.viewed(2, "transpose q", "[B,H,T,D]", flow.q.swap_axes(1, 2), q, "two strides change places");
    recorder.viewed(2, "split k", "[B,S,G,D]", flow.k, k, "the kv heads, each read by H/G query heads");
    recorder.viewed(2, "transpose k", "[B,G,S,D]", flow.k.swap_axes(1, 2), k, "two strides change places");
    recorder.viewed(2, "split v", "[B,S,G,Dv]", flow.v, v, "likewise");
    recorder.viewed(2, "transpose v", "[B,G,S,Dv]", flow.v.swap_axes(1, 2), v, "two strides change places");
}

}  // namespace

Trace trace(const MultiHeadAttention& block, const ConstTensorView& x, const ForwardOptions& options) {
    const MhaConfig& config = block.config();
    const bool batched = x.rank == 3;
    Tensor y = batched ? Tensor(config.dtype, {x.size(0), x.size(1), config.out_dim})
                       : Tensor(config.dtype, {x.rank == 2 ? x.size(0) : 0, config.out_dim});
    const Flow flow = run_block(*block.impl_, x, y, options);

    const Buffer q{flow.self ? "qkv" : "q", flow.q_rows}, k{flow.self       ? "qkv"
                                                            : flow.fused_kv ? "kv"
                                                                            : "k",
                                                            flow.k_rows};
    const Buffer v{flow.self ? "qkv" : flow.fused_kv ? "kv" : "v", flow.v_rows};
    const Buffer merged{"merged", flow.merged};
    Recorder recorder;
    recorder.computed(0, "input", "[B,T,E]", flow.x, {"x", flow.x}, "the embedding");
    if (!flow.self)
        recorder.computed(0, "key source", "[B,S,E_k]", flow.key, {"key", flow.key}, "cross attention");
    record_projection(recorder, flow, q, k, v);
    record_heads(recorder, flow, q, k, v);
    if (config.rope) {
        recorder.computed(2, "rotate q", "[B,T,H,D]", flow.q, q, "in place: pairs (i, i + D/2) turn by position");
        recorder.computed(2, "rotate k", "[B,S,G,D]", flow.k, k, "in place, once per kv head");
    }
    recorder.computed(3, "attend", "[B,T,H,Dv]", flow.merged_heads, merged,
                      "every head writes its output straight into its own band; the [T,S] scores are never held");
    recorder.viewed(4, "merge", "[B,T,H*Dv]", flow.merged, {"merged", flow.merged_heads},
                    "concat: the bands already lie side by side");
    recorder.computed(5, "project y", "[B,T,E]", flow.y, {"y", flow.y},
                      "W_O; the same as adding up every head through its own slice of W_O");
    Trace trace = recorder.take();
    trace.y = std::move(y);
    return trace;
}

}  // namespace headwise
