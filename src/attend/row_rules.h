// What the rules of one call make of the rows of a block: their scaled queries, the keys that each sees of a tile and what
// is added to its scores, and how a row ends. Where keys and values come from is no matter here.
#pragma once

#include <cstdint>

#include "attend/carver.h"
#include "attend/rows.h"

namespace headwise {

class RowRules {
public:
    // Takes its scratch from `carver`; `in_call` is the most rows of one see().
    RowRules(const Problem& problem, const RowBlock& block, std::int64_t in_call, Carver& carver) noexcept;

    // Once, before all else. Writes the scaled queries of the block: D floats for each row.
    void load(float* q) noexcept;

    // Rows [row, row + tile.rows) of the block against the tile that starts at key `first`: sets begin, end, visible and
    // bias of `tile`, which stay valid until the next call. False if none of the rows sees a key of the tile: then
    // nothing of the tile may be read.
    bool see(std::int64_t first, std::int64_t row, AttendTile& tile) noexcept;

    // Between scores and softmax.
    void cap(const AttendTile& tile) const noexcept {
        if (problem_.rules.softcap > 0) {
            problem_.kernels.attend.cap_scores(tile, static_cast<float>(problem_.rules.softcap));
        }
    }
    // Between softmax and values: dropped weights become 0. The arguments are those of see().
    void drop(std::int64_t first, std::int64_t row, const AttendTile& tile) const noexcept;

    // Ends a row that has met all its keys: out and lse from o = sum of exp(s - max) v, which it may change, and
    // sum = sum of exp(s - max). The sink joins here, once.
    void store(std::int64_t row, float* o, float max, float sum) noexcept;

private:
    Visibility::Row name(std::int64_t row) const noexcept {
        return problem_.row(block_.b, block_.g, block_.first + row);
    }
    bool read_row(std::int64_t first, std::int64_t row, int r) noexcept;
    void add_position_biases(std::int64_t first, std::int64_t row, int count) noexcept;

    const Problem& problem_;
    const RowBlock block_;
    KeySpans* spans_;
    std::int32_t *begin_, *end_;
    std::int64_t* key_zero_ = nullptr;  // with a bias by distance: t - p of key 0 of the tensors, for every row
    std::uint8_t* visible_ = nullptr;
    float *bias_ = nullptr, *gate_ = nullptr;
};

}  // namespace headwise
