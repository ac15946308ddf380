// Where the rows of a call stand: for masks, for the rotation, for the temperature.
#include <cmath>

#include "core/dtype.h"
#include "mha/cached.h"
#include "mha/stages.h"

namespace headwise {
namespace {

std::int64_t load(const ConstTensorView& view, std::int64_t i) {
    return load_i64(view.data, view.dtype, i * view.stride(0));
}

std::int64_t offset_of(const Call& call, std::int64_t b) {
    const Positions& positions = call.options.positions;
    if (positions.align == Positions::Align::top_left) return 0;
    if (positions.align == Positions::Align::per_sequence) return load(positions.offsets, b);
    return call.options.cache == nullptr ? call.S - call.T : cache_offset(call, b);
}

// In packed documents positions count from the start of the row's own document.
std::int64_t packed_position(const Call& call, std::int64_t row) {
    const Documents& documents = call.mask.documents;
    const ConstTensorView& queries = documents.queries;
    const ConstTensorView& keys = documents.keys.empty() ? queries : documents.keys;
    std::int64_t d = 0;
    while (d + 2 < queries.size(0) && load(queries, d + 1) <= row) ++d;
    const std::int64_t rows = load(queries, d + 1) - load(queries, d);
    const Positions& positions = call.options.positions;
    std::int64_t offset = load(keys, d + 1) - load(keys, d) - rows;
    if (positions.align == Positions::Align::top_left) offset = 0;
    if (positions.align == Positions::Align::per_sequence) offset = load(positions.offsets, d);
    return row - load(queries, d) + offset;
}

float temperature(const Temperature& rule, std::int64_t position) {
    const double floored = std::floor((static_cast<double>(position) + 1) / rule.floor_scale);
    return static_cast<float>(1 + rule.scale * std::log(1 + floored));
}

}  // namespace

void fill_positions(const Block& block, const Call& call, const Flow& flow) {
    if (flow.offsets.empty()) return;
    auto* offsets = static_cast<std::int64_t*>(flow.offsets.data);
    const bool packed = !call.mask.documents.queries.empty();
    for (std::int64_t b = 0; b < call.B; ++b) {
        offsets[b] = packed ? 0 : offset_of(call, b);
        if (!flow.rope_offsets.empty())
            static_cast<std::int64_t*>(flow.rope_offsets.data)[b] = cache_offset(call, b);
        for (std::int64_t t = 0; !flow.tau.empty() && t < call.T; ++t) {
            const std::int64_t at = b * call.T + t;
            const std::int64_t position = packed ? packed_position(call, t) : offsets[b] + t;
            static_cast<float*>(flow.tau.data)[at] = temperature(*block.config.temperature, position);
        }
    }
}

}  // namespace headwise
