// Telling what a run of the block did, from the addresses it used.
#include <headwise/trace.h>

#include "mha/cache_account.h"
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

    // The step before moved so many bytes besides.
    void copied(std::int64_t bytes) { trace_.steps.back().copied_bytes = bytes; }

    Trace take() { return std::move(trace_); }

private:
    Trace trace_;
};

struct Buffers {
    Buffer q, k, v, q_up, up, merged;
};

Buffers buffers_of(const Flow& flow) {
    const char* kv = flow.self ? "qkv" : flow.fused_kv ? "kv" : "k";
    return {.q = {flow.self ? "qkv" : "q", flow.q_rows},
            .k = {kv, flow.k_rows},
            .v = {flow.self || flow.fused_kv ? kv : "v", flow.v_rows},
            .q_up = {"q heads", flow.q_up_rows},
            .up = {"k, v heads", flow.up_rows},
            .merged = {"merged", flow.merged}};
}

// What one pass over x writes: "q, gate, k, v" and its axes.
struct Bands {
    std::string names, widths;

    void add(const char* name, const char* width) {
        names += (names.empty() ? "" : ", ") + std::string(name);
        widths += (widths.empty() ? "" : " + ") + std::string(width);
    }
};

Bands bands_of(const MhaConfig& c, bool keys) {
    Bands bands;
    if (c.routing) {
        bands.add("router", "X");
    } else if (c.latent && c.latent->q_rank > 0) {
        bands.add("q latent", "R_q");
    } else {
        bands.add("q", "H*D");
    }
    if (c.gate != Gate::none) bands.add("gate", c.gate == Gate::head ? "H" : "H*Dv");
    if (!keys) return bands;
    if (c.latent) {
        bands.add("latent", "R + R_rope");
    } else {
        bands.add("k", "G*D"), bands.add("v", "G*Dv");
    }
    return bands;
}

void record_projection(Recorder& recorder, const MhaConfig& c, const Flow& flow, const Buffers& at) {
    const Bands bands = bands_of(c, flow.self);
    const std::string name = "project " + bands.names, axes = "[B,T," + bands.widths + "]";
    if (flow.self) {
        recorder.computed(1, name, axes, flow.q_rows, at.q, "one pass over x writes the rows side by side");
        return;
    }
    recorder.computed(1, name, axes, flow.q_rows, at.q, "x through W_Q");
    if (flow.k_rows.empty()) return;
    if (flow.fused_kv) {
        recorder.computed(1, "project k, v", "[B,S,G*D + G*Dv]", flow.k_rows, at.k,
                          "one pass over the source of k and v");
        return;
    }
    recorder.computed(1, "project k", "[B,S,G*D]", flow.k_rows, at.k, "the key source through W_K");
    recorder.computed(1, "project v", "[B,S,G*Dv]", flow.v_rows, at.v, "the value source through W_V");
}

// Second projections of q: out of its latent, or by experts.
void record_q_up(Recorder& recorder, const MhaConfig& c, const Flow& flow, const Buffers& at) {
    if (!flow.q_latent.empty()) {
        recorder.viewed(2, "norm q latent", "[B,T,1,R_q]", flow.q_latent, at.q, "in place");
        recorder.computed(1, "project q", "[B,T,H*D]", flow.q_up_rows, at.q_up, "q out of its latent");
    }
    if (!c.routing) return;
    recorder.computed(1, "route q", "[B,T,H*D]", flow.q_up_rows, at.q_up,
                      "each token's top_k experts, which read their tokens one after the other");
    recorder.copied(c.routing->top_k * bytes_of(flow.x));
}

void record_heads(Recorder& recorder, const Flow& flow, const Buffers& at) {
    const Buffer& q = flow.q_up_rows.empty() ? at.q : at.q_up;
    recorder.viewed(2, "split q", "[B,T,H,D]", flow.q, q, "reshape: a band of D columns is a head");
    recorder.viewed(2, "transpose q", "[B,H,T,D]", flow.q.swap_axes(1, 2), q, "two strides change places");
    if (!flow.latent.empty()) {
        recorder.viewed(2, "split latent", "[B,S,1,R + R_rope]", flow.latent, at.k,
                        "one latent for k and v of all heads, then the key part that all heads share");
    }
    if (flow.k.empty() || !flow.latent.empty()) return;
    recorder.viewed(2, "split k", "[B,S,G,D]", flow.k, at.k, "the kv heads, each read by H/G query heads");
    recorder.viewed(2, "transpose k", "[B,G,S,D]", flow.k.swap_axes(1, 2), at.k, "two strides change places");
    recorder.viewed(2, "split v", "[B,S,G,Dv]", flow.v, at.v, "likewise");
    recorder.viewed(2, "transpose v", "[B,G,S,Dv]", flow.v.swap_axes(1, 2), at.v, "two strides change places");
}

// What changes the heads in place, in the order of the block.
void record_changes(Recorder& recorder, const Block& block, const Flow& flow, const Buffers& at) {
    const MhaConfig& c = block.config;
    const Buffer& q = flow.q_up_rows.empty() ? at.q : at.q_up;
    const bool keys = !flow.k.empty() && flow.latent.empty();
    const auto both = [&](const std::string& what, const std::string& note) {
        recorder.computed(2, what + " q", "[B,T,H,D]", flow.q, q, "in place: " + note);
        if (keys) recorder.computed(2, what + " k", "[B,S,G,D]", flow.k, at.k, "in place, once per kv head");
    };
    if (!flow.latent.empty()) {
        recorder.computed(2, "norm latent", "[B,S,1,R]", flow.latent.slice(3, 0, c.latent->kv_rank), at.k,
                          "in place");
    }
    if (c.clip_qkv > 0) both("clip", "to [-c, c], and v too");
    if (c.qk_norm && !c.qk_norm->after_rope) both("norm", "before the rotation");
    if (c.rope) {
        both("rotate", c.rope->pairs == Rope::Pairs::half_split ? "pairs (i, i + R/2) turn by position"
                                                                : "pairs (2i, 2i + 1) turn by position");
        if (!flow.latent.empty()) {
            const TensorView shared = flow.latent.slice(3, c.latent->kv_rank, c.latent->rope_dim);
            recorder.computed(2, "rotate k", "[B,S,1,R_rope]", shared, at.k, "in place, once for all heads");
        }
    }
    if (c.qk_norm && c.qk_norm->after_rope) both("norm", "after the rotation");
}

void record_attention(Recorder& recorder, const Block& block, const Flow& flow, const Buffers& at, bool cached) {
    const MhaConfig& c = block.config;
    if (cached && (!flow.k.empty() || !flow.latent.empty())) {
        const TensorView& kept = flow.latent.empty() ? flow.k : flow.latent;
        recorder.computed(2, "append", flow.latent.empty() ? "[B,S,G,D]" : "[B,S,1,R + R_rope]", kept, at.k,
                          "the cache takes the new keys and values in its own type; queries read them there");
    }
    const std::int64_t element = static_cast<std::int64_t>(size_of(c.dtype));
    if (!flow.up_rows.empty()) {
        recorder.computed(1, "expand k, v", "[B,S,H*D + H*Dv]", flow.up_rows, at.up,
                          "naive form: k and v of every head out of the latent; the shared part is repeated");
        recorder.copied(flow.up_rows.size(0) * flow.up_rows.size(1) * c.heads * c.latent->rope_dim * element);
    }
    if (!flow.absorbed_q.empty()) {
        recorder.computed(1, "absorb q", "[B,T,H,R + R_rope]", flow.absorbed_q, {"absorbed q", flow.absorbed_q},
                          "absorbed form: q goes into the latent space, so that keys stay latents");
        recorder.copied(flow.absorbed_q.size(0) * flow.absorbed_q.size(1) * c.heads * c.latent->rope_dim *
                        element);
        recorder.computed(3, "attend latents", "[B,T,H,R]", flow.absorbed_out, {"latent out", flow.absorbed_out},
                          "one key of R + R_rope numbers for all heads, whose first R are the value");
    }
    recorder.computed(3, "attend", "[B,T,H,Dv]", flow.all_heads, at.merged,
                      "every head writes its output straight into its own band; the [T,S] scores are never held");
    if (block.appended_keys() > 0) {
        recorder.computed(3, "join more keys", "[B,T,H,Dv]", flow.all_heads, at.merged,
                          "keys that every query sees: the extra key joins by its score, a zero key is a sink");
    }
}

void record_merge(Recorder& recorder, const MhaConfig& c, const Flow& flow, const Buffers& at) {
    if (!flow.gate.empty()) {
        recorder.computed(4, "gate", c.gate == Gate::head ? "[B,T,H]" : "[B,T,H,Dv]", flow.gate, at.q,
                          "its sigmoid multiplies the outputs in place");
    }
    if (c.difference)
        recorder.computed(4, "difference", "[B,T,H/2,Dv]", flow.merged_heads, at.merged,
                          "head h - lambda * head h + H/2, where head h stood");
    if (c.merged_norm)
        recorder.computed(4, "norm merged", "[B,T,M,Dv]", flow.merged_heads, at.merged, "in place, before W_O");
    recorder.viewed(4, "merge", c.difference ? "[B,T,H/2*Dv]" : "[B,T,H*Dv]", flow.merged,
                    {"merged", flow.all_heads}, "concat: the bands already lie side by side");
    if (c.routing) {
        recorder.computed(5, "route y", "[B,T,E]", flow.y, {"y", flow.y},
                          "the experts of each token, weighted by their gates, and one bias");
        return;
    }
    recorder.computed(5, "project y", "[B,T,E]", flow.y, {"y", flow.y},
                      "W_O; the same as adding up every head through its own slice of W_O");
}

}  // namespace

Trace trace(const MultiHeadAttention& block, const ConstTensorView& x, const ForwardOptions& options) {
    const MhaConfig& config = block.config();
    const Block& parts = *block.impl_;
    const bool batched = x.rank == 3;
    Tensor y = batched ? Tensor(config.dtype, {x.size(0), x.size(1), config.out_dim})
                       : Tensor(config.dtype, {x.rank == 2 ? x.size(0) : 0, config.out_dim});
    const Flow flow = run_block(parts, x, y, options);
    const Buffers buffers = buffers_of(flow);
    Recorder recorder;
    recorder.computed(0, "input", "[B,T,E]", flow.x, {"x", flow.x}, "the embedding");
    if (!flow.self && !flow.key.empty())
        recorder.computed(0, "key source", "[B,S,E_k]", flow.key, {"key", flow.key}, "cross attention");
    record_projection(recorder, config, flow, buffers);
    record_q_up(recorder, config, flow, buffers);
    record_heads(recorder, flow, buffers);
    record_changes(recorder, parts, flow, buffers);
    record_attention(recorder, parts, flow, buffers, options.cache != nullptr);
    record_merge(recorder, config, flow, buffers);
    Trace trace = recorder.take();
    trace.cache = cache_account(config, options.cache);
    trace.y = std::move(y);
    return trace;
}

}  // namespace headwise
