// The parts of a MultiHeadAttention, shared by its constructor, forward() and trace().
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <headwise/mha.h>

#include "heads/rope.h"
#include "kernels/kernel_table.h"
#include "mha/flow.h"
#include "project/packed_linear.h"

namespace headwise {

// One of q, k, v: which packed linear computes it, and as which band.
struct Projection {
    std::size_t linear = 0;
    int band = 0;
};

struct MultiHeadAttention::Impl {
    Impl(const MhaConfig& given, const MhaWeights& weights);

    // Checks shapes, then runs stages 1 to 5. Returns where everything lay; scratch views are dead by then.
    Flow run(const ConstTensorView& x, const TensorView& y, const ForwardOptions& options) const;

    MhaConfig config;
    const KernelTable* kernels;
    std::vector<PackedLinear> inputs;  // one where q, k and v read sources of equal width, else up to three
    Projection q, k, v;
    std::optional<PackedLinear> output;
    std::optional<Rotation> rope;
};

}  // namespace headwise
