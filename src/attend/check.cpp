// Every rule about what attend() accepts. Below it shapes are trusted.
#include <algorithm>
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
    check_distinct_rows(out.out, "attend", "out");
    if (out.lse.empty()) return;
    check_rank(out.lse, 3, "lse", "[B,H,T]");
    const DType expected = in.q.dtype == DType::f64 ? DType::f64 : DType::f32;
    check(out.lse.dtype == expected, "attend: lse is ", out.lse, " but must be ", expected);
    check_size(out.lse, 0, B, "lse", "B");
    check_size(out.lse, 1, H, "lse", "H");
    check_size(out.lse, 2, T, "lse", "T");
}

}  // namespace

void check_attend_inputs(const AttendInputs& inputs) {
    check_inputs(inputs);
    const ScoreShape shape{inputs.q.size(0), inputs.q.size(2), inputs.q.size(1), key_shape(inputs).S};
    check_scores(inputs, key_shape(inputs).Dv);
    check_mask(inputs.mask, inputs.positions, shape, "attend");
    check_held_keys(inputs);
}

void check_attend(const AttendInputs& inputs, const AttendOutputs& outputs) {
    check_attend_inputs(inputs);
    check_outputs(inputs, outputs);
}

}  // namespace headwise
