#include <headwise/tensor.h>

#include <gtest/gtest.h>

#include <headwise/error.h>

namespace headwise {
namespace {

TEST(View, SplitAxisGivesHeadsWithoutCopy) {
    float row[24];
    const TensorView x(row, DType::f32, {2, 12});
    const TensorView heads = x.split_axis(1, 3, 4);
    EXPECT_EQ(heads.data, x.data);
    EXPECT_EQ(heads.describe(), "f32 [2, 3, 4]");
    EXPECT_EQ(heads.swap_axes(0, 1).describe(), "f32 [3, 2, 4] strides [4, 12, 1]");
}

TEST(View, RejectsWhatDoesNotExist) {
    float row[4];
    const TensorView x(row, DType::f32, {4});
    EXPECT_THROW(x.slice(0, 3, 2), Error);
    EXPECT_THROW(x.split_axis(0, 3, 2), Error);
    EXPECT_THROW(TensorView(row, DType::f32, {-1}), Error);
}

TEST(Tensor, ConvertsBetweenFloatTypes) {
    Tensor x(DType::f32, {3});
    x.data<float>()[1] = 1.5f;
    const Tensor half = convert(x, DType::f16);
    EXPECT_EQ(half.data<std::uint16_t>()[1], 0x3e00);
    EXPECT_THROW(convert(x, DType::i32), Error);
}

}  // namespace
}  // namespace headwise
