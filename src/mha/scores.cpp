// Scores or weights on request: a second pass over what attention ran on, and columns of the keys that it does not have.
#include <cmath>

#include "mha/latent.h"
#include "mha/stages.h"

namespace headwise {
namespace {

// The zero key has score 0 before anything is added, and no mask.
void write_zero_key(const Call& call, const TensorView& lse, const TensorView& to) {
    const ScoreRequest& request = call.options.scores;
    for (std::int64_t b = 0; b < to.size(0); ++b)
        for (std::int64_t h = 0; h < to.size(1); ++h)
            for (std::int64_t i = 0; i < to.size(2); ++i) {
                const std::int64_t column = b * to.stride(0) + h * to.stride(1) + i * to.stride(2);
                float& score = static_cast<float*>(to.data)[column];
                score = 0;
                if (request.kind != ScoreKind::weights) continue;
                const std::int64_t at = b * lse.stride(0) + (request.first_head + h) * lse.stride(1) +
                                        (request.first_row + i) * lse.stride(2);
                score = std::exp(-static_cast<const float*>(lse.data)[at]);
            }
}

}  // namespace

void write_scores(const Block& block, const Call& call, const Flow& flow, AttendInputs in) {
    const ScoreRequest& request = call.options.scores;
    const TensorView& to = call.options.scores_to;
    const Execution& execution = call.options.execution;
    if (!flow.absorbed_q.empty()) {
        absorb_queries(block, flow, execution);  // where a cache holds latents, whichever form attention took
        in.q = flow.absorbed_q;
        if (call.options.cache == nullptr) in.k = flow.latent, in.v = {};
    }
    attend_scores(in, flow.lse, request, to.slice(3, 0, call.S), execution);
    std::int64_t column = call.S;
    if (!block.extra_key.empty())
        attend_scores(extra_key_inputs(block, call, flow), flow.lse, request, to.slice(3, column++, 1), execution);
    if (block.config.zero_key) write_zero_key(call, flow.lse, to.slice(3, column, 1));
}

}  // namespace headwise
