// The bridge between the DType of tensors and the Storage of kernels.
#pragma once

#include <cassert>

#include <headwise/tensor.h>

#include "kernels/rows.h"

namespace headwise {

inline bool has_storage(DType dtype) noexcept {
    return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

// Only for types with has_storage().
inline Storage storage_of(DType dtype) noexcept {
    assert(has_storage(dtype));
    return dtype == DType::f32 ? Storage::f32 : dtype == DType::bf16 ? Storage::bf16 : Storage::f16;
}

}  // namespace headwise
