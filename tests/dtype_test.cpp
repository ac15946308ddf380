// The 16-bit float types against definitions that share nothing with the code: values are built from the fields by
// ldexp, and rounding is a search for the nearest of all 65536 values.
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace headwise {
namespace {

struct Format {
    const char* name;
    int exponent_bits, mantissa_bits;
    float (*decode)(std::uint16_t);
    std::uint16_t (*encode)(float);
    std::uint16_t (*encode_f64)(double);
};

const Format kFormats[] = {{"f16", 5, 10, f16_to_f32, f32_to_f16, f64_to_f16},
                           {"bf16", 8, 7, bf16_to_f32, f32_to_bf16, f64_to_bf16}};

// The value of a bit pattern as IEEE 754 defines it.
double value_of(const Format& format, unsigned bits) {
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    const int top = (1 << format.exponent_bits) - 1;
    const int exponent = static_cast<int>(bits >> format.mantissa_bits) & top;
    const int mantissa = static_cast<int>(bits) & ((1 << format.mantissa_bits) - 1);
    const double sign = (bits & 0x8000u) != 0 ? -1 : 1;
    if (exponent == top) {
        return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    }
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
    return sign * std::ldexp(mantissa + (1 << format.mantissa_bits), exponent - bias - format.mantissa_bits);
}

// Nearest value, ties to the even pattern: a search among all non-negative values.
class Nearest {
public:
    explicit Nearest(const Format& format) {
        for (unsigned bits = 0; bits < 0x8000; ++bits) {
            const double value = value_of(format, bits);
            if (std::isnan(value)) break;
            values_.push_back(value);
        }
        const std::size_t infinity = values_.size() - 1;
        values_[infinity] = 2 * values_[infinity - 1] - values_[infinity - 2];  // where the next value would be
    }
    std::uint16_t operator()(double value) const {
        const double magnitude = std::fabs(value);
        const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
        auto index = static_cast<std::size_t>(above - values_.begin());
        if (above == values_.end()) {
            index = values_.size() - 1;
        } else if (*above != magnitude) {
            const double up = *above - magnitude;
            const double down = magnitude - *(above - 1);  // both exact
            if (down < up || (down == up && (index - 1) % 2 == 0)) --index;
        }
        return static_cast<std::uint16_t>(index | (std::signbit(value) ? 0x8000u : 0u));
    }
    const std::vector<double>& values() const { return values_; }

private:
    std::vector<double> values_;  // values_[bits]
};

TEST(DType, EveryPatternDecodesToItsValueAndBack) {
    for (const Format& format : kFormats) {
        for (unsigned bits = 0; bits < 0x10000; ++bits) {
            const auto pattern = static_cast<std::uint16_t>(bits);
            const double expected = value_of(format, bits);
            const float value = format.decode(pattern);
            if (std::isnan(expected)) {
                ASSERT_TRUE(std::isnan(value)) << format.name << " " << bits;
                ASSERT_TRUE(std::isnan(format.decode(format.encode(value)))) << format.name << " " << bits;
                continue;
            }
            ASSERT_EQ(static_cast<double>(value), expected) << format.name << " " << bits;
            ASSERT_EQ(std::signbit(value), (bits & 0x8000u) != 0) << format.name << " " << bits;
            ASSERT_EQ(format.encode(value), pattern) << format.name << " " << bits;
            ASSERT_EQ(format.encode_f64(static_cast<double>(value)), pattern) << format.name << " " << bits;
        }
    }
}

// Everything that rounding decides lies at a value, at the middle of two, or one step of the wider type beside these.
TEST(DType, RoundsToNearestEven) {
    for (const Format& format : kFormats) {
        const Nearest nearest(format);
        const std::vector<double>& values = nearest.values();
        for (std::size_t i = 0; i + 1 < values.size(); ++i) {
            for (const double place : {values[i], (values[i] + values[i + 1]) / 2}) {
                const auto centre = static_cast<float>(place);
                const float below = std::nextafterf(centre, -1.0f);
                const float above = std::nextafterf(centre, std::numeric_limits<float>::infinity());
                for (const float value : {below, centre, above}) {
                    ASSERT_EQ(format.encode(value), nearest(value)) << format.name << " " << value;
                    ASSERT_EQ(format.encode(-value), nearest(-value)) << format.name << " " << -value;
                }
                for (const double value : {std::nextafter(place, -1.0), place, std::nextafter(place, 1e300)}) {
                    ASSERT_EQ(format.encode_f64(value), nearest(value)) << format.name << " " << value;
                    ASSERT_EQ(format.encode_f64(-value), nearest(-value)) << format.name << " " << -value;
                }
            }
        }
    }
}

TEST(DType, BeyondTheRange) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const Format& format : kFormats) {
        const std::uint16_t inf = format.encode(infinity);
        EXPECT_EQ(format.decode(inf), infinity);
        EXPECT_EQ(format.encode(std::numeric_limits<float>::max()), inf);
        EXPECT_EQ(format.encode_f64(std::numeric_limits<double>::max()), inf);
        EXPECT_EQ(format.encode_f64(-std::numeric_limits<double>::max()), inf | 0x8000);
        EXPECT_EQ(format.encode_f64(std::numeric_limits<double>::denorm_min()), 0);
        EXPECT_EQ(format.encode(-std::numeric_limits<float>::denorm_min()), 0x8000);
        EXPECT_TRUE(std::isnan(format.decode(format.encode_f64(std::numeric_limits<double>::quiet_NaN()))));
    }
    // NaN whose payload lies in the bits that are cut off.
    EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
    EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::bit_cast<float>(0xff800001u)))));
    // Known values: 65520 is the first f32 that f16 rounds to Inf.
    EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
    EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
}

// Twice rounded to nearest, this f64 would end on the wrong side of the middle between two values.
TEST(DType, F64RoundsOnce) {
    const double value = 1 + 0x1p-11 + 0x1p-40;  // just above the middle of 1 and 1 + 2^-10; f32 cannot see it
    EXPECT_EQ(f64_to_f16(value), 0x3c01);
    EXPECT_EQ(f32_to_f16(static_cast<float>(value)), 0x3c00);
    EXPECT_EQ(f64_to_bf16(1 + 0x1p-8 + 0x1p-40), 0x3f81);
}

}  // namespace
}  // namespace headwise
