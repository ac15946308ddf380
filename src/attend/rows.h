// The walk of some query rows of one kv head over the tiles of its keys, whether those are packed or in place.
#pragma once

#include <cstdint>

#include "attend/problem.h"
#include "attend/state.h"

namespace headwise {

// Keys are cut into pieces of kSplitKeys at multiples of it; a row walks over the tiles of each, and the states of the
// pieces are folded in their order. So pieces can be tasks of their own, with the same bits.
inline constexpr std::int64_t kSplitKeys = 1024;
static_assert(kSplitKeys % kKeyTile == 0);

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

// Does a row of the block, which is a whole kv head, see a key of this tile? If not, nobody may read it.
bool tile_is_seen(const Problem& problem, const RowBlock& block, std::int64_t tile) noexcept;

// Dv rounded up to whole panels.
std::int64_t padded_columns(const Problem& problem) noexcept;

// Bytes of scratch that attend_rows() needs for blocks of up to `rows` rows.
std::size_t row_scratch_bytes(const Problem& problem, std::int64_t rows, bool packed) noexcept;

// Computes out and lse of the block. `packed` null: keys and values are read in place.
// `scratch` is 64-byte aligned.
void attend_rows(const Problem& problem, const RowBlock& block, const PackedHead* packed, void* scratch) noexcept;

// The same in two steps: every piece of the keys, read in place, and then all of them together. Blocks of states are
// 64-byte aligned.
std::size_t state_bytes(const Problem& problem, std::int64_t rows) noexcept;
void attend_piece(const Problem& problem, const RowBlock& block, std::int64_t piece, std::byte* states,
                  void* scratch) noexcept;
struct PieceStates {
    std::byte* first;
    std::int64_t count;
};
void finish_rows(const Problem& problem, const RowBlock& block, const PieceStates& pieces, void* scratch) noexcept;

}  // namespace headwise
