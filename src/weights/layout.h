// From the tensors of a file to the tensors of MhaWeights: fused projections cut into q, k and v.
#pragma once

#include <cstdint>
#include <vector>

#include "weights/plan.h"

namespace headwise {

// Rows [first, first + count) of a stored matrix.
struct Run {
    std::int64_t first = 0, count = 0;
};

// One of our tensors, as rows of a stored one in their order, and likewise its bias.
struct Piece {
    Tensor LayerWeights::*weight = nullptr;
    Tensor LayerWeights::*bias = nullptr;
    std::vector<Run> rows;
};

// What the stored matrix number `index` of plan.matrices consists of. Call it only when the matrix is known to be in
// the file: a list may be as long as there are heads.
std::vector<Piece> pieces_of(const LayerPlan& plan, std::size_t index);

// The given rows of a row-major matrix or vector, in order.
Tensor gather_rows(const Tensor& stored, const std::vector<Run>& rows);

Tensor transpose(const Tensor& matrix);

// ALiBi slopes of H heads: 2^(-8 i / P) for i = 1 .. P, P the largest power of two not above H; the others are every
// second slope of 2P heads.
Tensor alibi_slopes(std::int64_t heads, double scale, bool round_to_bf16);

}  // namespace headwise
