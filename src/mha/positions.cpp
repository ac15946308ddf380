// Where the rows of a call stand: for masks, for the rotation, for the temperature.
#include <cmath>

#include "attend/mask.h"
#include "core/dtype.h"
#include "mha/cached.h"
#include "mha/stages.h"

namespace headwise {
namespace {

std::int64_t offset_of(const Call& call, std::int64_t b) {
    const Positions& positions = call.options.positions;
    if (positions.align == Positions::Align::top_left) return 0;
    if (positions.align == Positions::Align::per_sequence) return integer_at(positions.offsets, b);
    return cache_offset(call, b);
}

float temperature(const Temperature& rule, std::int64_t position) {
    const double floored = std::floor((static_cast<double>(position) + 1) / rule.floor_scale);
    return static_cast<float>(1 + rule.scale * std::log(1 + floored));
}

}  // namespace

void fill_positions(const Block& block, const Call& call, const Flow& flow) {
    const bool cached = !flow.offsets.empty();
    if (!cached && flow.tau.empty()) return;
    const ScoreShape shape{call.B, block.config.heads, call.T, call.S};
    check_mask(call.mask, call.options.positions, shape, "forward");  // offsets and documents are read here
    for (std::int64_t b = 0; cached && b < call.B; ++b) {
        static_cast<std::int64_t*>(flow.offsets.data)[b] = offset_of(call, b);
        if (!flow.rope_offsets.empty())
            static_cast<std::int64_t*>(flow.rope_offsets.data)[b] = cache_offset(call, b);
    }
    if (flow.tau.empty()) return;
    const Positions positions = cached ? Positions::at(flow.offsets) : call.options.positions;
    const Visibility visibility(call.mask, positions, shape);
    for (std::int64_t b = 0; b < call.B; ++b) {
        for (std::int64_t t = 0; t < call.T; ++t) {
            static_cast<float*>(flow.tau.data)[b * call.T + t] =
                temperature(*block.config.temperature, visibility.place(b, t).p);
        }
    }
}

}  // namespace headwise
