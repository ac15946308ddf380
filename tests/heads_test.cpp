// Stages 2 and 4: bands, the head map, rotation.
#include <cmath>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "core/dtype.h"
#include "heads/bands.h"
#include "heads/rope.h"
#include "isas.h"

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

TEST(RopeTable, MatchesTheFormulaInsideAndBeyondThePages) {
    const auto table = RopeTable::shared(10000.0, 8);
    std::vector<float> beyond(8);
    for (const std::int64_t position : {0, 1, 63, 64, 65, 32767, 32768, 1'000'000, -1, -70}) {
        const float* row = table->find(position);
        EXPECT_EQ(row == nullptr, position < 0 || position >= 32768) << position;
        if (row == nullptr) {
            table->fill(position, beyond.data());
            row = beyond.data();
        }
        for (int i = 0; i < 4; ++i) {
            const double angle = static_cast<double>(position) / std::pow(10000.0, i / 4.0);
            // The frequency's last bit counts in the angle: 2^-52 relative, and one rounding to f32.
            const double bound = 0x1p-24 + 0x1p-51 * std::abs(angle);
            EXPECT_NEAR(row[i], std::cos(angle), bound) << position << " " << i;
            EXPECT_NEAR(row[4 + i], std::sin(angle), bound) << position << " " << i;
        }
    }
    EXPECT_EQ(table, RopeTable::shared(10000.0, 8));
    EXPECT_NE(table, RopeTable::shared(10000.0, 16));
}

// The rotation of one pair in f64.
void rotated(double a, double b, double angle, double* to) {
    to[0] = a * std::cos(angle) - b * std::sin(angle);
    to[1] = b * std::cos(angle) + a * std::sin(angle);
}

TEST(Rotate, TurnsHalfSplitPairsByTheirPosition) {
    for (const KernelTable* kernels : test_tables()) {
        for (const std::int64_t dim : {2, 6, 16, 30, 64, 130}) {
            constexpr std::int64_t kBatch = 2, kTokens = 3, kHeads = 2;
            const std::int64_t width = kHeads * dim + 3;  // 3 columns of other bands
            std::vector<float> memory(static_cast<std::size_t>(kBatch * kTokens * width));
            for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = std::sin(static_cast<float>(i) * 0.7f);
            const std::vector<float> before = memory;
            const TensorView rows(memory.data(), DType::f32, {kBatch, kTokens, width});
            const TensorView heads = split_heads(rows, {0, kHeads, dim});
            const std::int64_t positions[kBatch * kTokens] = {5, 0, 40000, -3, 7, 7};
            const ConstTensorView given(positions, DType::i64, {kBatch, kTokens});
            const auto table = RopeTable::shared(500.0, dim);
            rotate(*kernels, heads, *table, given, {});

            for (std::int64_t row = 0; row < kBatch * kTokens; ++row) {
                const auto at = [&](const std::vector<float>& m, std::int64_t h, std::int64_t i) {
                    return m[static_cast<std::size_t>(row * width + h * dim + i)];
                };
                for (std::int64_t h = 0; h < kHeads; ++h) {
                    for (std::int64_t i = 0; i < dim / 2; ++i) {
                        const double a = at(before, h, i), b = at(before, h, i + dim / 2);
                        const double frequency =
                            std::pow(500.0, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
                        double expected[2];
                        rotated(a, b, static_cast<double>(positions[row]) * frequency, expected);
                        const double bound = 4 * 0x1p-24 * (std::abs(a) + std::abs(b));
                        EXPECT_NEAR(at(memory, h, i), expected[0], bound) << kernels->isa << " D " << dim;
                        EXPECT_NEAR(at(memory, h, i + dim / 2), expected[1], bound)
                            << kernels->isa << " D " << dim;
                    }
                }
                for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(at(memory, kHeads, i), at(before, kHeads, i));
            }
        }
    }
}

TEST(Rotate, PositionsMayBeLeftOutOrGivenPerToken) {
    for (const KernelTable* kernels : test_tables()) {
        std::vector<float> given(2 * 4 * 8, 0.5f), counted = given;
        const std::int32_t positions[] = {0, 1, 2, 3};
        const auto table = RopeTable::shared(10000.0, 8);
        rotate(*kernels, TensorView(given.data(), DType::f32, {2, 4, 1, 8}), *table,
               ConstTensorView(positions, DType::i32, {4}), {});
        rotate(*kernels, TensorView(counted.data(), DType::f32, {2, 4, 1, 8}), *table, {}, {.threads = 2});
        EXPECT_EQ(given, counted) << kernels->isa;
        EXPECT_NE(given[8], 0.5f);
    }
}

TEST(Rotate, HalfTypesRoundOnce) {
    for (const KernelTable* kernels : test_tables()) {
        std::uint16_t row[4] = {f32_to_bf16(1.0f), f32_to_bf16(0.25f), f32_to_bf16(-0.5f), f32_to_bf16(3.0f)};
        const std::int64_t position = 2;
        rotate(*kernels, TensorView(row, DType::bf16, {1, 1, 1, 4}), *RopeTable::shared(10000.0, 4),
               ConstTensorView(&position, DType::i64, {1}), {});
        double first[2];
        rotated(1.0, -0.5, 2.0, first);
        EXPECT_NEAR(bf16_to_f32(row[0]), first[0], 0x1p-8 * std::abs(first[0])) << kernels->isa;
        EXPECT_NEAR(bf16_to_f32(row[2]), first[1], 0x1p-8 * std::abs(first[1])) << kernels->isa;
    }
}

}  // namespace
}  // namespace headwise
