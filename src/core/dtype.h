// Element types: one-element conversions that every vector conversion must agree with, bit for bit.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include <headwise/tensor.h>

namespace headwise {

inline bool is_float(DType dtype) noexcept {
    return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f64;
}

inline float bf16_to_f32(std::uint16_t bits) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Round to nearest even; NaN stays NaN (quiet), Inf stays Inf.
inline std::uint16_t f32_to_bf16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(std::uint16_t bits) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0x1fu) {  // Inf, NaN (made quiet, as the hardware does)
        return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u));
    }
    if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in f32
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
    }
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// Round to nearest even; beyond the range Inf; NaN stays NaN.
inline std::uint16_t f32_to_f16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // >= 65520 rounds to Inf
    if (magnitude < 0x38800000u) {  // below 2^-14: the sum below rounds to a multiple of 2^-24
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    }
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// Rounds to odd: where f32 cannot hold the value, the result is the neighbour with the odd last bit. Rounding that to a
// shorter type gives what rounding the f64 once would; rounding to nearest twice does not.
inline float f64_to_f32_odd(double value) noexcept {
    const auto nearest = static_cast<float>(value);
    const auto bits = std::bit_cast<std::uint32_t>(nearest);
    const double error = value - static_cast<double>(nearest);  // NaN for NaN and Inf
    if (static_cast<double>(nearest) == value || value != value || (bits & 1u) != 0) return nearest;
    const bool outwards = (error > 0) == (value > 0);
    return std::bit_cast<float>(outwards ? bits + 1 : bits - 1);
}
inline std::uint16_t f64_to_bf16(double value) noexcept { return f32_to_bf16(f64_to_f32_odd(value)); }
inline std::uint16_t f64_to_f16(double value) noexcept { return f32_to_f16(f64_to_f32_odd(value)); }

// Element `index` (in elements, already multiplied by the stride) of a float array as f64.
inline double load_f64(const void* data, DType dtype, std::int64_t index) noexcept {
    switch (dtype) {
        case DType::f32:
            return static_cast<const float*>(data)[index];
        case DType::f64:
            return static_cast<const double*>(data)[index];
        case DType::bf16:
            return bf16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
        case DType::f16:
            return f16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
        case DType::i32:
            return static_cast<const std::int32_t*>(data)[index];
        case DType::i64:
            return static_cast<double>(static_cast<const std::int64_t*>(data)[index]);
        case DType::boolean:
            return static_cast<const std::uint8_t*>(data)[index] != 0;
    }
    return 0;
}

// Element of an i32 or i64 array.
inline std::int64_t load_i64(const void* data, DType dtype, std::int64_t index) noexcept {
    return dtype == DType::i32 ? static_cast<const std::int32_t*>(data)[index]
                               : static_cast<const std::int64_t*>(data)[index];
}

// Element n along the first axis of an i32 or i64 view.
inline std::int64_t integer_at(const ConstTensorView& view, std::int64_t n) noexcept {
    return load_i64(view.data, view.dtype, n * view.stride(0));
}

// Stores into a float array, rounding once.
inline void store_f64(void* data, DType dtype, std::int64_t index, double value) noexcept {
    switch (dtype) {
        case DType::f32:
            static_cast<float*>(data)[index] = static_cast<float>(value);
            break;
        case DType::f64:
            static_cast<double*>(data)[index] = value;
            break;
        case DType::bf16:
            static_cast<std::uint16_t*>(data)[index] = f64_to_bf16(value);
            break;
        case DType::f16:
            static_cast<std::uint16_t*>(data)[index] = f64_to_f16(value);
            break;
        default:
            break;
    }
}

}  // namespace headwise
