// Views of rows and heads as the linear layers take them, and single elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <headwise/tensor.h>

#include "core/dtype.h"
#include "heads/tokens.h"
#include "project/packed_linear.h"

namespace headwise {

// [B,tokens,width]
inline Rows rows_of(const ConstTensorView& view) {
    return {.data = view.data,
            .dtype = view.dtype,
            .batches = view.size(0),
            .rows = view.size(1),
            .batch_stride = view.stride(0),
            .row_stride = view.stride(1)};
}

inline OutRows out_rows_of(const TensorView& view) {
    return {.data = view.data,
            .dtype = view.dtype,
            .batches = view.size(0),
            .rows = view.size(1),
            .batch_stride = view.stride(0),
            .row_stride = view.stride(1)};
}

// Address of the element at `index`, in elements.
template <class Data>
auto* element(const BasicView<Data>& view, std::int64_t index) {
    using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
    return static_cast<Byte*>(view.data) + index * static_cast<std::int64_t>(size_of(view.dtype));
}

// Columns [first, first + width) of one head, [B,T,H,D] -> [B,T,width].
template <class Data>
BasicView<Data> head_rows(const BasicView<Data>& heads, std::int64_t head, std::int64_t first,
                          std::int64_t width) {
    return BasicView<Data>(element(heads, head * heads.stride(2) + first), heads.dtype,
                           {heads.size(0), heads.size(1), width}, {heads.stride(0), heads.stride(1), 1});
}

// [B,T,1,W] -> [B,T,W].
template <class Data>
BasicView<Data> join_heads(const BasicView<Data>& heads) {
    return head_rows(heads, 0, 0, heads.size(3));
}

// `count` elements that lie side by side, converted where the types differ.
inline void copy_elements(void* to, DType to_type, const void* from, DType from_type, std::int64_t count) {
    if (to_type == from_type) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(to_type));
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) store_f64(to, to_type, i, load_f64(from, from_type, i));
}

}  // namespace headwise
