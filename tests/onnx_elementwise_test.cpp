// ONNX RotaryEmbedding and RMSNormalization beyond the node tests: memory, broadcasting and what is refused.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/onnx.h>

#include "core/dtype.h"
#include "matrix.h"
#include "refused.h"

namespace headwise {
namespace {

Tensor random(DType dtype, const std::vector<std::int64_t>& sizes, std::uint64_t seed) {
    Tensor tensor(dtype, sizes);
    Numbers numbers(seed);
    for (std::int64_t i = 0; i < tensor.count(); ++i) store_f64(tensor.view().data, dtype, i, numbers.next());
    return tensor;
}

std::vector<double> values(const ConstTensorView& view) {
    const Tensor wide = convert(view, DType::f64);
    return {wide.data<double>(), wide.data<double>() + wide.count()};
}

TEST(OnnxRotary, InPlaceAndFromAnyStrides) {
    const Tensor x = random(DType::f32, {2, 3, 4, 10}, 1), cos = random(DType::f32, {9, 3}, 2),
                 sin = random(DType::f32, {9, 3}, 3);
    const std::int64_t positions[] = {0, 8, 2, 2, 5, 1, 1, 0};
    const ConstTensorView ids(positions, DType::i64, {2, 4});
    for (const bool interleaved : {false, true}) {
        const onnx::RotaryAttributes attributes{.interleaved = interleaved, .rotary_embedding_dim = 6};
        Tensor y(DType::f32, {2, 3, 4, 10}), in_place = convert(x, DType::f32), turned(DType::f32, {2, 4, 3, 10});
        onnx::rotary_embedding(x, cos, sin, ids, y, attributes);
        onnx::rotary_embedding(in_place, cos, sin, ids, in_place, attributes);
        EXPECT_EQ(values(in_place), values(y));
        onnx::rotary_embedding(x, cos, sin, ids, turned.view().swap_axes(1, 2), attributes);
        EXPECT_EQ(values(turned.view().swap_axes(1, 2)), values(y));
        for (std::int64_t n = 0; n < 2 * 3 * 4; ++n) {
            const float *from = x.data<float>() + n * 10, *got = y.data<float>() + n * 10;
            const std::int64_t row = positions[n / 12 * 4 + n % 4] * 3;
            for (std::int64_t i = 0; i < 3; ++i) {
                const std::int64_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + 3;
                const double c = cos.data<float>()[row + i], s = sin.data<float>()[row + i];
                EXPECT_NEAR(got[a], from[a] * c - from[b] * s, 1e-6);
                EXPECT_NEAR(got[b], from[a] * s + from[b] * c, 1e-6);
            }
            for (std::int64_t i = 6; i < 10; ++i) EXPECT_EQ(got[i], from[i]);
        }
    }
}

TEST(OnnxRotary, RefusesWhatDoesNotFit) {
    const Tensor x = random(DType::f32, {1, 2, 3, 8}, 1), flat = random(DType::f32, {1, 3, 16}, 1),
                 cos = random(DType::f32, {5, 4}, 2), by_token = random(DType::f32, {1, 3, 4}, 2),
                 wide = random(DType::f64, {1, 2, 3, 8}, 1);
    Tensor y(DType::f32, {1, 2, 3, 8}), y3(DType::f32, {1, 3, 16});
    const std::int64_t positions[] = {0, 4, 5};
    const ConstTensorView ids(positions, DType::i64, {1, 3});
    const auto refuse = [&](auto call, const char* words) { expect_refused(call, words); };
    refuse([&] { onnx::rotary_embedding(x, cos, cos, {}, y); }, "a row for each token");
    refuse([&] { onnx::rotary_embedding(x, cos, cos, ids, y); }, "stands at position 5");
    refuse([&] { onnx::rotary_embedding(x, by_token, by_token, ids, y); }, "read by position");
    refuse([&] { onnx::rotary_embedding(x, by_token, by_token, {}, y, {.rotary_embedding_dim = 6}); }, "R/2 = 3");
    refuse([&] { onnx::rotary_embedding(x, by_token, by_token, {}, y, {.rotary_embedding_dim = 5}); }, "even");
    refuse([&] { onnx::rotary_embedding(flat, by_token, by_token, {}, y3); }, "give num_heads");
    refuse([&] { onnx::rotary_embedding(flat, by_token, by_token, {}, y3, {.num_heads = 3}); }, "does not divide");
    refuse([&] { onnx::rotary_embedding(x, by_token, by_token, {}, y3); }, "the sizes of X");
    refuse([&] { onnx::rotary_embedding(wide, by_token, by_token, {}, y); }, "expected f32, bf16 or f16");
    for (const double number : values(y)) EXPECT_EQ(number, 0) << "memory was touched";
}

// A scale that differs between the groups of normalized numbers, and one that repeats inside a group.
TEST(OnnxRms, ScaleBroadcastsToX) {
    const Tensor x = random(DType::f32, {2, 3, 4, 5}, 1);
    const Tensor scalar = random(DType::f32, {}, 2);
    for (const auto& sizes :
         {std::vector<std::int64_t>{}, {5}, {1}, {4, 1}, {3, 4, 5}, {2, 1, 1, 5}, {2, 3, 1, 1}}) {
        const Tensor scale = random(DType::bf16, sizes, 3);
        for (const int axis : {-1, 2, -3, 0}) {
            Tensor y(DType::f32, {2, 3, 4, 5});
            onnx::rms_normalization(x, scale, y, {.axis = axis, .epsilon = 0.01});
            std::int64_t width = 1;
            for (int i = axis < 0 ? axis + 4 : axis; i < 4; ++i) width *= x.size(i);
            for (std::int64_t n = 0; n < x.count(); ++n) {
                double squares = 0;
                for (std::int64_t i = 0; i < width; ++i) {
                    squares += std::pow(static_cast<double>(x.data<float>()[n / width * width + i]), 2);
                }
                std::int64_t at = 0, rest = n, step = 1;
                for (std::size_t own = sizes.size(); own-- > 0;) {
                    const std::int64_t size = x.size(static_cast<int>(4 - sizes.size() + own));
                    if (sizes[own] != 1) at += rest % size * step;
                    step *= sizes[own], rest /= size;
                }
                const double want = x.data<float>()[n] / std::sqrt(squares / static_cast<double>(width) + 0.01) *
                                    load_f64(scale.view().data, DType::bf16, at);
                EXPECT_NEAR(y.data<float>()[n], want, 1e-6 * std::abs(want)) << n << " axis " << axis;
            }
        }
    }
}

TEST(OnnxRms, InPlaceFromAnyStridesAndInHalfTypes) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        const Tensor x = random(dtype, {3, 4}, 1), scale = random(DType::f32, {4}, 2);
        Tensor y(dtype, {3, 4}), in_place = convert(x, dtype), other(dtype, {3, 4});
        onnx::rms_normalization(x, scale, y);
        onnx::rms_normalization(in_place, scale, in_place);
        EXPECT_EQ(values(in_place), values(y));
        const Tensor columns = convert(x.view().swap_axes(0, 1), dtype);
        onnx::rms_normalization(columns.view().swap_axes(0, 1), scale, other);
        EXPECT_EQ(values(other), values(y));
    }
}

TEST(OnnxRms, RefusesWhatDoesNotFit) {
    const Tensor x = random(DType::f32, {3, 4}, 1), scale = random(DType::f32, {4}, 2),
                 three = random(DType::f32, {3}, 2), deep = random(DType::f32, {1, 3, 4}, 2);
    Tensor y(DType::f32, {3, 4}), tall(DType::f32, {4, 3});
    const std::int64_t integers[4] = {};
    expect_refused([&] { onnx::rms_normalization(x, three, y); }, "broadcasts to X");
    expect_refused([&] { onnx::rms_normalization(x, deep, y); }, "broadcasts to X");
    expect_refused([&] { onnx::rms_normalization(x, {}, y); }, "broadcasts to X");
    expect_refused([&] { onnx::rms_normalization(x, {integers, DType::i64, {4}}, y); }, "float tensor");
    expect_refused([&] { onnx::rms_normalization(x, scale, tall); }, "the sizes of X");
    expect_refused([&] { onnx::rms_normalization(x, scale, tall.view().swap_axes(0, 1)); }, "dense");
    expect_refused([&] { onnx::rms_normalization(x, scale, y, {.axis = 2}); }, "axis is 2");
    expect_refused([&] { onnx::rms_normalization(x, scale, y, {.axis = -3}); }, "axis is -3");
    expect_refused([&] { onnx::rms_normalization(x, scale, y, {.epsilon = -1}); }, "epsilon is -1");
    for (const double number : values(y)) EXPECT_EQ(number, 0) << "memory was touched";
}

}  // namespace
}  // namespace headwise
