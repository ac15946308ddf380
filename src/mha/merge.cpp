// Stages 4 and 5: from the outputs of the heads to y. The gate is applied here and not by attend(): what joins the
// output of a head after its softmax (an extra key, the v rows of a latent) comes before the gate.
#include <algorithm>

#include "kernels/storage_of.h"
#include "mha/rows.h"
#include "mha/stages.h"

namespace headwise {
namespace {

constexpr std::int64_t kPiece = 64;

// Multiplies by the sigmoid of the gate: of a head, or of every element.
void apply_gate(const Block& block, const Flow& flow, const Execution& execution) {
    const TensorView &heads = flow.all_heads, &gate = flow.gate;
    const std::int64_t width = heads.size(3);
    const bool per_head = block.config.gate == Gate::head;
    for_each_token(
        heads.size(0), heads.size(1), heads.size(2) * width, execution, [&](std::int64_t b, std::int64_t t) {
            float logits[kPiece];
            for (std::int64_t h = 0; h < heads.size(2); ++h) {
                const std::int64_t from = b * gate.stride(0) + t * gate.stride(1) + h * gate.stride(2);
                const std::int64_t to = b * heads.stride(0) + t * heads.stride(1) + h * heads.stride(2);
                if (per_head)
                    std::fill_n(logits, kPiece, static_cast<float>(load_f64(gate.data, gate.dtype, from)));
                for (std::int64_t first = 0; first < width; first += kPiece) {
                    const std::int64_t n = std::min(kPiece, width - first);
                    if (!per_head)
                        block.kernels->rows.widen(logits, element(gate, from + first), storage_of(gate.dtype), n);
                    block.kernels->rows.gate(element(heads, to + first), Storage::f32, logits, n);
                }
            }
        });
}

// Head h of the first half minus lambda * head h + H/2, in place: the difference stands where head h stood.
void subtract_halves(const Block& block, const Flow& flow, const Execution& execution) {
    const TensorView& heads = flow.all_heads;
    const auto lambda = static_cast<float>(block.config.difference->lambda);
    const std::int64_t half = heads.size(2) / 2 * heads.size(3);
    for_each_token(heads.size(0), heads.size(1), half, execution, [&](std::int64_t b, std::int64_t t) {
        const std::int64_t row = b * heads.stride(0) + t * heads.stride(1);
        block.kernels->rows.subtract(element(heads, row), Storage::f32, element(heads, row + half), half, lambda);
    });
}

}  // namespace

void merge_and_project(const Block& block, const Flow& flow, const Execution& execution) {
    if (!flow.gate.empty()) apply_gate(block, flow, execution);
    if (block.config.routing) return route_outputs(block, flow, execution);
    if (block.config.difference) subtract_halves(block, flow, execution);
    if (block.merged_norm) normalize_heads(block, flow.merged_heads, *block.merged_norm, execution);
    block.output->run(rows_of(ConstTensorView(flow.merged)), out_rows_of(flow.y), execution);
}

}  // namespace headwise
