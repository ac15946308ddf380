// RowKernels, see rows.h.
#include "kernels/rows.h"

#include "kernels/storage.h"

namespace headwise::HEADWISE_ISA {
namespace {

// One loop per storage type: a test of the type inside would cost as much as the conversion.
template <Storage kStorage>
void widen_from(float* to, const void* from, int64_t count) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, load_as(from, kStorage, i));
    const int rest = static_cast<int>(count - i);
    if (rest > 0) store_n(to + i, load_as_n(from, kStorage, i, rest), rest);
}

template <Storage kStorage>
void narrow_to(void* to, const float* from, int64_t count) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store_as(to, kStorage, i, load(from + i));
    const int rest = static_cast<int>(count - i);
    if (rest > 0) store_as_n(to, kStorage, i, load_n(from + i, rest), rest);
}

// No fma: with every product rounded alone, a rotation has the same bits on every ISA.
HEADWISE_INLINE void rotate(Vec& a, Vec& b, Vec cos, Vec sin) {
    const Vec first = sub(mul(a, cos), mul(b, sin));
    b = add(mul(b, cos), mul(a, sin));
    a = first;
}

template <Storage kStorage>
void rotate_half_in(void* row, const float* cos, const float* sin, int64_t half) {
    int64_t i = 0;
    for (; i + kLanes <= half; i += kLanes) {
        Vec a = load_as(row, kStorage, i), b = load_as(row, kStorage, half + i);
        rotate(a, b, load(cos + i), load(sin + i));
        store_as(row, kStorage, i, a);
        store_as(row, kStorage, half + i, b);
    }
    const int rest = static_cast<int>(half - i);
    if (rest > 0) {
        Vec a = load_as_n(row, kStorage, i, rest), b = load_as_n(row, kStorage, half + i, rest);
        rotate(a, b, load_n(cos + i, rest), load_n(sin + i, rest));
        store_as_n(row, kStorage, i, a, rest);
        store_as_n(row, kStorage, half + i, b, rest);
    }
}

void widen(float* to, const void* from, Storage storage, int64_t count) {
    if (storage == Storage::f32) return widen_from<Storage::f32>(to, from, count);
    if (storage == Storage::bf16) return widen_from<Storage::bf16>(to, from, count);
    widen_from<Storage::f16>(to, from, count);
}

void narrow(void* to, Storage storage, const float* from, int64_t count) {
    if (storage == Storage::f32) return narrow_to<Storage::f32>(to, from, count);
    if (storage == Storage::bf16) return narrow_to<Storage::bf16>(to, from, count);
    narrow_to<Storage::f16>(to, from, count);
}

void rotate_half(void* row, Storage storage, const float* cos, const float* sin, int64_t half) {
    if (storage == Storage::f32) return rotate_half_in<Storage::f32>(row, cos, sin, half);
    if (storage == Storage::bf16) return rotate_half_in<Storage::bf16>(row, cos, sin, half);
    rotate_half_in<Storage::f16>(row, cos, sin, half);
}

}  // namespace

extern const RowKernels kRowKernels;
const RowKernels kRowKernels = {widen, narrow, rotate_half};

}  // namespace headwise::HEADWISE_ISA
