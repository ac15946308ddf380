// Loads and stores of a Vec in any storage type. Only for *.isa.cpp files.
#pragma once

#include "kernels/rows.h"
#include "kernels/vec.h"

namespace headwise::HEADWISE_ISA {
namespace {

HEADWISE_INLINE const uint16_t* halves(const void* p) { return static_cast<const uint16_t*>(p); }
HEADWISE_INLINE uint16_t* halves(void* p) { return static_cast<uint16_t*>(p); }

// `index` counts elements of the storage type.
HEADWISE_INLINE Vec load_as(const void* p, Storage storage, int64_t index) {
    if (storage == Storage::f32) return load(static_cast<const float*>(p) + index);
    return storage == Storage::bf16 ? load_bf16(halves(p) + index) : load_f16(halves(p) + index);
}
HEADWISE_INLINE Vec load_as_n(const void* p, Storage storage, int64_t index, int n) {
    if (storage == Storage::f32) return load_n(static_cast<const float*>(p) + index, n);
    return storage == Storage::bf16 ? load_bf16_n(halves(p) + index, n) : load_f16_n(halves(p) + index, n);
}
HEADWISE_INLINE void store_as(void* p, Storage storage, int64_t index, Vec v) {
    if (storage == Storage::f32) return store(static_cast<float*>(p) + index, v);
    storage == Storage::bf16 ? store_bf16(halves(p) + index, v) : store_f16(halves(p) + index, v);
}
HEADWISE_INLINE void store_as_n(void* p, Storage storage, int64_t index, Vec v, int n) {
    if (storage == Storage::f32) return store_n(static_cast<float*>(p) + index, v, n);
    storage == Storage::bf16 ? store_bf16_n(halves(p) + index, v, n) : store_f16_n(halves(p) + index, v, n);
}

}  // namespace
}  // namespace headwise::HEADWISE_ISA
