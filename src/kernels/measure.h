// Loops that measure what the machine can do at most, for programs that judge kernels by it.
#pragma once

#include <stdint.h>

namespace headwise {

inline constexpr int64_t kMeasureChains = 12;  // independent fma chains: they hide the latency of every known core
inline constexpr int64_t kMeasureStreams = 8;  // streams of reading
inline constexpr int64_t kMeasureStep = 32;    // floats that a stream reads at a time

struct MeasureKernels {
    // rounds * kMeasureChains * lanes fma in registers. Returns something that depends on all of them.
    float (*fma_loop)(int64_t rounds);
    // Reads `count` floats once: kMeasureStreams equal parts side by side, each in pieces of `piece` floats. One stream
    // alone does not reach what a memory can give. count is a multiple of kMeasureStreams * piece, piece of kMeasureStep.
    float (*read_loop)(const float* data, int64_t count, int64_t piece);
};

}  // namespace headwise
