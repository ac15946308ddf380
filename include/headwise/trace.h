// What happens to x on its way to y: for every step the shape, strides, bytes, the buffer and offset that the view
// points at, and whether anything was copied. Taken from the addresses of a real run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <headwise/export.h>
#include <headwise/mha.h>

namespace headwise {

struct TraceStep {
    int stage = 0;            // 1 project, 2 heads: split, 3 attend, 4 heads: merge, 5 project (DESIGN: the flow)
    std::string name;         // "split q", "rotate q", "append", "attend", ...
    std::string axes;         // "[B,T,H,D]"
    ConstTensorView view;     // sizes, strides and dtype; the data pointer is dead once trace() has returned
    std::string buffer;       // "x", "qkv", "latent", "merged", "y", ...
    std::int64_t offset = 0;  // bytes from the start of that buffer to element 0 of the view
    std::int64_t bytes = 0;   // bytes of the elements that the view shows
    std::int64_t copied_bytes = 0;  // bytes moved only to change a layout; 0 for a view
    std::string note;               // one sentence for a reader
};

// What the layer keeps of every token for later ones, and what it saves against multi-head attention of the same widths.
struct CacheAccount {
    std::string kind;                         // of the call's cache: "contiguous", "ring", "paged"; or "none"
    std::string type;                         // of its elements; without a cache, the type of the layer
    std::int64_t held_bytes = 0;              // memory of the call's cache, unused capacity included
    std::int64_t length = 0;                  // of its longest sequence, after the call
    std::int64_t token_bytes = 0;             // of one token
    std::int64_t multi_head_token_bytes = 0;  // if each of the H query heads had a key and a value of its own
    std::int64_t window = 0;                  // most keys that a row can see, and that a ring has to hold; 0: all
    std::string note;                         // the same in a sentence
};

struct Trace {
    std::vector<TraceStep> steps;
    std::int64_t split_merge_copied_bytes = 0;  // sum over stages 2 and 4
    CacheAccount cache;
    Tensor y;
};

// Runs the block once on x (see MultiHeadAttention::forward) and tells what happened.
HEADWISE_API Trace trace(const MultiHeadAttention& block, const ConstTensorView& x,
                         const ForwardOptions& options = {});

}  // namespace headwise
