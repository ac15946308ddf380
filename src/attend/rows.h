// The walk of some query rows of one kv head over the tiles of its keys, whether those are packed or in place.
#pragma once

#include <cstdint>

#include "attend/problem.h"

namespace headwise {

// Rows [first, first + count) of kv head g of sequence b.
struct RowBlock {
    std::int64_t b = 0, g = 0;
    std::int64_t first = 0, count = 0;
};

// Keys and values of one kv head in the layout of AttendKernels, from tile `first_tile` on.
struct PackedHead {
    std::int64_t first_tile = 0;
    float* keys = nullptr;    // kKeyTile * D floats a tile
    float* values = nullptr;  // kKeyTile * padded_columns() floats a tile
    bool* finite = nullptr;   // one a tile
};

// The keys that at least one row of the block can see.
KeyRange keys_of(const Problem& problem, const RowBlock& block) noexcept;

// Dv rounded up to whole panels.
std::int64_t padded_columns(const Problem& problem) noexcept;

// Bytes of scratch that attend_rows() needs for blocks of up to `rows` rows.
std::size_t row_scratch_bytes(const Problem& problem, std::int64_t rows, bool packed) noexcept;

// Computes out and lse of the block. `packed` null: keys and values are read in place.
// `scratch` is 64-byte aligned.
void attend_rows(const Problem& problem, const RowBlock& block, const PackedHead* packed, void* scratch) noexcept;

}  // namespace headwise
