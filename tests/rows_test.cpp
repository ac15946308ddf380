// RowKernels: every storage type, every length around the lane edges, rows at forbidden pages.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include <gtest/gtest.h>

#include "core/dtype.h"
#include "guarded.h"
#include "isas.h"

namespace headwise {
namespace {

constexpr Storage kStorages[] = {Storage::f32, Storage::bf16, Storage::f16};

DType dtype_of(Storage storage) {
    return storage == Storage::f32 ? DType::f32 : storage == Storage::bf16 ? DType::bf16 : DType::f16;
}

float load_one(const void* data, Storage storage, std::int64_t index) {
    return static_cast<float>(load_f64(data, dtype_of(storage), index));
}

// Memory for `count` elements, which begin or end at a forbidden page.
class Row {
public:
    using Bytes = Guarded<char>;

    Row(Storage storage, std::int64_t count, Bytes::Place place)
        : storage_(storage), bytes_(static_cast<std::size_t>(count) * size_of(dtype_of(storage)), place) {}
    void* data() const { return bytes_.data(); }
    float operator[](std::int64_t i) const { return load_one(data(), storage_, i); }
    void set(std::int64_t i, float value) const { store_f64(data(), dtype_of(storage_), i, value); }

private:
    Storage storage_;
    Bytes bytes_;
};

// Deterministic numbers in [-4, 4) that need rounding in every half type.
float number(std::int64_t i) { return static_cast<float>((i * 7919 + 12345) % 65536) * 0x1p-13f - 4.0f; }

class RowsTest : public IsaTest {
protected:
    // 0, 1, and both sides of every multiple of the lanes up to five registers.
    static std::vector<std::int64_t> counts() {
        std::vector<std::int64_t> all = {0, 1, 2, 3};
        for (std::int64_t edge = table().lanes; edge <= 5 * table().lanes; edge += table().lanes) {
            for (const std::int64_t count : {edge - 1, edge, edge + 1}) all.push_back(count);
        }
        return all;
    }
    template <class Body>
    static void for_all_rows(Body body) {
        for (const Storage storage : kStorages) {
            for (const std::int64_t count : counts()) {
                body(storage, count, Row::Bytes::at_start);
                body(storage, count, Row::Bytes::at_end);
            }
        }
    }
};

TEST_P(RowsTest, WidenIsExact) {
    for_all_rows([](Storage storage, std::int64_t count, Row::Bytes::Place place) {
        const Row from(storage, count, place), to(Storage::f32, count, place);
        for (std::int64_t i = 0; i < count; ++i) from.set(i, number(i));
        table().rows.widen(static_cast<float*>(to.data()), from.data(), storage, count);
        for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(to[i], from[i]) << i << " of " << count;
    });
}

TEST_P(RowsTest, NarrowRoundsLikeCore) {
    for_all_rows([](Storage storage, std::int64_t count, Row::Bytes::Place place) {
        const Row from(Storage::f32, count, place), to(storage, count, place), want(storage, count, place);
        for (std::int64_t i = 0; i < count; ++i) {
            from.set(i, number(i));
            want.set(i, number(i));
        }
        table().rows.narrow(to.data(), storage, static_cast<const float*>(from.data()), count);
        for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(to[i], want[i]) << i << " of " << count;
    });
}

TEST_P(RowsTest, SpecialNumbersPassThroughConversions) {
    const float specials[] = {0.0f,    -0.0f,    INFINITY, -INFINITY, NAN,
                              1.0e30f, -1.0e30f, 1.0e-40f, 65519.0f,  65520.0f};
    const auto count = static_cast<std::int64_t>(std::size(specials));
    for (const Storage storage : kStorages) {
        const Row narrow(storage, count, Row::Bytes::at_end), wide(Storage::f32, count, Row::Bytes::at_end);
        table().rows.narrow(narrow.data(), storage, specials, count);
        table().rows.widen(static_cast<float*>(wide.data()), narrow.data(), storage, count);
        for (std::int64_t i = 0; i < count; ++i) {
            const Row one(storage, 1, Row::Bytes::at_end);
            one.set(0, specials[i]);
            if (std::isnan(specials[i])) {
                EXPECT_TRUE(std::isnan(wide[i]));
            } else {
                EXPECT_EQ(wide[i], one[0]);
                EXPECT_EQ(std::signbit(wide[i]), std::signbit(one[0]));
            }
        }
    }
}

// The rotation is defined by single f32 roundings, so every ISA gives the same bits.
TEST_P(RowsTest, RotateHalf) {
    for_all_rows([](Storage storage, std::int64_t half, Row::Bytes::Place place) {
        const Row row(storage, 2 * half, place), cos(Storage::f32, half, place), sin(Storage::f32, half, place);
        const Row want(storage, 2 * half, place);
        for (std::int64_t i = 0; i < half; ++i) {
            row.set(i, number(i));
            row.set(half + i, number(i + 1000));
            cos.set(i, std::cos(static_cast<float>(i)));
            sin.set(i, std::sin(static_cast<float>(i)));
            const float a = row[i], b = row[half + i];
            want.set(i, a * cos[i] - b * sin[i]);
            want.set(half + i, b * cos[i] + a * sin[i]);
        }
        table().rows.rotate_half(row.data(), storage, static_cast<const float*>(cos.data()),
                                 static_cast<const float*>(sin.data()), half);
        for (std::int64_t i = 0; i < 2 * half; ++i) ASSERT_EQ(row[i], want[i]) << i << " of half " << half;
    });
}

TEST_P(RowsTest, RotateHalfLeavesTheRestOfTheRow) {
    const std::int64_t half = table().lanes + 3, rest = 5;
    std::vector<float> row(static_cast<std::size_t>(2 * half + rest), 7.0f),
        one(static_cast<std::size_t>(half), 0.5f);
    table().rows.rotate_half(row.data(), Storage::f32, one.data(), one.data(), half);
    for (std::int64_t i = 0; i < half; ++i) EXPECT_EQ(row[static_cast<std::size_t>(i)], 0.0f);
    for (std::int64_t i = half; i < 2 * half; ++i) EXPECT_EQ(row[static_cast<std::size_t>(i)], 7.0f);
    for (std::int64_t i = 2 * half; i < 2 * half + rest; ++i) EXPECT_EQ(row[static_cast<std::size_t>(i)], 7.0f);
}

TEST_P(RowsTest, RotateInterleaved) {
    for_all_rows([](Storage storage, std::int64_t half, Row::Bytes::Place place) {
        const Row row(storage, 2 * half, place), cos(Storage::f32, half, place), sin(Storage::f32, half, place);
        const Row want(storage, 2 * half, place);
        for (std::int64_t i = 0; i < half; ++i) {
            row.set(2 * i, number(i));
            row.set(2 * i + 1, number(i + 1000));
            cos.set(i, std::cos(static_cast<float>(i)));
            sin.set(i, std::sin(static_cast<float>(i)));
            const float a = row[2 * i], b = row[2 * i + 1];
            want.set(2 * i, a * cos[i] - b * sin[i]);
            want.set(2 * i + 1, b * cos[i] + a * sin[i]);
        }
        table().rows.rotate_interleaved(row.data(), storage, static_cast<const float*>(cos.data()),
                                        static_cast<const float*>(sin.data()), half);
        for (std::int64_t i = 0; i < 2 * half; ++i) ASSERT_EQ(row[i], want[i]) << i << " of half " << half;
    });
}

// f64 sums of up to 5 * 16 numbers: the order changes only the last bits of 53.
TEST_P(RowsTest, SumsAreFromF64) {
    for_all_rows([](Storage storage, std::int64_t count, Row::Bytes::Place place) {
        const Row row(storage, count, place);
        double sum = 0, size = 0, squares = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            row.set(i, number(i) * (i % 3 == 0 ? 1000.0f : 0.001f));
            const double x = row[i];
            sum += x;
            size += std::abs(x);
            squares += (x - 0.3) * (x - 0.3);
        }
        EXPECT_NEAR(table().rows.sum(row.data(), storage, count), sum, 0x1p-48 * size) << count;
        EXPECT_NEAR(table().rows.sum_squares(row.data(), storage, count, 0.3), squares, 0x1p-48 * squares)
            << count;
    });
}

TEST_P(RowsTest, SumsHaveTheSameBitsOnEveryIsa) {
    std::vector<float> row(579);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = std::sin(static_cast<float>(i)) * 1.0e3f;
    const auto count = static_cast<std::int64_t>(row.size());
    for (const KernelTable* other : test_tables()) {
        EXPECT_EQ(table().rows.sum(row.data(), Storage::f32, count),
                  other->rows.sum(row.data(), Storage::f32, count));
        EXPECT_EQ(table().rows.sum_squares(row.data(), Storage::f32, count, 0.7),
                  other->rows.sum_squares(row.data(), Storage::f32, count, 0.7));
    }
}

// Squares of these leave the range of f32.
TEST_P(RowsTest, SumsOfTinyAndHugeNumbers) {
    const std::vector<float> tiny(20, 1.0e-30f), huge(20, 1.0e30f);
    const auto square = [](float x) { return static_cast<double>(x) * static_cast<double>(x); };
    EXPECT_DOUBLE_EQ(table().rows.sum_squares(tiny.data(), Storage::f32, 20, 0), 20 * square(1.0e-30f));
    EXPECT_DOUBLE_EQ(table().rows.sum_squares(huge.data(), Storage::f32, 20, 0), 20 * square(1.0e30f));
}

TEST_P(RowsTest, NormalizeRoundsEachStepOnce) {
    for_all_rows([](Storage storage, std::int64_t count, Row::Bytes::Place place) {
        const Row weight(Storage::f32, count, place), bias(Storage::f32, count, place);
        for (std::int64_t i = 0; i < count; ++i) {
            weight.set(i, number(i + 77));
            bias.set(i, number(i + 99));
        }
        const double mean = 0.1;
        const auto high = static_cast<float>(mean), low = static_cast<float>(mean - static_cast<double>(high));
        for (int parts = 0; parts < 4; ++parts) {
            const Row row(storage, count, place), want(storage, count, place);
            const bool weighted = (parts & 1) != 0, biased = (parts & 2) != 0;
            for (std::int64_t i = 0; i < count; ++i) {
                row.set(i, number(i));
                float y = (row[i] - high - low) * 1.7f;
                if (weighted) y = y * weight[i];
                if (biased) y = y + bias[i];
                want.set(i, y);
            }
            table().rows.normalize(row.data(), storage, count,
                                   {.mean = mean,
                                    .factor = 1.7f,
                                    .weight = weighted ? static_cast<const float*>(weight.data()) : nullptr,
                                    .bias = biased ? static_cast<const float*>(bias.data()) : nullptr});
            for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(row[i], want[i]) << i << " parts " << parts;
        }
    });
}

TEST_P(RowsTest, ClipClampsAndKeepsNan) {
    for_all_rows([](Storage storage, std::int64_t count, Row::Bytes::Place place) {
        const Row row(storage, count, place), want(storage, count, place);
        for (std::int64_t i = 0; i < count; ++i) {
            row.set(i, number(i));
            want.set(i, std::min(std::max(row[i], -1.25f), 1.25f));
        }
        table().rows.clip(row.data(), storage, count, 1.25f);
        for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(row[i], want[i]) << i << " of " << count;
    });
    float special[] = {NAN, INFINITY, -INFINITY, -0.0f};
    table().rows.clip(special, Storage::f32, 4, 2.0f);
    EXPECT_TRUE(std::isnan(special[0]));
    EXPECT_EQ(special[1], 2.0f);
    EXPECT_EQ(special[2], -2.0f);
    EXPECT_EQ(special[3], 0.0f);
}

TEST_P(RowsTest, GateMultipliesByTheSigmoid) {
    for_all_rows([](Storage storage, std::int64_t count, Row::Bytes::Place place) {
        const Row row(storage, count, place), gate(storage, count, place);
        std::vector<double> want(static_cast<std::size_t>(count)), bound = want;
        const double ut = storage == Storage::f32 ? 0x1p-24 : storage == Storage::bf16 ? 0x1p-8 : 0x1p-11;
        for (std::int64_t i = 0; i < count; ++i) {
            row.set(i, number(i));
            gate.set(i, number(i + 40) * 5.0f);
            const double g = gate[i], y = row[i] / (1 + std::exp(-g));
            const double f16 = storage == Storage::f16 ? 0x1p-25 : 0;
            want[static_cast<std::size_t>(i)] = y;
            bound[static_cast<std::size_t>(i)] = ((5 + std::abs(g)) * 0x1p-24 + ut) * std::abs(y) + f16;
        }
        table().rows.gate(row.data(), storage, gate.data(), count);
        for (std::int64_t i = 0; i < count; ++i) {
            ASSERT_NEAR(row[i], want[static_cast<std::size_t>(i)], bound[static_cast<std::size_t>(i)]) << gate[i];
        }
    });
    float row[] = {3.0f, 3.0f, 3.0f, 3.0f, 3.0f};
    const float gates[] = {0.0f, 1.0e30f, -1.0e30f, NAN, -INFINITY};
    table().rows.gate(row, Storage::f32, gates, 5);
    EXPECT_EQ(row[0], 1.5f);
    EXPECT_EQ(row[1], 3.0f);
    EXPECT_EQ(row[2], 0.0f);
    EXPECT_TRUE(std::isnan(row[3]));
    EXPECT_EQ(row[4], 0.0f);
}

TEST_P(RowsTest, SubtractRoundsEachStepOnce) {
    for_all_rows([](Storage storage, std::int64_t count, Row::Bytes::Place place) {
        const Row row(storage, count, place), other(storage, count, place), want(storage, count, place);
        for (std::int64_t i = 0; i < count; ++i) {
            row.set(i, number(i));
            other.set(i, number(i + 500));
            const float product = 0.7f * other[i];
            want.set(i, row[i] - product);
        }
        table().rows.subtract(row.data(), storage, other.data(), count, 0.7f);
        for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(row[i], want[i]) << i << " of " << count;
    });
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, RowsTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise
