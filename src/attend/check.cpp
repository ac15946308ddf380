// Every rule about what attend() accepts. Below it shapes are trusted.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attend/attend.h"
#include "attend/check_views.h"
#include "attend/key_source.h"
#include "attend/mask.h"
#include "core/check.h"
#include "core/dtype.h"

namespace headwise {
namespace {

void check_inputs(const AttendInputs& in) {
    check_heads(in.q, "q", "[B,T,H,D]");
    check(is_float(in.q.dtype), "attend: q is ", in.q, " but must be f32, bf16, f16 or f64");
    check(in.q.size(3) > 0, "attend: q is ", in.q, "; D = 0 leaves nothing to score by");
    check_keys(in);
    if (!in.scale) return;
    check(std::isfinite(*in.scale), "attend: scale is ", *in.scale, " but must be finite");
    check(in.q.dtype == DType::f64 || std::abs(*in.scale) <= std::numeric_limits<float>::max(), "attend: scale ",
          *in.scale, " is beyond the range of f32");
}

void check_outputs(const AttendInputs& in, const AttendOutputs& out) {
    const std::int64_t B = in.q.size(0), T = in.q.size(1), H = in.q.size(2);
    check_heads(out.out, "out", "[B,T,H,Dv]");
    check(out.out.dtype == DType::f32 || out.out.dtype == in.q.dtype, "attend: out is ", out.out,
          " but must be f32 or ", in.q.dtype, " like q");
    check_size(out.out, 0, B, "out", "B");
    check_size(out.out, 1, T, "out", "T");
    check_size(out.out, 2, H, "out", "H");
    check_size(out.out, 3, key_shape(in).Dv, "out", "Dv");
    for (int axis = 0; axis < 3; ++axis) {
        check(out.out.count() == 0 || out.out.size(axis) <= 1 || out.out.stride(axis) != 0, "attend: out is ",
              out.out, "; a stride of 0 would write several rows to one place");
    }
    if (out.lse.empty()) return;
    check_rank(out.lse, 3, "lse", "[B,H,T]");
    const DType expected = in.q.dtype == DType::f64 ? DType::f64 : DType::f32;
    check(out.lse.dtype == expected, "attend: lse is ", out.lse, " but must be ", expected);
    check_size(out.lse, 0, B, "lse", "B");
    check_size(out.lse, 1, H, "lse", "H");
    check_size(out.lse, 2, T, "lse", "T");
}

void check_per_sequence(const ConstTensorView& view, std::int64_t B, const char* where, const char* name) {
    check(view.rank == 1 && view.size(0) == B && (view.dtype == DType::i32 || view.dtype == DType::i64), where,
          ": ", name, " is ", view, " but must be i32 or i64 [B] = [", B, "]");
    check_extent(view, where, name);
}

void check_broadcast(const ConstTensorView& view, const ScoreShape& shape, const char* where, const char* name) {
    const std::int64_t sizes[4] = {shape.B, shape.H, shape.T, shape.S};
    bool fits = view.rank <= 4;
    for (int axis = 0; fits && axis < view.rank; ++axis) {
        fits = view.size(axis) == 1 || view.size(axis) == sizes[4 - view.rank + axis];
    }
    check(fits, where, ": ", name, " is ", view, ", which does not broadcast to [B,H,T,S] = [", shape.B, ", ",
          shape.H, ", ", shape.T, ", ", shape.S, "]; axes are aligned from the right and may be 1");
    check_extent(view, where, name);
}

}  // namespace

void check_mask(const Mask& mask, const Positions& positions, const ScoreShape& shape, const char* where) {
    check(mask.window_left >= -1 && mask.window_right >= -1, where, ": the window is ", mask.window_left, " and ",
          mask.window_right, "; give how many keys before and after the query are seen, or -1 for no limit");
    const bool own_offsets = positions.align == Positions::Align::per_sequence;
    check(own_offsets || positions.offsets.empty(), where,
          ": positions carry offsets but are not aligned per sequence; use Positions::at(offsets)");
    if (own_offsets) check_per_sequence(positions.offsets, shape.B, where, "offsets");
    if (!mask.key_lengths.empty()) {
        const ConstTensorView& lengths = mask.key_lengths;
        check_per_sequence(lengths, shape.B, where, "key_lengths");
        for (std::int64_t b = 0; b < shape.B; ++b) {
            const std::int64_t length = load_i64(lengths.data, lengths.dtype, b * lengths.stride(0));
            check(length >= 0 && length <= shape.S, where, ": key_lengths[", b, "] is ", length,
                  " but must be a count between 0 and S = ", shape.S);
        }
    }
    if (!mask.keep.empty()) {
        check(mask.keep.dtype == DType::boolean, where, ": the keep mask is ", mask.keep,
              " but must be bool (true = attend); give numbers that are added to scores as a bias");
        check_broadcast(mask.keep, shape, where, "the keep mask");
    }
    if (!mask.bias.empty()) {
        check(is_float(mask.bias.dtype), where, ": the bias is ", mask.bias,
              " but must be f32, bf16, f16 or f64; give true and false as a keep mask");
        check_broadcast(mask.bias, shape, where, "the bias");
    }
}

void check_attend_inputs(const AttendInputs& inputs) {
    check_inputs(inputs);
    const ScoreShape shape{inputs.q.size(0), inputs.q.size(2), inputs.q.size(1), key_shape(inputs).S};
    check_mask(inputs.mask, inputs.positions, shape, "attend");
    check_held_keys(inputs);
}

void check_attend(const AttendInputs& inputs, const AttendOutputs& outputs) {
    check_attend_inputs(inputs);
    check_outputs(inputs, outputs);
}

}  // namespace headwise
