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
    std::string name;         // "split q", "rotate", "attend", ...
    std::string axes;         // "[B,T,H,D]"
    ConstTensorView view;     // sizes, strides and dtype; the data pointer is dead once trace() has returned
    std::string buffer;       // "x", "qkv", "merged", "y", "weights"
    std::int64_t offset = 0;  // bytes from the start of that buffer to element 0 of the view
    std::int64_t bytes = 0;   // bytes of the elements that the view shows
    std::int64_t copied_bytes = 0;  // bytes moved only to change a layout; 0 for a view
    std::string note;               // one sentence for a reader
};

struct Trace {
    std::vector<TraceStep> steps;
    std::int64_t split_merge_copied_bytes = 0;  // sum over stages 2 and 4
    Tensor y;
};

// Runs the block once on x (see MultiHeadAttention::forward) and tells what happened.
HEADWISE_API Trace trace(const MultiHeadAttention& block, const ConstTensorView& x,
                         const ForwardOptions& options = {});

}  // namespace headwise
