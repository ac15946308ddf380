// The whole block: project -> heads -> attend -> heads -> project.
#include <headwise/mha.h>

#include "attend/attend.h"
#include "core/check.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "heads/bands.h"
#include "kernels/dispatch.h"
#include "kernels/storage_of.h"
#include "mha/impl.h"

namespace headwise {
namespace {

void check_weight(const ConstTensorView& weight, const char* name, std::int64_t rows, std::int64_t columns) {
    check(weight.rank == 2 && weight.size(0) == rows && weight.size(1) == columns && has_storage(weight.dtype),
          "MhaWeights: ", name, " is ", weight, ", expected f32, bf16 or f16 [", rows, ", ", columns, "]");
}

void check_bias(const ConstTensorView& bias, const char* name, std::int64_t rows) {
    check(bias.empty() || (bias.rank == 1 && bias.size(0) == rows && has_storage(bias.dtype)),
          "MhaWeights: ", name, " is ", bias, ", expected f32, bf16 or f16 [", rows, "] or nothing");
}

void check_weights(const MhaConfig& c, const MhaWeights& w) {
    check_weight(w.q, "q", c.heads * c.head_dim, c.embed_dim);
    check_weight(w.k, "k", c.kv_heads * c.head_dim, c.key_embed_dim);
    check_weight(w.v, "v", c.kv_heads * c.value_dim, c.value_embed_dim);
    check_weight(w.o, "o", c.out_dim, c.heads * c.value_dim);
    check_bias(w.q_bias, "q_bias", c.heads * c.head_dim);
    check_bias(w.k_bias, "k_bias", c.kv_heads * c.head_dim);
    check_bias(w.v_bias, "v_bias", c.kv_heads * c.value_dim);
    check_bias(w.o_bias, "o_bias", c.out_dim);
}

// [T,E] is one sequence.
template <class View>
View with_batch(const View& view) {
    return view.rank == 2 ? view.split_axis(0, 1, view.size(0)) : view;
}

void check_rows(const ConstTensorView& view, const char* name, std::int64_t width) {
    check((view.rank == 2 || view.rank == 3) && has_storage(view.dtype), "forward: ", name, " is ", view,
          ", expected f32, bf16 or f16 [B, tokens, ", width, "]");
    check(view.size(view.rank - 1) == width, "forward: ", name, " has width ", view.size(view.rank - 1),
          ", the layer expects ", width);
    check(width <= 1 || view.stride(view.rank - 1) == 1, "forward: the innermost stride of ", name, " is ",
          view.stride(view.rank - 1), ", expected 1; copy it with convert() first");
}

void check_rope_positions(const ConstTensorView& positions, std::int64_t batch, std::int64_t tokens) {
    if (positions.empty()) return;
    const bool integral = positions.dtype == DType::i32 || positions.dtype == DType::i64;
    const bool fits = positions.rank == 2 ? positions.size(0) == batch && positions.size(1) == tokens
                                          : positions.rank == 1 && positions.size(0) == tokens;
    check(integral && fits, "forward: rope_positions are ", positions, ", expected i32 or i64 [", batch, ", ",
          tokens, "] or [", tokens, "]");
}

struct Sources {
    ConstTensorView x, key, value;  // [B,T,E], [B,S,...], [B,S,...]
    bool self = false;              // key and value were not given
    bool one_kv = false;            // value was not given: it is read from the source of k
};

Sources check_sources(const MhaConfig& c, const ConstTensorView& x, const ForwardOptions& options) {
    Sources s;
    check_rows(x, "x", c.embed_dim);
    s.x = with_batch(x);
    s.self = options.key.empty() && options.value.empty();
    s.one_kv = options.value.empty();
    check(!options.key.empty() || options.value.empty(), "forward: a value source needs a key source");
    check(!s.self || (c.key_embed_dim == c.embed_dim && c.value_embed_dim == c.embed_dim),
          "forward: this layer projects keys from width ", c.key_embed_dim, " and values from width ",
          c.value_embed_dim, ", x has ", c.embed_dim, "; pass ForwardOptions::key (and value)");
    const ConstTensorView& key = s.self ? x : options.key;
    const ConstTensorView& value = s.one_kv ? key : options.value;
    check_rows(key, "key", c.key_embed_dim);
    check_rows(value, "value", c.value_embed_dim);
    s.key = with_batch(key);
    s.value = with_batch(value);
    check(s.key.size(0) == s.x.size(0) && s.value.size(0) == s.x.size(0), "forward: batch sizes differ: x ",
          s.x.size(0), ", key ", s.key.size(0), ", value ", s.value.size(0));
    check(s.key.size(1) == s.value.size(1), "forward: key has ", s.key.size(1), " tokens, value ",
          s.value.size(1));
    check(!c.rope || s.self,
          "forward: a layer with rope turns q and k by the positions of x; a separate key source "
          "has none");
    check_rope_positions(options.rope_positions, s.x.size(0), s.x.size(1));
    return s;
}

void check_output(const MhaConfig& c, const ConstTensorView& x, const TensorView& y) {
    check(y.rank == x.rank, "forward: y is ", y, ", expected the rank of x, ", x.rank);
    check_rows(y, "y", c.out_dim);
    const TensorView rows = with_batch(y);
    const ConstTensorView given = with_batch(x);
    check(rows.size(0) == given.size(0) && rows.size(1) == given.size(1), "forward: y is ", y, ", expected [",
          given.size(0), ", ", given.size(1), ", ", c.out_dim, "]");
}

Rows rows_of(const ConstTensorView& view) {
    return {.data = view.data,
            .dtype = view.dtype,
            .batches = view.size(0),
            .rows = view.size(1),
            .batch_stride = view.stride(0),
            .row_stride = view.stride(1)};
}

OutRows rows_of(const TensorView& view) {
    return {.data = view.data,
            .dtype = view.dtype,
            .batches = view.size(0),
            .rows = view.size(1),
            .batch_stride = view.stride(0),
            .row_stride = view.stride(1)};
}

// Hands out row-major [B, tokens, width] pieces of one block of scratch.
class Carver {
public:
    TensorView take(DType dtype, std::int64_t batch, std::int64_t tokens, std::int64_t width) {
        const TensorView view(base_ == nullptr ? nullptr : base_ + used_, dtype, {batch, tokens, width});
        const std::int64_t bytes =
            checked_multiply(view.count(), static_cast<std::int64_t>(size_of(dtype)), "forward");
        used_ += (bytes + kPad - 1) / kPad * kPad;
        return view;
    }
    void start(std::byte* base) { base_ = base, used_ = 0; }
    std::size_t bytes() const { return static_cast<std::size_t>(used_); }

private:
    static constexpr std::int64_t kPad = kAlignment;
    std::byte* base_ = nullptr;
    std::int64_t used_ = 0;
};

}  // namespace

MultiHeadAttention::Impl::Impl(const MhaConfig& given, const MhaWeights& weights)
    : config(resolve(given)), kernels(&headwise::kernels()) {
    check_weights(config, weights);
    const LinearBand bands[] = {
        {weights.q, weights.q_bias}, {weights.k, weights.k_bias}, {weights.v, weights.v_bias}};
    // Projections whose sources have one width share a buffer of panels: self attention then runs all three in one pass,
    // cross attention k and v in one.
    std::vector<LinearBand> shared;
    const std::int64_t widths[] = {config.embed_dim, config.key_embed_dim, config.value_embed_dim};
    Projection* projections[] = {&q, &k, &v};
    for (std::size_t i = 0; i < 3; ++i) {
        shared.push_back(bands[i]);
        *projections[i] = {inputs.size(), static_cast<int>(shared.size()) - 1};
        if (i == 2 || widths[i + 1] != widths[i]) {
            inputs.emplace_back(*kernels, shared, config.dtype);
            shared.clear();
        }
    }
    const LinearBand out[] = {{weights.o, weights.o_bias}};
    output.emplace(*kernels, out, config.dtype);
    if (config.rope) rope.emplace(*config.rope, config.head_dim, "MhaConfig");
}

namespace {

// Lays the buffers of one run into scratch; called twice, first to learn the size.
Flow lay_out(const MhaConfig& c, const Sources& s, Carver& carver) {
    const std::int64_t batch = s.x.size(0), queries = s.x.size(1), keys = s.key.size(1);
    const BandGroup q = {0, c.heads, c.head_dim}, k = {0, c.kv_heads, c.head_dim},
                    v = {0, c.kv_heads, c.value_dim};
    const std::int64_t q_width = q.count * q.width, k_width = k.count * k.width, v_width = v.count * v.width;
    Flow flow;
    flow.self = s.self;
    flow.x = s.x, flow.key = s.key, flow.value = s.value;
    flow.fused_kv = s.one_kv && c.key_embed_dim == c.value_embed_dim;
    BandGroup k_band = k, v_band = v;
    if (s.self) {
        flow.q_rows = flow.k_rows = flow.v_rows =
            carver.take(c.dtype, batch, queries, q_width + k_width + v_width);
        k_band.offset = q_width;
        v_band.offset = q_width + k_width;
    } else {
        flow.q_rows = carver.take(c.dtype, batch, queries, q_width);
        flow.k_rows = carver.take(c.dtype, batch, keys, flow.fused_kv ? k_width + v_width : k_width);
        flow.v_rows = flow.fused_kv ? flow.k_rows : carver.take(c.dtype, batch, keys, v_width);
        if (flow.fused_kv) v_band.offset = k_width;
    }
    flow.q = split_heads(flow.q_rows, q);
    flow.k = split_heads(flow.k_rows, k_band);
    flow.v = split_heads(flow.v_rows, v_band);
    flow.merged = carver.take(DType::f32, batch, queries, c.heads * c.value_dim);
    flow.merged_heads = split_heads(flow.merged, {0, c.heads, c.value_dim});
    return flow;
}

}  // namespace

Flow MultiHeadAttention::Impl::run(const ConstTensorView& x, const TensorView& y,
                                   const ForwardOptions& options) const {
    const Sources sources = check_sources(config, x, options);
    check_output(config, x, y);
    thread_count(options.execution);  // throws here rather than between two stages
    Carver carver;
    lay_out(config, sources, carver);
    AttendInputs inputs_to_attend;
    inputs_to_attend.mask = config.mask & options.mask;
    inputs_to_attend.positions = options.positions;
    inputs_to_attend.scale = config.scale;

    const Scratch scratch(carver.bytes());
    carver.start(scratch.data());
    Flow flow = lay_out(config, sources, carver);
    flow.y = with_batch(y);
    inputs_to_attend.q = flow.q, inputs_to_attend.k = flow.k, inputs_to_attend.v = flow.v;
    check_attend(inputs_to_attend, {.out = flow.merged_heads, .lse = options.lse});

    const Execution& execution = options.execution;
    if (flow.self) {
        inputs[q.linear].run(rows_of(flow.x), rows_of(flow.q_rows), execution);
    } else {
        inputs[q.linear].run(rows_of(flow.x), rows_of(flow.q_rows), execution, q.band, 1);
        inputs[k.linear].run(rows_of(flow.key), rows_of(flow.k_rows), execution, k.band, flow.fused_kv ? 2 : 1);
        if (!flow.fused_kv) inputs[v.linear].run(rows_of(flow.value), rows_of(flow.v_rows), execution, v.band, 1);
    }
    if (rope) {
        rotate(*kernels, flow.q, *rope, {.given = options.rope_positions}, execution);
        rotate(*kernels, flow.k, *rope, {.given = options.rope_positions}, execution);
    }
    attend(*kernels, inputs_to_attend, {.out = flow.merged_heads, .lse = options.lse}, execution);
    output->run(rows_of(ConstTensorView(flow.merged)), rows_of(flow.y), execution);
    return flow;
}

MultiHeadAttention::MultiHeadAttention(const MhaConfig& config, const MhaWeights& weights)
    : impl_(std::make_unique<Impl>(config, weights)) {}
MultiHeadAttention::~MultiHeadAttention() = default;
MultiHeadAttention::MultiHeadAttention(MultiHeadAttention&&) noexcept = default;
MultiHeadAttention& MultiHeadAttention::operator=(MultiHeadAttention&&) noexcept = default;

const MhaConfig& MultiHeadAttention::config() const noexcept { return impl_->config; }

std::int64_t MultiHeadAttention::weight_bytes() const noexcept {
    std::int64_t bytes = impl_->output->bytes();
    for (const PackedLinear& linear : impl_->inputs) bytes += linear.bytes();
    return bytes;
}

void MultiHeadAttention::forward(const ConstTensorView& x, const TensorView& y,
                                 const ForwardOptions& options) const {
    impl_->run(x, y, options);
}

Tensor MultiHeadAttention::forward(const ConstTensorView& x, const ForwardOptions& options) const {
    check_rows(x, "x", impl_->config.embed_dim);
    Tensor y = x.rank == 2 ? Tensor(impl_->config.dtype, {x.size(0), impl_->config.out_dim})
                           : Tensor(impl_->config.dtype, {x.size(0), x.size(1), impl_->config.out_dim});
    impl_->run(x, y, options);
    return y;
}

}  // namespace headwise
