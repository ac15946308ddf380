// The reference's half about masks: who sees whom, one pair of a query row and a key at a time, as docs/semantics.md
// says it. Nothing here is fast or shared with the library.
#pragma once

#include <cstdint>
#include <limits>

#include <headwise/attend.h>

#include "core/dtype.h"

namespace headwise::test {

inline std::int64_t index4(const ConstTensorView& x, std::int64_t a, std::int64_t b, std::int64_t c,
                           std::int64_t d) {
    return a * x.stride(0) + b * x.stride(1) + c * x.stride(2) + d * x.stride(3);
}

// Element (b,h,i,t) of a tensor that is right-aligned to [B,H,T,S]; size-1 axes broadcast.
inline std::int64_t broadcast_index(const ConstTensorView& x, const std::int64_t (&at)[4]) {
    std::int64_t index = 0;
    for (int axis = 0; axis < x.rank; ++axis) {
        if (x.size(axis) != 1) index += at[4 - x.rank + axis] * x.stride(axis);
    }
    return index;
}

// Element n of a list of numbers, or `otherwise` where there is no list.
inline std::int64_t number(const ConstTensorView& list, std::int64_t n, std::int64_t otherwise = 0) {
    return list.empty() ? otherwise : load_i64(list.data, list.dtype, n * list.stride(0));
}

// Where query row i and key t of sequence b stand. In documents both count from the start of their own.
struct Pair {
    std::int64_t p = 0, t = 0;
    bool same_document = true;
};

// The document that owns entry n of the packed axis that `cu_seqlens` cuts.
inline std::int64_t document_of(const ConstTensorView& cu_seqlens, std::int64_t n) {
    std::int64_t d = 0;
    while (number(cu_seqlens, d + 1) <= n) ++d;
    return d;
}

inline Pair place(const AttendInputs& in, std::int64_t b, std::int64_t i, std::int64_t t) {
    std::int64_t first_row = 0, rows = in.q.size(1), first_key = 0, keys = in.k.size(1), sequence = b;
    bool same_document = true;
    if (const Documents& cu = in.mask.documents; !cu.queries.empty()) {
        const ConstTensorView& cu_keys = cu.keys.empty() ? cu.queries : cu.keys;
        const std::int64_t d = document_of(cu.queries, i);
        first_row = number(cu.queries, d), rows = number(cu.queries, d + 1) - first_row;
        first_key = number(cu_keys, d), keys = number(cu_keys, d + 1) - first_key;
        same_document = t >= first_key && t < first_key + keys;
        sequence = d;
    }
    std::int64_t offset = 0;  // top_left
    if (in.positions.align == Positions::Align::bottom_right) offset = keys - rows;
    if (in.positions.align == Positions::Align::per_sequence) offset = number(in.positions.offsets, sequence);
    return {i - first_row + offset, t - first_key, same_document};
}

inline std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// Do the lists of blocks name the block of key t for the block of row i? Both index the tensors.
inline bool block_listed(const BlockList& list, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t t) {
    const auto axis = [](const ConstTensorView& x, int a, std::int64_t n) {
        return x.size(a) == 1 ? 0 : n * x.stride(a);
    };
    const std::int64_t n = i / list.query_block;
    const std::int64_t count_at = axis(list.counts, 0, b) + axis(list.counts, 1, h) + axis(list.counts, 2, n);
    const std::int64_t blocks_at = axis(list.blocks, 0, b) + axis(list.blocks, 1, h) + axis(list.blocks, 2, n);
    const std::int64_t count = load_i64(list.counts.data, list.counts.dtype, count_at);
    for (std::int64_t m = 0; m < count; ++m) {
        const std::int64_t at = blocks_at + m * list.blocks.stride(3);
        if (load_i64(list.blocks.data, list.blocks.dtype, at) == t / list.key_block) return true;
    }
    return false;
}

// Is key t of (b,h) visible to query row i?
inline bool visible(const AttendInputs& in, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t t) {
    const Mask& mask = in.mask;
    const Pair at = place(in, b, i, t);
    if (!at.same_document) return false;
    if (mask.causal && at.t > at.p) return false;
    const bool before = mask.window_left >= 0 && at.t < at.p - mask.window_left;
    const bool behind = mask.window_right >= 0 && at.t > at.p + mask.window_right;
    if ((before || behind) && at.t >= mask.keep_first) return false;
    if (mask.chunk > 0) {
        const std::int64_t origin = number(mask.chunk_origins, b);
        if (floor_divide(at.t - origin, mask.chunk) != floor_divide(at.p - origin, mask.chunk)) return false;
    }
    if (t < number(mask.key_starts, b)) return false;
    if (t >= number(mask.key_lengths, b, std::numeric_limits<std::int64_t>::max())) return false;
    if (mask.blocks.query_block > 0 && !block_listed(mask.blocks, b, h, i, t)) return false;
    if (!mask.keep.empty()) {
        const auto* kept = static_cast<const std::uint8_t*>(mask.keep.data);
        if (kept[broadcast_index(mask.keep, {b, h, i, t})] == 0) return false;
    }
    if (!mask.bias.empty()) {
        const double added = load_f64(mask.bias.data, mask.bias.dtype, broadcast_index(mask.bias, {b, h, i, t}));
        if (added == -std::numeric_limits<double>::infinity()) return false;
    }
    return true;
}

}  // namespace headwise::test
