// Kernels of quantised keys and values: one group of channels of one head of one token, with one scale.
#pragma once

#include <stdint.h>

namespace headwise {

// No fma and no sum whose order matters: same bits on every ISA.
struct CacheKernels {
    // Writes n = round(x / scale), |n| <= 127 or 7, of `count` channels and returns the scale: largest |x| over 127 or 7,
    // but no denormal. A group that holds NaN or Inf gets the scale NaN, and is NaN when it is read.
    float (*quantize8)(void* to, const float* from, int64_t count);
    float (*quantize4)(void* to, const float* from, int64_t count);

    // to[i] = scale * n[i]
    void (*dequantize8)(float* to, const void* from, float scale, int64_t count);
    void (*dequantize4)(float* to, const void* from, float scale, int64_t count);
};

// int4: channels i and i + n/2 (rounded up) of 32, or of the n that are left, share byte i: 16 * second + first + 8.
inline constexpr int64_t kNibbleBlock = 32;
inline constexpr int64_t bytes_of_nibbles(int64_t count) { return (count + 1) / 2; }

}  // namespace headwise
