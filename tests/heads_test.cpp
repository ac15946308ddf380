// Stages 2 and 4: bands and the head map.
#include <vector>

#include <gtest/gtest.h>

#include "heads/bands.h"

namespace headwise {
namespace {

TEST(KvHead, GroupsAreContiguous) {
    const std::int64_t expected[] = {0, 0, 0, 0, 1, 1, 1, 1};
    for (std::int64_t h = 0; h < 8; ++h) EXPECT_EQ(kv_head(h, 8, 2), expected[h]);
    for (std::int64_t h = 0; h < 6; ++h) {
        EXPECT_EQ(kv_head(h, 6, 6), h);  // multi-head
        EXPECT_EQ(kv_head(h, 6, 1), 0);  // multi-query
    }
}

TEST(SplitHeads, IsAViewOfTheRow) {
    // [B,T,W] with H = 3 of width 4, then G = 1 of width 5, and 2 unused columns.
    std::vector<float> memory(2 * 3 * 19);
    const TensorView rows(memory.data(), DType::f32, {2, 3, 19});
    const TensorView q = split_heads(rows, {0, 3, 4});
    const TensorView k = split_heads(rows, {12, 1, 5});
    EXPECT_EQ(q.describe(), "f32 [2, 3, 3, 4] strides [57, 19, 4, 1]");
    EXPECT_EQ(q.data, memory.data());
    EXPECT_EQ(k.describe(), "f32 [2, 3, 1, 5] strides [57, 19, 5, 1]");
    EXPECT_EQ(k.data, memory.data() + 12);
}

}  // namespace
}  // namespace headwise
