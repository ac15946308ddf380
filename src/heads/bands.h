// Stage 2 and 4: a head is a band of the projected row, and splitting and merging are views of it.
//   row of one token: | q head 0 | q head 1 | ... | k head 0 | ... | v head 0 | ... |
#pragma once

#include <cstdint>

#include <headwise/tensor.h>

namespace headwise {

// The kv head that query head h reads: contiguous groups of H/G query heads. The only place that knows.
inline std::int64_t kv_head(std::int64_t head, std::int64_t heads, std::int64_t kv_heads) noexcept {
    return head / (heads / kv_heads);
}

// `count` heads of width `width`, side by side in the row from element `offset` on.
struct BandGroup {
    std::int64_t offset = 0;
    std::int64_t count = 0;
    std::int64_t width = 0;
};

// rows [B,T,W] -> the heads of a group [B,T,count,width], in the same memory.
template <class Data>
BasicView<Data> split_heads(const BasicView<Data>& rows, const BandGroup& group) {
    return rows.slice(2, group.offset, group.count * group.width).split_axis(2, group.count, group.width);
}

}  // namespace headwise
