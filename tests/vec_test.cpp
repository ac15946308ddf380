// Every operation of kernels/vec.h, on every ISA, lane by lane against a scalar model.
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "guarded.h"
#include "vec_fixture.h"

namespace headwise {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Zeros, denormals, extremes, infinities, NaN of all kinds and a few plain numbers.
const std::vector<float>& special_values() {
    static const std::vector<float> values = {0.0f,
                                              -0.0f,
                                              1.0f,
                                              -1.0f,
                                              0x1p-149f,
                                              -0x1p-149f,
                                              0x1.fffffcp-127f,
                                              0x1p-126f,
                                              0x1.fffffep127f,
                                              -0x1.fffffep127f,
                                              kInf,
                                              -kInf,
                                              std::bit_cast<float>(0x7fc00000u),
                                              std::bit_cast<float>(0xffc54321u),
                                              kSignalling,
                                              1.5f,
                                              -2.5f,
                                              0.1f,
                                              3.0e-5f,
                                              65519.0f,
                                              -65520.0f,
                                              1.0f + 0x1p-12f,
                                              1.0f - 0x1p-12f};
    return values;
}

// Calls check(a, b) with rows of lanes that together hold every pair of special values, in changing lanes.
template <class Check>
void for_all_pairs(int lanes, Check check) {
    const std::vector<float>& values = special_values();
    std::vector<float> a, b;
    for (std::size_t shift = 0; shift < values.size(); ++shift) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            a.push_back(values[i]);
            b.push_back(values[(i + shift) % values.size()]);
        }
    }
    for (std::size_t i = 0; i + static_cast<std::size_t>(lanes) <= a.size(); ++i) check(&a[i], &b[i]);
}

template <class Model>
void expect_binary(int lanes, VecOps::Binary op, Model model, bool exact_bits) {
    std::vector<float> out(static_cast<std::size_t>(lanes));
    for_all_pairs(lanes, [&](const float* a, const float* b) {
        op(out.data(), a, b);
        for (int i = 0; i < lanes; ++i) {
            const float got = out[static_cast<std::size_t>(i)], want = model(a[i], b[i]);
            ASSERT_TRUE(bits(got) == bits(want) || (!exact_bits && same_number(got, want)))
                << "lane " << i << " of " << a[i] << ", " << b[i] << ": " << got << ", expected " << want;
        }
    });
}

TEST_P(VecTest, Arithmetic) {
    expect_binary(
        lanes, ops.add, [](float a, float b) { return a + b; }, false);
    expect_binary(
        lanes, ops.sub, [](float a, float b) { return a - b; }, false);
    expect_binary(
        lanes, ops.mul, [](float a, float b) { return a * b; }, false);
    expect_binary(
        lanes, ops.div, [](float a, float b) { return a / b; }, false);
}

TEST_P(VecTest, FmaRoundsOnceWhereTheIsaFuses) {
    std::vector<float> out = lanes_of();
    for (const float c : special_values()) {
        const std::vector<float> third = lanes_of(c);
        for_all_pairs(lanes, [&](const float* a, const float* b) {
            ops.fma(out.data(), a, b, third.data());
            for (int i = 0; i < lanes; ++i) {
                const float want = fuses() ? std::fma(a[i], b[i], c) : a[i] * b[i] + c;
                ASSERT_TRUE(same_number(out[static_cast<std::size_t>(i)], want))
                    << a[i] << " * " << b[i] << " + " << c;
            }
        });
    }
}

TEST_P(VecTest, MaxTakesTheSecondWhereNotGreater) {
    expect_binary(
        lanes, ops.max, [](float a, float b) { return a > b ? a : b; }, true);
}

TEST_P(VecTest, LessIsFalseForNan) {
    expect_binary(
        lanes, ops.less, [](float a, float b) { return a < b ? 1.0f : 0.0f; }, true);
}

TEST_P(VecTest, ZeroAndSet1) {
    std::vector<float> out = lanes_of(1);
    ops.zero(out.data(), 0);
    for (const float x : out) EXPECT_EQ(bits(x), 0u);
    for (const float value : special_values()) {
        ops.set1(out.data(), value);
        for (const float x : out) EXPECT_EQ(bits(x), bits(value));
    }
}

TEST_P(VecTest, SelectKeepsEveryPayload) {
    std::vector<float> out = lanes_of();
    const auto count = static_cast<std::size_t>(lanes);
    for_all_pairs(lanes, [&](const float* a, const float* b) {
        for (unsigned pattern : {0u, 0xffffu, 0x5a35u, 0xa5cau, 1u, 0x8000u, 8u}) {
            std::vector<std::uint8_t> mask(count);
            for (std::size_t i = 0; i < count; ++i) mask[i] = (pattern >> i & 1u) != 0 ? 1 : 0;
            ops.select(out.data(), mask.data(), a, b);
            for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(bits(out[i]), bits(mask[i] != 0 ? a[i] : b[i]));
        }
    });
}

TEST_P(VecTest, MasksOfBytesAndOfCounts) {
    const auto count = static_cast<std::size_t>(lanes);
    const std::uint8_t values[] = {0, 1, 255, 0, 128, 0, 0, 2, 64, 0, 16};
    std::vector<float> out = lanes_of();
    for (std::size_t n = 0; n <= count; ++n) {
        for (const auto place : {Guarded<std::uint8_t>::at_start, Guarded<std::uint8_t>::at_end}) {
            const Guarded<std::uint8_t> bytes(n, place);
            for (std::size_t shift = 0; shift < std::size(values); ++shift) {
                for (std::size_t i = 0; i < n; ++i) bytes.data()[i] = values[(i + shift) % std::size(values)];
                ops.mask_of_bytes(out.data(), bytes.data(), static_cast<int>(n));
                for (std::size_t i = 0; i < count; ++i) {
                    ASSERT_EQ(out[i], i < n && bytes.data()[i] != 0 ? 1.0f : 0.0f) << "lane " << i << " of " << n;
                }
            }
        }
        ops.first_n(out.data(), static_cast<int>(n));
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], i < n ? 1.0f : 0.0f);
    }
}

TEST_P(VecTest, MaskAndAny) {
    const auto count = static_cast<std::size_t>(lanes);
    std::vector<float> out = lanes_of();
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<std::uint8_t> one(count), others(count, 1), none(count);
        one[i] = 1;
        others[i] = 0;
        EXPECT_TRUE(ops.any(one.data()));
        EXPECT_TRUE(ops.any(others.data()));
        EXPECT_FALSE(ops.any(none.data()));
        ops.mask_and(out.data(), one.data(), others.data());
        for (const float x : out) EXPECT_EQ(x, 0.0f);
        const std::vector<std::uint8_t> every(count, 1);
        ops.mask_and(out.data(), one.data(), every.data());
        for (std::size_t j = 0; j < count; ++j) EXPECT_EQ(out[j], i == j ? 1.0f : 0.0f);
    }
}

TEST_P(VecTest, RoundToNearestEven) {
    std::vector<float> values = {0.5f,         1.5f,       2.5f,        -0.5f,  -1.5f,   -2.5f,   0.49999997f,
                                 -0.49999997f, 4194303.5f, -4194303.5f, 126.5f, -126.5f, -127.0f, 0.0f,
                                 1.0f,         0x1p-149f,  3.7f,        -3.7f,  3.2f,    -3.2f};
    std::vector<float> out = lanes_of();
    for (const float value : values) {
        ops.round(out.data(), lanes_of(value).data());
        for (const float x : out) EXPECT_EQ(x, std::nearbyint(value)) << value;
    }
    ops.round(out.data(), lanes_of(kSignalling).data());
    for (const float x : out) EXPECT_TRUE(std::isnan(x));
}

TEST_P(VecTest, TimesPow2) {
    std::vector<float> out = lanes_of();
    for (const float value :
         {1.0f, -1.0f, 0.70710677f, 1.4142135f, 0.0f, -0.0f, 3.0f, 1.9999999f, kInf, 0x1p-149f}) {
        for (int n = -126; n <= 127; ++n) {
            ops.times_pow2(out.data(), lanes_of(value).data(), lanes_of(static_cast<float>(n)).data());
            for (const float x : out) ASSERT_EQ(bits(x), bits(std::ldexp(value, n))) << value << " * 2^" << n;
        }
        if (std::isinf(value)) continue;
        ops.times_pow2(out.data(), lanes_of(value).data(), lanes_of(-127).data());
        for (const float x : out) ASSERT_EQ(x, 0.0f) << value;
    }
    for (const float n : {-127.0f, 0.0f, 127.0f, std::bit_cast<float>(0x7fc00000u), kSignalling}) {
        ops.times_pow2(out.data(), lanes_of(std::bit_cast<float>(0x7fc00000u)).data(), lanes_of(n).data());
        for (const float x : out) ASSERT_TRUE(std::isnan(x)) << n;
    }
}

// The tree of sum() and max_lane(): lane i with lane i + width, width halving to 1.
template <class Join>
float halving_tree(std::vector<float> lane, Join join) {
    for (std::size_t width = lane.size() / 2; width > 0; width /= 2) {
        for (std::size_t i = 0; i < width; ++i) lane[i] = join(lane[i], lane[i + width]);
    }
    return lane[0];
}

TEST_P(VecTest, ReductionsFollowTheHalvingTree) {
    const auto plus = [](float a, float b) { return a + b; };
    const auto larger = [](float a, float b) { return a > b ? a : b; };
    std::uint32_t state = 1;
    for (int round = 0; round < 200; ++round) {
        std::vector<float> a = lanes_of();
        for (float& x : a) {
            state = state * 1664525u + 1013904223u;
            x = std::ldexp(static_cast<float>(static_cast<std::int32_t>(state)),
                           static_cast<int>(state >> 8 & 31u) - 40);
        }
        ASSERT_EQ(bits(ops.sum(a.data())), bits(halving_tree(a, plus)));
        ASSERT_EQ(bits(ops.max_lane(a.data())), bits(halving_tree(a, larger)));
    }
    for_all_pairs(lanes, [&](const float* a, const float*) {
        const std::vector<float> row(a, a + lanes);
        ASSERT_TRUE(same_number(ops.sum(a), halving_tree(row, plus)));
        ASSERT_EQ(bits(ops.max_lane(a)), bits(halving_tree(row, larger)));
    });
}

TEST_P(VecTest, TwiceAndSwapPairsMoveLanes) {
    std::vector<float> a = lanes_of(), out = a;
    for (int i = 0; i < lanes; ++i) a[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
    ops.twice(out.data(), a.data());
    for (int i = 0; i < lanes; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], static_cast<float>(i / 2 + 1));
    ops.swap_pairs(out.data(), a.data());
    for (int i = 0; i < lanes; ++i) {
        EXPECT_EQ(out[static_cast<std::size_t>(i)], static_cast<float>(i % 2 == 0 ? i + 2 : i));
    }
}

TEST_P(VecTest, Transpose) {
    const auto count = static_cast<std::size_t>(lanes);
    std::vector<float> rows(count * count);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    ops.transpose(rows.data());
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t j = 0; j < count; ++j) ASSERT_EQ(rows[i * count + j], static_cast<float>(j * count + i));
    }
}

TEST_P(VecTest, PinAndPrefetchChangeNothing) {
    std::vector<float> out = lanes_of();
    for_all_pairs(lanes, [&](const float* a, const float*) {
        ops.pin(out.data(), a);
        for (int i = 0; i < lanes; ++i) ASSERT_EQ(bits(out[static_cast<std::size_t>(i)]), bits(a[i]));
    });
    ops.prefetch(nullptr);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, VecTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise
