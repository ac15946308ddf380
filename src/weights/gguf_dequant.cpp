#include "weights/gguf_dequant.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "core/dtype.h"

namespace headwise {
namespace {

using Byte = std::uint8_t;

float half(const Byte* at) noexcept { return f16_to_f32(static_cast<std::uint16_t>(at[0] | at[1] << 8)); }

// ---- blocks of 32: low nibbles are elements 0 to 15, high nibbles 16 to 31 -----------------------------------------

constexpr int kBlock = 32;

int nibble(const Byte* packed, int i) noexcept { return i < 16 ? packed[i] & 15 : packed[i - 16] >> 4; }
int bit(const Byte* bits, int i) noexcept { return bits[i / 8] >> (i % 8) & 1; }

void decode_q4_0(const Byte* block, float* to) noexcept {
    const float d = half(block);
    for (int i = 0; i < kBlock; ++i) to[i] = d * static_cast<float>(nibble(block + 2, i) - 8);
}

void decode_q4_1(const Byte* block, float* to) noexcept {
    const float d = half(block), least = half(block + 2);
    for (int i = 0; i < kBlock; ++i) to[i] = d * static_cast<float>(nibble(block + 4, i)) + least;
}

void decode_q5_0(const Byte* block, float* to) noexcept {
    const float d = half(block);
    for (int i = 0; i < kBlock; ++i) {
        const int q = nibble(block + 6, i) | bit(block + 2, i) << 4;
        to[i] = d * static_cast<float>(q - 16);
    }
}

void decode_q5_1(const Byte* block, float* to) noexcept {
    const float d = half(block), least = half(block + 2);
    for (int i = 0; i < kBlock; ++i) {
        const int q = nibble(block + 8, i) | bit(block + 4, i) << 4;
        to[i] = d * static_cast<float>(q) + least;
    }
}

void decode_q8_0(const Byte* block, float* to) noexcept {
    const float d = half(block);
    for (int i = 0; i < kBlock; ++i) to[i] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
}

// ---- super-blocks of 256: scales of 16 or 32 elements are small integers, times one f16 ------------------------------

constexpr int kSuper = 256;

// Q4_K and Q5_K: eight scales and eight minima of 6 bits in 12 bytes. The first four of each stand in the low bits of
// bytes 0-3 and 4-7; of the others the low half is in bytes 8-11, the high half above the first four.
struct ScalesAndMinima {
    std::array<int, 8> scale, least;

    explicit ScalesAndMinima(const Byte* packed) noexcept {
        for (std::size_t i = 0; i < 4; ++i) {
            scale[i] = packed[i] & 63;
            least[i] = packed[i + 4] & 63;
            scale[i + 4] = (packed[i + 8] & 15) | (packed[i] >> 6) << 4;
            least[i + 4] = packed[i + 8] >> 4 | (packed[i + 4] >> 6) << 4;
        }
    }
};

// Element i of a super-block that is packed 32 bytes by 32: one byte holds `per` elements that are 32 apart.
int packed_by_32(const Byte* packed, int i, int per) noexcept {
    const int bits = 8 / per, run = 32 * per;
    return packed[i / run * 32 + i % 32] >> (i % run / 32 * bits) & ((1 << bits) - 1);
}

void decode_q2_k(const Byte* block, float* to) noexcept {
    const Byte *const scales = block, *const packed = block + 16;
    const float d = half(block + 80), least = half(block + 82);
    for (int i = 0; i < kSuper; ++i) {
        const int scale = scales[i / 16];
        const float step = d * static_cast<float>(scale & 15), below = least * static_cast<float>(scale >> 4);
        to[i] = step * static_cast<float>(packed_by_32(packed, i, 4)) - below;
    }
}

void decode_q3_k(const Byte* block, float* to) noexcept {
    const Byte *const high = block, *const packed = block + 32, *const scales = block + 96;
    const float d = half(block + 108);
    for (int i = 0; i < kSuper; ++i) {
        const int group = i / 16;
        const int low_scale = scales[group % 8] >> (group / 8 * 4) & 15;
        const int high_scale = scales[8 + group % 4] >> (group / 4 * 2) & 3;
        const float step = d * static_cast<float>((low_scale | high_scale << 4) - 32);
        const int q = packed_by_32(packed, i, 4) - (packed_by_32(high, i, 8) != 0 ? 0 : 4);
        to[i] = step * static_cast<float>(q);
    }
}

// Groups of 32 with a step and a minimum each; quant(i) is the whole number of element i.
template <class Quant>
void decode_with_minima(const Byte* block, float* to, Quant quant) noexcept {
    const float d = half(block), least = half(block + 2);
    const ScalesAndMinima parts(block + 4);
    for (int i = 0; i < kSuper; ++i) {
        const auto group = static_cast<std::size_t>(i / 32);
        const float step = d * static_cast<float>(parts.scale[group]);
        const float below = least * static_cast<float>(parts.least[group]);
        to[i] = step * static_cast<float>(quant(i)) - below;
    }
}

void decode_q4_k(const Byte* block, float* to) noexcept {
    decode_with_minima(block, to, [&](int i) { return packed_by_32(block + 16, i, 2); });
}

void decode_q5_k(const Byte* block, float* to) noexcept {
    decode_with_minima(
        block, to, [&](int i) { return packed_by_32(block + 48, i, 2) | packed_by_32(block + 16, i, 8) << 4; });
}

void decode_q6_k(const Byte* block, float* to) noexcept {
    const Byte *const low = block, *const high = block + 128, *const scales = block + 192;
    const float d = half(block + 208);
    for (int i = 0; i < kSuper; ++i) {
        const float step = d * static_cast<float>(static_cast<std::int8_t>(scales[i / 16]));
        const int nibbles = low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
        to[i] = step * static_cast<float>((nibbles | packed_by_32(high, i, 4) << 4) - 32);
    }
}

// Codes 4, 5, 31 to 33 and 36 to 38 have been dropped from the format.
constexpr GgufType kTypes[] = {
    {.code = 0, .name = "F32", .block_bytes = 4, .plain = DType::f32},
    {.code = 1, .name = "F16", .block_bytes = 2, .plain = DType::f16},
    {.code = 2, .name = "Q4_0", .block_elements = 32, .block_bytes = 18, .decode = decode_q4_0},
    {.code = 3, .name = "Q4_1", .block_elements = 32, .block_bytes = 20, .decode = decode_q4_1},
    {.code = 6, .name = "Q5_0", .block_elements = 32, .block_bytes = 22, .decode = decode_q5_0},
    {.code = 7, .name = "Q5_1", .block_elements = 32, .block_bytes = 24, .decode = decode_q5_1},
    {.code = 8, .name = "Q8_0", .block_elements = 32, .block_bytes = 34, .decode = decode_q8_0},
    {.code = 9, .name = "Q8_1", .block_elements = 32, .block_bytes = 40},
    {.code = 10, .name = "Q2_K", .block_elements = 256, .block_bytes = 84, .decode = decode_q2_k},
    {.code = 11, .name = "Q3_K", .block_elements = 256, .block_bytes = 110, .decode = decode_q3_k},
    {.code = 12, .name = "Q4_K", .block_elements = 256, .block_bytes = 144, .decode = decode_q4_k},
    {.code = 13, .name = "Q5_K", .block_elements = 256, .block_bytes = 176, .decode = decode_q5_k},
    {.code = 14, .name = "Q6_K", .block_elements = 256, .block_bytes = 210, .decode = decode_q6_k},
    {.code = 15, .name = "Q8_K", .block_elements = 256, .block_bytes = 292},
    {.code = 16, .name = "IQ2_XXS", .block_elements = 256, .block_bytes = 66},
    {.code = 17, .name = "IQ2_XS", .block_elements = 256, .block_bytes = 74},
    {.code = 18, .name = "IQ3_XXS", .block_elements = 256, .block_bytes = 98},
    {.code = 19, .name = "IQ1_S", .block_elements = 256, .block_bytes = 50},
    {.code = 20, .name = "IQ4_NL", .block_elements = 32, .block_bytes = 18},
    {.code = 21, .name = "IQ3_S", .block_elements = 256, .block_bytes = 110},
    {.code = 22, .name = "IQ2_S", .block_elements = 256, .block_bytes = 82},
    {.code = 23, .name = "IQ4_XS", .block_elements = 256, .block_bytes = 136},
    {.code = 24, .name = "I8", .block_bytes = 1},
    {.code = 25, .name = "I16", .block_bytes = 2},
    {.code = 26, .name = "I32", .block_bytes = 4, .plain = DType::i32},
    {.code = 27, .name = "I64", .block_bytes = 8, .plain = DType::i64},
    {.code = 28, .name = "F64", .block_bytes = 8, .plain = DType::f64},
    {.code = 29, .name = "IQ1_M", .block_elements = 256, .block_bytes = 56},
    {.code = 30, .name = "BF16", .block_bytes = 2, .plain = DType::bf16},
    {.code = 34, .name = "TQ1_0", .block_elements = 256, .block_bytes = 54},
    {.code = 35, .name = "TQ2_0", .block_elements = 256, .block_bytes = 66},
    {.code = 39, .name = "MXFP4", .block_elements = 32, .block_bytes = 17},
    {.code = 40, .name = "NVFP4", .block_elements = 64, .block_bytes = 36},
    {.code = 41, .name = "Q1_0", .block_elements = 128, .block_bytes = 18},
};

}  // namespace

const GgufType* find_gguf_type(std::uint32_t code) noexcept {
    const auto* const end = std::end(kTypes);
    const auto* const at =
        std::find_if(std::begin(kTypes), end, [&](const GgufType& type) { return type.code == code; });
    return at == end ? nullptr : at;
}

}  // namespace headwise
