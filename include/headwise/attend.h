// Stage 3 alone: scaled dot-product attention of every head, with its own softmax.
//   out[b,t,h,:] = sum_s softmax_s(scale * <q[b,t,h,:], k[b,s,g(h),:]> + bias) * v[b,s,g(h),:]
// The [T,S] matrix of scores is never held.
#pragma once

#include <optional>
#include <string>

#include <headwise/cpu.h>
#include <headwise/export.h>
#include <headwise/mask.h>
#include <headwise/tensor.h>

namespace headwise {

// Views in the order [batch, token, head, width], whatever the memory looks like: pass a [B,H,T,D] tensor as
// view.swap_axes(1, 2). The innermost stride is 1, all others are free. q, k and v share one dtype: f32, bf16, f16
// (computed in f32) or f64 (a plain loop in f64).
struct AttendInputs {
    ConstTensorView q{};  // [B,T,H,D]
    ConstTensorView k{};  // [B,S,G,D], H a multiple of G: query head h reads kv head g(h) = h / (H/G)
    ConstTensorView v{};  // [B,S,G,Dv]
    Mask mask{};
    Positions positions{};
    std::optional<double> scale{};  // default 1/sqrt(D); 0 and negative are valid, NaN and Inf are errors
};

struct AttendOutputs {
    TensorView out{};  // [B,T,H,Dv], f32 or the dtype of q; every element is written; gaps between rows never are
    TensorView lse{};  // optional [B,H,T] f32 (f64 for f64 inputs), any strides: natural-log sum of exp of the
                       // visible scores, -inf for an empty row
};

// A row that sees no key gives zeros. Zero sizes are legal, except D = 0. Throws invalid_argument before any memory
// is touched; afterwards only out_of_memory can happen (contents of `out` are then unspecified).
// Same bits for any number of threads, batch composition and repeat. Safe to call from several threads.
HEADWISE_API void attend(const AttendInputs& inputs, const AttendOutputs& outputs,
                         const Execution& execution = {});

// What attend() would do with these inputs: "direct", "packed" or "reference_f64", and why.
struct AttendPath {
    std::string name;
    std::string reason;
};
HEADWISE_API AttendPath attend_path(const AttendInputs& inputs);

}  // namespace headwise
