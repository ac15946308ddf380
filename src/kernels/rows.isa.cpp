// RowKernels, see rows.h.
#include "kernels/rows.h"

#include "kernels/storage.h"

namespace headwise::HEADWISE_ISA {
namespace {

void widen(float* to, const void* from, Storage storage, int64_t count) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, load_as(from, storage, i));
    if (i < count)
        store_n(to + i, load_as_n(from, storage, i, static_cast<int>(count - i)), static_cast<int>(count - i));
}

void narrow(void* to, Storage storage, const float* from, int64_t count) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store_as(to, storage, i, load(from + i));
    if (i < count) {
        const int rest = static_cast<int>(count - i);
        store_as_n(to, storage, i, load_n(from + i, rest), rest);
    }
}

void rotate_half(void* row, Storage storage, const float* cos, const float* sin, int64_t half) {
    for (int64_t i = 0; i < half; i += kLanes) {
        const int n = static_cast<int>(half - i < kLanes ? half - i : kLanes);
        const Vec a = load_as_n(row, storage, i, n), b = load_as_n(row, storage, half + i, n);
        const Vec c = load_n(cos + i, n), s = load_n(sin + i, n);
        store_as_n(row, storage, i, sub(mul(a, c), mul(b, s)), n);
        store_as_n(row, storage, half + i, add(mul(b, c), mul(a, s)), n);
    }
}

}  // namespace

extern const RowKernels kRowKernels;
const RowKernels kRowKernels = {widen, narrow, rotate_half};

}  // namespace headwise::HEADWISE_ISA
