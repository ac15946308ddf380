// CacheKernels, see cache.h.
#include "kernels/cache.h"

#include "kernels/vec.h"

namespace headwise::HEADWISE_ISA {
namespace {

int least(int64_t a, int b) { return a < b ? static_cast<int>(a) : b; }

// The scale and its inverse. The smallest normal number keeps the inverse finite where all channels are tiny.
struct Scale {
    float scale, inverse;

    Scale(const float* x, int64_t count, float steps) {
        constexpr float kSmallestNormal = 0x1p-126f, kLargestFloat = 0x1.fffffep127f;
        Vec largest = zero(), probe = zero();  // probe: 0 * x summed up, NaN as soon as one x is NaN or Inf
        for (int64_t i = 0; i < count; i += kLanes) {
            const Vec value = load_n(x + i, least(count - i, kLanes));
            largest = max(max(value, sub(zero(), value)), largest);
            probe = fma(value, zero(), probe);
        }
        float size = max_lane(largest) / steps;
        if (size * steps > kLargestFloat) size *= 1.0f - 0x1p-23f;  // rounded up: the largest channel would be Inf
        const float verdict = sum(probe);
        scale = size > kSmallestNormal ? size : kSmallestNormal;
        inverse = 1.0f / scale;
        if (verdict != verdict) scale = verdict, inverse = 0;
    }
};

// NaN fails both comparisons: it becomes some step, which does not matter beside a scale that is NaN.
HEADWISE_INLINE Vec steps_of(const float* x, int n, Vec inverse, Vec most) {
    const Vec steps = round(mul(load_n(x, n), inverse)), least = sub(zero(), most);
    const Vec low = select(less(least, steps), steps, least);
    return select(less(low, most), low, most);
}

float quantize8(void* to, const float* from, int64_t count) {
    constexpr float kSteps = 127;
    const Scale scale(from, count, kSteps);
    const Vec inverse = set1(scale.inverse), most = set1(kSteps);
    for (int64_t i = 0; i < count; i += kLanes) {
        const int n = least(count - i, kLanes);
        store_i8_n(static_cast<int8_t*>(to) + i, steps_of(from + i, n, inverse, most), n);
    }
    return scale.scale;
}

void dequantize8(float* to, const void* from, float scale, int64_t count) {
    const int8_t* const p = static_cast<const int8_t*>(from);
    const Vec factor = set1(scale);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, mul(load_i8(p + i), factor));
    const int rest = static_cast<int>(count - i);
    if (rest > 0) store_n(to + i, mul(load_i8_n(p + i, rest), factor), rest);
}

// body(first channel, bytes) for every run of up to kLanes bytes; the second channels start `bytes of the block` on.
template <class Body>
HEADWISE_INLINE void for_nibbles(int64_t count, Body body) {
    for (int64_t block = 0; block < count; block += kNibbleBlock) {
        const int channels = least(count - block, static_cast<int>(kNibbleBlock)), half = (channels + 1) / 2;
        for (int i = 0; i < half; i += kLanes) {
            const int first = least(half - i, kLanes), second = least(channels - half - i, kLanes);
            body(block + i, half, first, second < 0 ? 0 : second);
        }
    }
}

// A block is even but for the last one: its bytes begin at half its first channel.
HEADWISE_INLINE int64_t byte_of(int64_t channel) {
    return channel / kNibbleBlock * (kNibbleBlock / 2) + channel % kNibbleBlock;
}

float quantize4(void* to, const float* from, int64_t count) {
    constexpr float kSteps = 7;
    const Scale scale(from, count, kSteps);
    const Vec inverse = set1(scale.inverse), most = set1(kSteps), sixteen = set1(16), eight = set1(8);
    for_nibbles(
        count, [&](int64_t channel, int half, int first, int second) __attribute__((always_inline)) {
            const Vec low = steps_of(from + channel, first, inverse, most);
            const Vec high = steps_of(from + channel + half, second, inverse, most);
            store_i8_n(static_cast<int8_t*>(to) + byte_of(channel), add(mul(high, sixteen), add(low, eight)),
                       first);
        });
    return scale.scale;
}

// A byte is 16 h + r with r = 1 .. 15: h is byte / 16 - 15/32, rounded.
void dequantize4(float* to, const void* from, float scale, int64_t count) {
    const int8_t* const p = static_cast<const int8_t*>(from);
    const Vec factor = set1(scale), sixteenth = set1(0.0625f), sixteen = set1(16), eight = set1(8);
    const Vec middle = set1(15.0f / 32);
    for_nibbles(
        count, [&](int64_t channel, int half, int first, int second) __attribute__((always_inline)) {
            const Vec byte = load_i8_n(p + byte_of(channel), first);
            const Vec high = round(sub(mul(byte, sixteenth), middle));
            const Vec low = sub(sub(byte, mul(high, sixteen)), eight);
            store_n(to + channel, mul(low, factor), first);
            store_n(to + channel + half, mul(high, factor), second);
        });
}

}  // namespace

extern const CacheKernels kCacheKernels;
const CacheKernels kCacheKernels = {quantize8, quantize4, dequantize8, dequantize4};

}  // namespace headwise::HEADWISE_ISA
