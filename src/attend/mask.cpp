// Masks as values: how they are made and intersected.
#include <headwise/mask.h>

#include <algorithm>

#include "core/check.h"

namespace headwise {

Mask causal() { return {.causal = true}; }

Mask window(std::int64_t left, std::int64_t right, std::int64_t keep_first) {
    check(left >= -1 && right >= -1, "window: left ", left, ", right ", right,
          "; give how many keys before and after the query are seen, or -1 for no limit");
    check(keep_first >= 0, "window: keep_first is ", keep_first,
          "; give how many of the first keys stay visible, or 0");
    return {.window_left = left, .window_right = right, .keep_first = keep_first};
}

Mask chunked(std::int64_t chunk, const ConstTensorView& origins) {
    check(chunk > 0, "chunked: the chunk is ", chunk, "; give a positive number of keys");
    return {.chunk = chunk, .chunk_origins = origins};
}

Mask key_lengths(const ConstTensorView& lengths) { return {.key_lengths = lengths}; }
Mask key_starts(const ConstTensorView& starts) { return {.key_starts = starts}; }
Mask documents(const ConstTensorView& queries, const ConstTensorView& keys) {
    return {.documents = {.queries = queries, .keys = keys}};
}
Mask keep(const ConstTensorView& tensor) { return {.keep = tensor}; }
Mask bias(const ConstTensorView& tensor) { return {.bias = tensor}; }

namespace {

std::int64_t narrower(std::int64_t a, std::int64_t b) {
    if (a < 0 || b < 0) return std::max(a, b);  // -1 is open
    return std::min(a, b);
}

const ConstTensorView& only_one(const ConstTensorView& a, const ConstTensorView& b, const char* name) {
    check(a.empty() || b.empty(), "mask: both sides of & carry ", name,
          "; combine the two tensors into one before");
    return a.empty() ? b : a;
}

bool has_window(const Mask& mask) { return mask.window_left >= 0 || mask.window_right >= 0; }

// Without a window keep_first says nothing; two windows must agree on it.
std::int64_t keep_first_of(const Mask& a, const Mask& b) {
    for (const Mask* mask : {&a, &b}) {
        check(mask->keep_first >= 0, "mask: keep_first is ", mask->keep_first, "; give a number of keys");
    }
    if (!has_window(a) || !has_window(b)) return has_window(b) ? b.keep_first : a.keep_first;
    check(a.keep_first == b.keep_first, "mask: the windows on both sides of & keep the first ", a.keep_first,
          " and ", b.keep_first, " keys; no one window does that, so make the numbers equal or use a keep mask");
    return a.keep_first;
}

std::int64_t chunk_of(const Mask& a, const Mask& b) {
    check(a.chunk == 0 || b.chunk == 0 || a.chunk == b.chunk, "mask: both sides of & have chunks, of ", a.chunk,
          " and ", b.chunk, " keys; no one chunk does that, so use a keep mask for one of them");
    if (a.chunk != 0 && b.chunk != 0) {
        check(a.chunk_origins.empty() && b.chunk_origins.empty(),
              "mask: both sides of & have chunks, with origins; give the chunk once");
    }
    return a.chunk != 0 ? a.chunk : b.chunk;
}

}  // namespace

Mask operator&(const Mask& a, const Mask& b) {
    const std::int64_t chunk = chunk_of(a, b);
    check(a.documents.queries.empty() || b.documents.queries.empty(),
          "mask: both sides of & carry documents; give the cu_seqlens of their intersection");
    check(a.blocks.query_block == 0 || b.blocks.query_block == 0,
          "mask: both sides of & carry a list of blocks; give the list of their intersection");
    return {.causal = a.causal || b.causal,
            .window_left = narrower(a.window_left, b.window_left),
            .window_right = narrower(a.window_right, b.window_right),
            .keep_first = keep_first_of(a, b),
            .chunk = chunk,
            .chunk_origins = only_one(a.chunk_origins, b.chunk_origins, "chunk origins"),
            .key_starts = only_one(a.key_starts, b.key_starts, "key starts"),
            .key_lengths = only_one(a.key_lengths, b.key_lengths, "key lengths"),
            .documents = a.documents.queries.empty() ? b.documents : a.documents,
            .blocks = a.blocks.query_block == 0 ? b.blocks : a.blocks,
            .keep = only_one(a.keep, b.keep, "a boolean tensor"),
            .bias = only_one(a.bias, b.bias, "an additive tensor")};
}

}  // namespace headwise
