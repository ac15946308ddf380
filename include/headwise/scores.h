// What attend() never holds: scores and weights, for chosen heads and rows, by a second pass from (q, k, lse). Costs
// nothing unless it is called.
#pragma once

#include <cstdint>

#include <headwise/attend.h>

namespace headwise {

enum class ScoreKind : std::uint8_t {
    raw,      // scale * tau * <q, k> of every key, hidden or not; -inf where a cache or page table holds none
    capped,   // after softcap
    masked,   // after bias and mask: -inf where hidden
    weights,  // softmax: exp(masked - lse), 0 where hidden; dropout and gate do not enter
};

// Heads [first_head, first_head + heads) and rows [first_row, first_row + rows) of what attend(inputs) computes with.
struct ScoreRequest {
    ScoreKind kind = ScoreKind::weights;
    std::int64_t first_head = 0, heads = -1;  // -1: all from the first on
    std::int64_t first_row = 0, rows = -1;
};

// Writes to [B,heads,rows,S], f32 (f64 for f64 inputs), any strides. `lse` [B,H,T] as attend() wrote it for the same
// inputs; only read for weights, and computed where it is empty. inputs.v may be empty. Exact: the same score bits as
// attend() has. Throws invalid_argument before anything is written.
HEADWISE_API void attend_scores(const AttendInputs& inputs, const ConstTensorView& lse,
                                const ScoreRequest& request, const TensorView& to,
                                const Execution& execution = {});

// What each key receives: the sum of its weights over the rows of the request, f32 [B,heads,S] (f64 for f64 inputs).
HEADWISE_API void attend_column_sums(const AttendInputs& inputs, const ConstTensorView& lse,
                                     const ScoreRequest& request, const TensorView& to,
                                     const Execution& execution = {});

}  // namespace headwise
