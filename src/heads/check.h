// What stages 2 and 4 accept: every rule, once, for the public functions and for the block. Each function throws
// invalid_argument with a message that begins with `where`.
#pragma once

#include <cstdint>

#include <headwise/heads.h>

#include "heads/rope.h"

namespace headwise {

// x is heads [B,T,N,D] that are changed in place.
void check_heads(const TensorView& x, const char* where);

// `rope` can turn heads of width head_dim.
void check_rope(const Rope& rope, std::int64_t head_dim, const char* where);
// Its columns lie in the head: the part of check_rope() that explicit tables need too.
RopeLayout rope_layout(const Rope& rope, std::int64_t head_dim, const char* where);

// Positions, and tables, fit the tokens of `heads` [B,T,...]; positions that read tables lie inside them.
void check_rope_positions(const ConstTensorView& positions, const ConstTensorView& heads, const char* where);
void check_rope_tables(const RopeTables& tables, const ConstTensorView& heads, const RopeLayout& layout,
                       const ConstTensorView& positions, const char* where);

// Weight and bias are what the norm of `heads` heads of width head_dim asks for.
void check_norm(const HeadNorm& norm, const ConstTensorView& weight, const ConstTensorView& bias,
                std::int64_t heads, std::int64_t head_dim, const char* where);

}  // namespace headwise
