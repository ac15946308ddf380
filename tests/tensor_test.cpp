#include <headwise/tensor.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include <headwise/error.h>

#include "core/dtype.h"

// Sanitizers end the process when too much is asked for, unless told that the program can cope.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options();
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_options();
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace headwise {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 62;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

ErrorCode code_of(auto&& body) {
    try {
        body();
    } catch (const Error& error) {
        return error.code();
    }
    ADD_FAILURE() << "no Error";
    return ErrorCode::internal;
}

TEST(View, SplitAxisGivesHeadsWithoutCopy) {
    float row[24];
    const TensorView x(row, DType::f32, {2, 12});
    const TensorView heads = x.split_axis(1, 3, 4);
    EXPECT_EQ(heads.data, x.data);
    EXPECT_EQ(heads.describe(), "f32 [2, 3, 4]");
    EXPECT_EQ(heads.swap_axes(0, 1).describe(), "f32 [3, 2, 4] strides [4, 12, 1]");
    const TensorView second = heads.slice(1, 1, 2);
    EXPECT_EQ(static_cast<float*>(second.data), row + 4);
    EXPECT_EQ(second.describe(), "f32 [2, 2, 4] strides [12, 4, 1]");
}

TEST(View, RejectsWhatDoesNotExist) {
    float row[4];
    const TensorView x(row, DType::f32, {4});
    EXPECT_THROW(x.slice(0, 3, 2), Error);
    EXPECT_THROW(x.slice(0, 1, kMost), Error);
    EXPECT_THROW(x.slice(0, -1, 1), Error);
    EXPECT_THROW(x.slice(1, 0, 1), Error);
    EXPECT_THROW(x.slice(-1, 0, 1), Error);
    EXPECT_THROW(x.split_axis(0, 3, 2), Error);
    EXPECT_THROW(x.split_axis(0, -2, -2), Error);
    EXPECT_THROW(x.split_axis(0, kHuge, 8), Error);
    EXPECT_THROW(x.swap_axes(0, 1), Error);
    EXPECT_THROW(TensorView(row, DType::f32, {-1}), Error);
    EXPECT_THROW(TensorView(row, DType::f32, {2, 2}, {1}), Error);
    EXPECT_THROW(TensorView(row, DType::f32, {1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
    const TensorView deep(row, DType::f32, {1, 1, 1, 1, 1, 1, 1, 4});
    EXPECT_THROW(deep.split_axis(7, 2, 2), Error) << "rank 9";
}

TEST(View, OverflowIsAnErrorOrSaturates) {
    float row[4];
    EXPECT_THROW(TensorView(row, DType::f32, {kHuge, 2}), Error);
    EXPECT_THROW(TensorView(row, DType::f32, {kHuge, 2, 0}), Error) << "whatever the order of zeros";
    EXPECT_THROW(TensorView(row, DType::f32, {0, kHuge, 2}), Error);
    const TensorView far(row, DType::f32, {4, 4}, {kHuge, 1});
    EXPECT_THROW(far.slice(0, 3, 1), Error);
    EXPECT_THROW(far.split_axis(0, 1, 4), Error);
    TensorView by_hand(row, DType::f32, {4, 4, 4});
    by_hand.sizes = {kHuge, 2, 8};
    EXPECT_EQ(by_hand.count(), std::numeric_limits<std::int64_t>::max());
    EXPECT_FALSE(by_hand.is_dense());
    by_hand.sizes = {kHuge, 8, 0};
    EXPECT_EQ(by_hand.count(), 0);
}

TEST(View, CountsAndDensity) {
    float row[24];
    EXPECT_EQ(TensorView().count(), 0);
    EXPECT_TRUE(TensorView().empty());
    EXPECT_EQ(TensorView(row, DType::f32, {}).count(), 1) << "a scalar";
    EXPECT_EQ(TensorView(row, DType::f32, {3, 0, 5}).count(), 0);
    EXPECT_TRUE(TensorView(row, DType::f32, {3, 0, 5}).is_dense());
    EXPECT_TRUE(TensorView(row, DType::f32, {2, 1, 3}, {3, 77, 1}).is_dense()) << "any stride where the size is 1";
    EXPECT_FALSE(TensorView(row, DType::f32, {2, 3}, {4, 1}).is_dense());
    EXPECT_FALSE(TensorView(row, DType::f32, {2, 3}, {0, 1}).is_dense());
}

TEST(Tensor, IsZeroAlignedAndDense) {
    for (const std::int64_t size : {0, 1, 7, 1000}) {
        Tensor x(DType::f32, {3, size});
        ASSERT_NE(x.view().data, nullptr);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.view().data) % 64, 0u);
        for (std::int64_t i = 0; i < x.count(); ++i) ASSERT_EQ(x.data<float>()[i], 0.0f);
    }
}

TEST(Tensor, RefusesSizesBeyondMemory) {
    EXPECT_EQ(code_of([] { Tensor(DType::f32, {kHuge}); }), ErrorCode::invalid_argument) << "bytes leave 63 bits";
    EXPECT_EQ(code_of([] { Tensor(DType::f32, {kHuge, 4}); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([] { Tensor(DType::f32, {kHuge, 4, 0}); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([] { Tensor(DType::f32, {0, -1}); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([] { Tensor(DType::boolean, {kMost}); }), ErrorCode::out_of_memory);
    EXPECT_EQ(code_of([] { Tensor(DType::f64, {std::int64_t{1} << 59}); }), ErrorCode::out_of_memory);
}

TEST(Tensor, MovesLeaveAnEmptyTensor) {
    static_assert(!std::is_copy_constructible_v<Tensor> && !std::is_copy_assignable_v<Tensor>);
    Tensor x(DType::f32, {3});
    const void* data = x.view().data;
    Tensor y = std::move(x);
    EXPECT_TRUE(x.empty());  // NOLINT(bugprone-use-after-move): what is tested
    EXPECT_EQ(x.view().data, nullptr);
    EXPECT_EQ(y.view().data, data);
    x = std::move(y);
    EXPECT_TRUE(y.empty());  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(x.view().data, data);
}

TEST(Convert, EveryPairOfFloatTypesKeepsSmallIntegers) {
    const DType floats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
    for (const DType from : floats) {
        for (const DType to : floats) {
            Tensor x(from, {5, 7});
            for (std::int64_t i = 0; i < 35; ++i) store_f64(x.view().data, from, i, static_cast<double>(i - 17));
            const Tensor dense = convert(x, to);
            const Tensor turned = convert(x.view().swap_axes(0, 1), to);
            ASSERT_EQ(turned.view().describe(), std::string(name_of(to)) + " [7, 5]");
            for (std::int64_t i = 0; i < 35; ++i) {
                ASSERT_EQ(load_f64(dense.view().data, to, i), static_cast<double>(i - 17));
                ASSERT_EQ(load_f64(turned.view().data, to, i % 7 * 5 + i / 7), static_cast<double>(i - 17));
            }
        }
    }
}

TEST(Convert, CopiesEveryTypeToItselfBitForBit) {
    for (const DType dtype :
         {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::boolean}) {
        Tensor x(dtype, {4, 6});
        const auto bytes = static_cast<std::int64_t>(size_of(dtype));
        for (std::int64_t i = 0; i < 24 * bytes; ++i)
            x.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37 + 129);
        const Tensor part = convert(x.view().slice(0, 1, 2).slice(1, 2, 3).swap_axes(0, 1), dtype);
        for (std::int64_t i = 0; i < 3; ++i) {
            for (std::int64_t j = 0; j < 2; ++j) {
                for (std::int64_t b = 0; b < bytes; ++b) {
                    ASSERT_EQ(part.data<std::uint8_t>()[(i * 2 + j) * bytes + b],
                              x.data<std::uint8_t>()[((j + 1) * 6 + i + 2) * bytes + b]);
                }
            }
        }
    }
    Tensor x(DType::f32, {1});
    x.data<std::uint32_t>()[0] = 0x7f800001u;
    EXPECT_EQ(convert(x, DType::f32).data<std::uint32_t>()[0], 0x7f800001u) << "a signalling NaN";
}

TEST(Convert, RoundsTheF64Once) {
    Tensor x(DType::f64, {2});
    x.data<double>()[0] = 1 + 0x1p-11 + 0x1p-40;
    x.data<double>()[1] = std::numeric_limits<double>::quiet_NaN();
    const Tensor half = convert(x, DType::f16);
    EXPECT_EQ(half.data<std::uint16_t>()[0], 0x3c01);
    EXPECT_TRUE(std::isnan(f16_to_f32(half.data<std::uint16_t>()[1])));
}

TEST(Convert, EdgesAndMistakes) {
    Tensor x(DType::f32, {3});
    EXPECT_THROW(convert(x, DType::i32), Error);
    EXPECT_THROW(convert(Tensor(DType::i32, {3}), DType::f32), Error);
    EXPECT_THROW(convert(ConstTensorView(), DType::f32), Error);
    EXPECT_THROW(convert(ConstTensorView(nullptr, DType::f32, {3}), DType::f32), Error);
    EXPECT_EQ(convert(ConstTensorView(nullptr, DType::f32, {std::int64_t{1} << 40, 0}), DType::f16).count(), 0);
    float scalar = 2.5f;
    EXPECT_EQ(convert(ConstTensorView(&scalar, DType::f32, {}), DType::f64).data<double>()[0], 2.5);
    const Tensor repeated = convert(ConstTensorView(&scalar, DType::f32, {2, 3}, {0, 0}), DType::f32);
    for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(repeated.data<float>()[i], 2.5f) << "a broadcast view";
}

}  // namespace
}  // namespace headwise
