// Stage 3 alone: scaled dot-product attention of every head, with its own softmax.
//   out[b,t,h,:] = gate * sum_s softmax_s(cap(scale * tau * <q[b,t,h,:], k[b,s,g(h),:]>) + bias) * v[b,s,g(h),:]
// The [T,S] matrix of scores is never held.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <headwise/cpu.h>
#include <headwise/export.h>
#include <headwise/kv_cache.h>
#include <headwise/mask.h>
#include <headwise/tensor.h>

namespace headwise {

// A bias that depends on t - p alone: table[h, n] is added where t - p = first + n; distances before the first column
// take the first, those beyond the last the last.
struct DistanceBias {
    ConstTensorView table{};  // f32 [H,N], N >= 1; empty: none
    std::int64_t first = 0;   // t - p of column 0
};

// Dropout of weights, for training: Philox4x32-10, key = seed, counter = (b, h, row, key); kept weights are divided by
// 1 - probability. Independent of tiling, threads and ISA.
struct Dropout {
    double probability = 0;  // [0, 1)
    std::uint64_t seed = 0;
};

// Keys and values that lie in pages of a pool: key t of sequence b is row t % page_size of page table[b, t / page_size].
struct PageTable {
    ConstTensorView table{};  // i32 [B,P]; empty: none. Only entries below key_lengths[b] are read.
};

// Views in the order [batch, token, head, width], whatever the memory looks like: pass a [B,H,T,D] tensor as
// view.swap_axes(1, 2). The innermost stride is 1, all others are free. q, k and v share one dtype: f32, bf16, f16
// (computed in f32) or f64 (a plain loop in f64).
struct AttendInputs {
    ConstTensorView q{};  // [B,T,H,D]
    ConstTensorView k{};  // [B,S,G,D], H a multiple of G: query head h reads kv head g(h) = h / (H/G)
    ConstTensorView v{};  // [B,S,G,Dv]; with pages: k and v are [pages, page_size, G, D or Dv]
    Mask mask{};
    Positions positions{};
    std::optional<double> scale{};  // default 1/sqrt(D); 0 and negative are valid, NaN and Inf are errors

    double softcap = 0;              // c > 0: s = c tanh(s / c), before anything is added
    ConstTensorView tau{};           // f32 [B,T]: multiplies the scale of a query row
    ConstTensorView alibi_slopes{};  // f32 [H]: + slope (t - p)
    DistanceBias distance_bias{};    // f32: + table[h, t - p]
    ConstTensorView sinks{};         // f32 [H]: one logit per head without a value; -inf = none
    ConstTensorView gate{};          // f32 or the dtype of q, [B,T,H] or [B,T,H,Dv]: multiplies the output
    Dropout dropout{};
    PageTable pages{};               // S = P * page_size; needs mask.key_lengths
    const KvCache* cache = nullptr;  // instead of k and v: S = its longest length; it hides what it does not hold,
                                     // and its own offsets stand for bottom_right
};

struct AttendOutputs {
    TensorView out{};  // [B,T,H,Dv], f32 or the dtype of q; every element is written; gaps between rows never are
    TensorView lse{};  // optional [B,H,T] f32 (f64 for f64 inputs), any strides: natural-log sum of exp of the
                       // visible scores and the sink, -inf for an empty row
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

// Results of attend() over disjoint sets of keys, without sinks and gate.
struct AttendPart {
    ConstTensorView out{};  // [B,T,H,Dv]
    ConstTensorView lse{};  // [B,H,T] f32 or f64
};
// Joins parts by their lse, in order: as if one call had seen all their keys. `sinks` (f32 [H], may be empty) joins last,
// once. A part whose lse is -inf is the identity, whatever its out holds; NaN or +inf makes the row NaN. All types may
// differ; sums are in f32, or in f64 where a part is. `out` may be the out of a part. Throws invalid_argument.
HEADWISE_API void merge(std::span<const AttendPart> parts, const AttendOutputs& outputs,
                        const ConstTensorView& sinks = {}, const Execution& execution = {});

}  // namespace headwise
