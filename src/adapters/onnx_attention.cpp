// Attention: past and new keys joined where there is a past, then one call of attend().
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <headwise/attend.h>
#include <headwise/scores.h>

#include "adapters/onnx_checks.h"
#include "core/check.h"
#include "core/dtype.h"
#include "core/parallel.h"
#include "core/storage.h"

namespace headwise::onnx {
namespace {

template <class Data>
auto* row_of(const BasicView<Data>& x, std::int64_t b, std::int64_t t, std::int64_t n) {
    using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
    const std::int64_t at = b * x.stride(0) + t * x.stride(1) + n * x.stride(2);
    return static_cast<Byte*>(x.data) + at * static_cast<std::int64_t>(size_of(x.dtype));
}

// [B,P,G,D] and [B,L,G,D] into `to` [B,P+L,G,D]. Rows that already lie there stay.
void join(const ConstTensorView& past, const ConstTensorView& fresh, const TensorView& to,
          const Execution& execution) {
    const std::int64_t P = to.size(1) - fresh.size(1), G = to.size(2);
    const std::size_t row = static_cast<std::size_t>(to.size(3)) * size_of(to.dtype);
    if (row == 0) return;
    parallel_for(execution, to.size(0) * G, [&](std::int64_t task) {
        const std::int64_t b = task / G, g = task % G;
        for (std::int64_t t = 0; t < to.size(1); ++t) {
            const std::byte* from = t < P ? row_of(past, b, t, g) : row_of(fresh, b, t - P, g);
            std::byte* place = row_of(to, b, t, g);
            if (place != from) std::memcpy(place, from, row);
        }
    });
}

// Memory for joined keys that the caller did not ask for, heads outermost as the operator's caches are.
class Joined {
public:
    Joined(const AttentionShapes& s, const ConstTensorView& past, const ConstTensorView& fresh,
           const TensorView& present, const Execution& execution)
        : memory_(past.empty() || !present.empty() ? 0 : bytes(s, fresh)), view_(fresh) {
        if (past.empty() && present.empty()) return;
        TensorView to = present;
        if (to.empty()) {
            to = TensorView(memory_.data(), fresh.dtype, {s.B, s.G, s.keys(), fresh.size(3)}).swap_axes(1, 2);
        }
        join(past, fresh, to, execution);
        if (!past.empty()) view_ = to;
    }
    const ConstTensorView& view() const noexcept { return view_; }

private:
    static std::size_t bytes(const AttentionShapes& s, const ConstTensorView& fresh) {
        std::int64_t count = static_cast<std::int64_t>(size_of(fresh.dtype));
        for (const std::int64_t size : {s.B, s.G, s.keys(), fresh.size(3)}) {
            count = checked_multiply(count, size, "onnx::attention: past and new keys together");
        }
        return static_cast<std::size_t>(count);
    }

    Scratch memory_;
    ConstTensorView view_;
};

// A score of f32 (f64 for f64) as an element of the output.
void store_scores(const ConstTensorView& from, const TensorView& to, std::int64_t b, std::int64_t h,
                  std::int64_t i) {
    for (std::int64_t t = 0; t < from.size(3); ++t) {
        const std::int64_t at = b * from.stride(0) + i * from.stride(2) + t * from.stride(3);
        const std::int64_t place = b * to.stride(0) + h * to.stride(1) + i * to.stride(2) + t * to.stride(3);
        store_f64(to.data, to.dtype, place, load_f64(from.data, from.dtype, at));
    }
}

// One head at a time where the output has another type than scores are computed in: f32, or f64 for f64.
void write_scores(const AttendInputs& in, const ConstTensorView& lse, ScoreKind kind, const TensorView& to,
                  const Execution& execution) {
    const std::int64_t B = to.size(0), T = to.size(2), S = to.size(3);
    if (to.dtype == DType::f32 || to.dtype == DType::f64) {
        return attend_scores(in, lse, {.kind = kind}, to, execution);
    }
    const std::int64_t count = checked_multiply(checked_multiply(B, T, "scores"), S, "scores");
    const Scratch memory(static_cast<std::size_t>(checked_multiply(count, 4, "scores")));
    const TensorView head(memory.data(), DType::f32, {B, 1, T, S});
    for (std::int64_t h = 0; h < to.size(1); ++h) {
        attend_scores(in, lse, {.kind = kind, .first_head = h, .heads = 1}, head, execution);
        parallel_for(execution, B * T, [&](std::int64_t row) { store_scores(head, to, row / T, h, row % T); });
    }
}

void fill(const TensorView& to, double value) {
    for (std::int64_t b = 0; b < to.size(0); ++b)
        for (std::int64_t h = 0; h < to.size(1); ++h)
            for (std::int64_t i = 0; i < to.size(2); ++i)
                for (std::int64_t t = 0; t < to.size(3); ++t) {
                    const std::int64_t at =
                        b * to.stride(0) + h * to.stride(1) + i * to.stride(2) + t * to.stride(3);
                    store_f64(to.data, to.dtype, at, value);
                }
}

// Raw and capped scores of every key; masked ones and weights of the keys that the mask reaches, the rest is hidden.
void write_qk_matmul(const AttendInputs& all_keys, const AttendInputs& in, const ConstTensorView& lse, int mode,
                     const TensorView& to, const Execution& execution) {
    if (mode < 2) {
        AttendInputs bare = all_keys;
        bare.mask = {};
        return write_scores(bare, {}, mode == 0 ? ScoreKind::raw : ScoreKind::capped, to, execution);
    }
    const std::int64_t reach = in.k.size(1), S = to.size(3);
    write_scores(in, lse, mode == 2 ? ScoreKind::masked : ScoreKind::weights, to.slice(3, 0, reach), execution);
    fill(to.slice(3, reach, S - reach), mode == 2 ? -std::numeric_limits<double>::infinity() : 0);
}

}  // namespace

void attention(const AttentionInputs& inputs, const AttentionAttributes& a, const AttentionOutputs& outputs,
               const Execution& execution) {
    const AttentionShapes s = check_attention(inputs, a, outputs);
    const ConstTensorView& lengths = inputs.nonpad_kv_seqlen;
    // Row i stands at i + P behind a past, at the end of the valid keys of an outside cache, else at i.
    const Scratch offset_memory(static_cast<std::size_t>(s.B) * sizeof(std::int64_t));
    auto* offsets = offset_memory.data<std::int64_t>();
    for (std::int64_t b = 0; b < s.B; ++b) {
        offsets[b] = lengths.empty() ? s.past : integer_at(lengths, b) - s.T;
    }
    AttendInputs in{.q = s.q,
                    .k = s.k,
                    .v = s.v,
                    .mask = {.causal = a.is_causal,
                             .window_left = a.left_window_size,
                             .window_right = a.right_window_size,
                             .key_lengths = lengths},
                    .positions = Positions::at(ConstTensorView(offsets, DType::i64, {s.B})),
                    .scale = a.scale,
                    .softcap = std::abs(a.softcap)};
    const ConstTensorView& mask = inputs.attn_mask;
    if (!mask.empty()) (mask.dtype == DType::boolean ? in.mask.keep : in.mask.bias) = mask;

    const Joined keys(s, s.past_key, s.k, s.present_key, execution);
    const Joined values(s, s.past_value, s.v, s.present_value, execution);
    // Keys beyond a short mask are hidden from every row, so they are not passed at all.
    AttendInputs all_keys = in;
    all_keys.k = keys.view(), all_keys.v = values.view();
    const std::int64_t reach = mask_reach(inputs, a.opset, s.keys());
    in.k = keys.view().slice(1, 0, reach), in.v = values.view().slice(1, 0, reach);

    const bool weights = !s.scores.empty() && a.qk_matmul_output_mode == 3;
    const DType lse_type = s.q.dtype == DType::f64 ? DType::f64 : DType::f32;
    const Scratch lse_memory(weights ? static_cast<std::size_t>(s.B * s.H * s.T) * size_of(lse_type) : 0);
    const TensorView lse = weights ? TensorView(lse_memory.data(), lse_type, {s.B, s.H, s.T}) : TensorView{};
    attend(in, {.out = s.y, .lse = lse}, execution);
    if (!s.scores.empty()) write_qk_matmul(all_keys, in, lse, a.qk_matmul_output_mode, s.scores, execution);
}

}  // namespace headwise::onnx
