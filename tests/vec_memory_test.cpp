// Loads and stores of kernels/vec.h: nothing beyond the first n lanes is touched, and conversions agree with core/dtype.h.
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "core/dtype.h"
#include "grid.h"
#include "guarded.h"
#include "vec_fixture.h"

namespace headwise {
namespace {

// n elements directly at a forbidden page, either side: load them and compare all lanes.
template <class T, class Load, class Widen>
void expect_partial_load(int lanes, Load load, Widen widen) {
    for (int n = 0; n <= lanes; ++n) {
        for (const auto place : {Guarded<T>::at_start, Guarded<T>::at_end}) {
            const Guarded<T> from(static_cast<std::size_t>(n), place);
            for (int i = 0; i < n; ++i) from.data()[i] = static_cast<T>(0x3c01 + 0x111 * i);
            std::vector<float> out(static_cast<std::size_t>(lanes), -1.0f);
            load(out.data(), from.data(), n);
            for (int i = 0; i < lanes; ++i) {
                const float want = i < n ? widen(from.data()[i]) : 0.0f;
                ASSERT_EQ(bits(out[static_cast<std::size_t>(i)]), bits(want)) << "lane " << i << " of " << n;
            }
        }
    }
}

// Stores n lanes at a forbidden page and between sentinels, at every alignment of the element.
template <class T, class Store, class Narrow>
void expect_partial_store(int lanes, Store store, Narrow narrow) {
    std::vector<float> values;
    for (int i = 0; i < lanes; ++i) values.push_back(1.25f + static_cast<float>(i));
    for (int n = 0; n <= lanes; ++n) {
        for (const auto place : {Guarded<T>::at_start, Guarded<T>::at_end}) {
            const Guarded<T> to(static_cast<std::size_t>(n), place);
            store(to.data(), values.data(), n);
            for (int i = 0; i < n; ++i) ASSERT_EQ(to.data()[i], narrow(values[static_cast<std::size_t>(i)]));
        }
        const T sentinel = static_cast<T>(0x7b7b);
        for (int offset = 0; offset < lanes; ++offset) {
            std::vector<T> to(static_cast<std::size_t>(3 * lanes), sentinel);
            store(to.data() + offset, values.data(), n);
            for (int i = 0; i < 3 * lanes; ++i) {
                const bool inside = i >= offset && i < offset + n;
                const T want = inside ? narrow(values[static_cast<std::size_t>(i - offset)]) : sentinel;
                ASSERT_EQ(to[static_cast<std::size_t>(i)], want)
                    << "element " << i << ", " << n << " at " << offset;
            }
        }
    }
}

TEST_P(VecTest, PartialLoadsReadNothingElse) {
    expect_partial_load<float>(lanes, ops.load_n, [](float x) { return x; });
    expect_partial_load<std::uint16_t>(lanes, ops.load_bf16_n, bf16_to_f32);
    expect_partial_load<std::uint16_t>(lanes, ops.load_f16_n, f16_to_f32);
    expect_partial_load<std::int8_t>(lanes, ops.load_i8_n, [](std::int8_t x) { return static_cast<float>(x); });
}

TEST_P(VecTest, PartialStoresWriteNothingElse) {
    expect_partial_store<float>(lanes, ops.store_n, [](float x) { return x; });
    expect_partial_store<std::uint16_t>(lanes, ops.store_bf16_n, f32_to_bf16);
    expect_partial_store<std::uint16_t>(lanes, ops.store_f16_n, f32_to_f16);
    const auto store_whole_numbers = [this](std::int8_t* to, const float* values, int n) {
        std::vector<float> whole(values, values + lanes);
        for (float& x : whole) x = std::trunc(x) - 128;
        ops.store_i8_n(to, whole.data(), n);
    };
    expect_partial_store<std::int8_t>(lanes, store_whole_numbers,
                                      [](float x) { return static_cast<std::int8_t>(std::trunc(x) - 128); });
}

TEST_P(VecTest, WholeAccessesAtEveryAlignment) {
    const auto count = static_cast<std::size_t>(lanes);
    for (const auto place : {Guarded<float>::at_start, Guarded<float>::at_end}) {
        const Guarded<float> from(count, place), to(count, place);
        for (std::size_t i = 0; i < count; ++i) from.data()[i] = static_cast<float>(i);
        ops.load(to.data(), from.data());
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(to.data()[i], static_cast<float>(i));
    }
    std::vector<float> from(2 * count), out(count);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
    for (std::size_t offset = 0; offset < count; ++offset) {
        ops.load(out.data(), from.data() + offset);
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], static_cast<float>(i + offset));
    }
}

TEST_P(VecTest, EveryHalfWidens) {
    const auto count = static_cast<std::size_t>(lanes);
    std::vector<std::uint16_t> all(65536 + 1 + count);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    std::vector<float> out(count);
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {  // every value in an even and an odd lane
        for (std::size_t first = shift; first < 65536 + shift; first += count) {
            ops.load_bf16(out.data(), &all[first]);
            for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(bits(out[i]), bits(bf16_to_f32(all[first + i])));
            ops.load_f16(out.data(), &all[first]);
            for (std::size_t i = 0; i < count; ++i) {
                ASSERT_EQ(bits(out[i]), bits(f16_to_f32(all[first + i]))) << std::hex << all[first + i];
            }
        }
    }
}

// The lower halves of f32 bits that decide how a value rounds: both sides of, and on, every tie of bf16 (bit 15) and
// f16 (bit 12 with bits 13 to 15 in front of it; denormal f16 round at the upper half, swept in full).
std::vector<std::uint32_t> lower_halves() {
    std::vector<std::uint32_t> lower;
    for (std::uint32_t top = 0; top < 8; ++top) {
        for (const std::uint32_t rest : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu})
            lower.push_back(top << 13 | rest);
    }
    return lower;
}

TEST_P(VecTest, EveryRoundingOfHalves) {
    const auto count = static_cast<std::size_t>(lanes);
    const std::vector<std::uint32_t> lower = lower_halves();
    std::vector<float> values;
    std::vector<std::uint16_t> out(count);
    const std::uint32_t step = full_grid() ? 1 : 7;
    for (std::uint32_t upper = 0; upper < 65536; upper += step) {
        values.clear();
        for (const std::uint32_t low : lower) values.push_back(std::bit_cast<float>(upper << 16 | low));
        for (std::size_t first = 0; first + count <= values.size(); first += count) {
            ops.store_bf16(out.data(), &values[first]);
            for (std::size_t i = 0; i < count; ++i) {
                ASSERT_EQ(out[i], f32_to_bf16(values[first + i])) << std::hex << bits(values[first + i]);
            }
            ops.store_f16(out.data(), &values[first]);
            for (std::size_t i = 0; i < count; ++i) {
                ASSERT_EQ(out[i], f32_to_f16(values[first + i])) << std::hex << bits(values[first + i]);
            }
        }
    }
}

TEST_P(VecTest, EveryHalfSurvivesARoundTrip) {
    const auto count = static_cast<std::size_t>(lanes);
    std::vector<std::uint16_t> from(count), back(count);
    std::vector<float> wide(count);
    for (std::uint32_t first = 0; first < 65536; first += static_cast<std::uint32_t>(lanes)) {
        for (std::size_t i = 0; i < count; ++i) from[i] = static_cast<std::uint16_t>(first + i);
        ops.load_bf16(wide.data(), from.data());
        ops.store_bf16(back.data(), wide.data());
        for (std::size_t i = 0; i < count; ++i) {  // a signalling NaN comes back quiet
            ASSERT_EQ(back[i], (from[i] & 0x7fff) > 0x7f80 ? from[i] | 0x40 : from[i]);
        }
        ops.load_f16(wide.data(), from.data());
        ops.store_f16(back.data(), wide.data());
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(back[i], (from[i] & 0x7fff) > 0x7c00 ? from[i] | 0x200 : from[i]);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, VecTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise
