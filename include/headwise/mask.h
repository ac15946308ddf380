// Which keys a query sees. A mask is two answers, not a matrix: which key intervals are visible to a row, and
// (rarely) what to add to a score. All parts intersect; docs/semantics.md is the law.
#pragma once

#include <cstdint>

#include <headwise/export.h>
#include <headwise/tensor.h>

namespace headwise {

// Query row i of sequence b stands at the absolute position p = i + offset_b; keys stand at t = 0 .. S-1. Causal,
// window, chunk, ALiBi, distance bias and temperature all use this p. A negative offset is legal and never clamped: its
// leading causal rows see nothing. In packed documents p and t count from the start of their own document.
struct Positions {
    enum class Align {
        bottom_right,  // offset = S - T: the last query sees the last key (default); of each document, where there are
        top_left,      // offset = 0: PyTorch's is_causal
        per_sequence,  // offset_b = offsets[b]; with documents, one for each document
    };
    Align align = Align::bottom_right;
    ConstTensorView offsets{};  // i32 or i64 [B] (or [documents]), only with per_sequence

    static Positions top_left() { return {Align::top_left, {}}; }
    static Positions at(const ConstTensorView& offsets) { return {Align::per_sequence, offsets}; }
};

// Packed sequences: B = 1, document d owns query rows queries[d] .. queries[d+1]-1 and keys keys[d] .. keys[d+1]-1 of
// the packed axes, and sees nothing else. Tensor masks, bias and tau index the packed axes.
struct Documents {
    ConstTensorView queries{};  // cu_seqlens: i32 or i64 [n+1], from 0, never falling; queries[n] = T
    ConstTensorView keys{};     // likewise for S; empty: the same as queries
};

// Visible blocks of keys of every block of query rows, as lists: hidden blocks are never touched.
struct BlockList {
    std::int64_t query_block = 0, key_block = 0;  // rows and keys of a block; both positive where there is a list
    ConstTensorView counts{};                     // i32 or i64 [B,H,ceil(T/query_block)]; B and H axes may be 1
    ConstTensorView
        blocks{};  // i32 or i64 [B,H,ceil(T/query_block),M]: the first counts[...] are rising block numbers
};

struct Mask {
    bool causal = false;             // t <= p
    std::int64_t window_left = -1;   // p - window_left <= t; -1 = open. "Window W" keeping W keys is W - 1.
    std::int64_t window_right = -1;  // t <= p + window_right; -1 = open
    std::int64_t keep_first = 0;     // keys t < keep_first pass the window (and only the window)
    std::int64_t chunk = 0;          // C > 0: floor((t - o) / C) = floor((p - o) / C); 0 = off
    ConstTensorView
        chunk_origins{};           // i32 or i64 [B]: o; empty: 0. In a & b they may stand beside the other's chunk
    ConstTensorView key_starts{};  // i32 or i64 [B]: keys t < key_starts[b] are hidden (left padding)
    ConstTensorView key_lengths{};  // i32 or i64 [B]: keys t >= key_lengths[b] are hidden; a count from key 0
    Documents documents{};
    BlockList blocks{};
    ConstTensorView keep{};  // bool, true = attend; right-aligned to [B,H,T,S], size-1 axes broadcast
    ConstTensorView bias{};  // f32, bf16, f16 or f64; added to the scaled score; -inf hides; broadcast alike
};

HEADWISE_API Mask causal();
// Throws invalid_argument below -1 or for a negative keep_first.
HEADWISE_API Mask window(std::int64_t left, std::int64_t right, std::int64_t keep_first = 0);
HEADWISE_API Mask chunked(std::int64_t chunk, const ConstTensorView& origins = {});
HEADWISE_API Mask key_lengths(const ConstTensorView& lengths);
HEADWISE_API Mask key_starts(const ConstTensorView& starts);
HEADWISE_API Mask documents(const ConstTensorView& queries, const ConstTensorView& keys = {});
HEADWISE_API Mask keep(const ConstTensorView& tensor);
HEADWISE_API Mask bias(const ConstTensorView& tensor);

// Intersection: `causal() & window(255, 0)`. Two windows give the narrower one. Throws invalid_argument where the result
// is no Mask: two tensors of the same kind, two chunk sizes, two windows with different keep_first.
HEADWISE_API Mask operator&(const Mask& a, const Mask& b);

}  // namespace headwise
