// MeasureKernels, see measure.h.
#include "kernels/measure.h"

#include "kernels/unroll.h"
#include "kernels/vec.h"

namespace headwise::HEADWISE_ISA {
namespace {

float fma_loop(int64_t rounds) {
    const Vec a = set1(1.0f), b = set1(1e-9f);
    Vec chains[kMeasureChains];
    unroll<kMeasureChains>([&](auto i) __attribute__((always_inline)) { chains[i] = b; });
    for (int64_t round = 0; round < rounds; ++round) {
        unroll<kMeasureChains>([&](auto i) __attribute__((always_inline)) {
            chains[i] = fma(chains[i], a, b);
            pin(chains[i]);
        });
    }
    Vec total = zero();
    unroll<kMeasureChains>([&](auto i) __attribute__((always_inline)) { total = add(total, chains[i]); });
    return sum(total);
}

float read_loop(const float* data, int64_t count, int64_t piece) {
    constexpr int kVecs = kMeasureStep / kLanes;
    Vec sums[kVecs];
    unroll<kVecs>([&](auto i) __attribute__((always_inline)) { sums[i] = zero(); });
    const int64_t part = count / kMeasureStreams;
    for (int64_t start = 0; start < part; start += piece) {
        for (int64_t stream = 0; stream < kMeasureStreams; ++stream) {
            const float* from = data + stream * part + start;
            for (int64_t at = 0; at < piece; at += kMeasureStep) {
                unroll<kVecs>([&](auto i) __attribute__((always_inline)) {
                    sums[i] = add(sums[i], load(from + at + i * kLanes));
                });
            }
        }
    }
    Vec total = zero();
    unroll<kVecs>([&](auto i) __attribute__((always_inline)) { total = add(total, sums[i]); });
    return sum(total);
}

}  // namespace

extern const MeasureKernels kMeasureKernels;
const MeasureKernels kMeasureKernels = {fma_loop, read_loop};

}  // namespace headwise::HEADWISE_ISA
