// Views of rows and heads as the linear layers take them, and single elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <headwise/tensor.h>

#include "core/dtype.h"
#include "core/parallel.h"
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

// f(b, t) for all tokens, shared out in tasks of some 20 us, the price of waking a worker. `width`: elements of a token.
template <class Body>
void for_each_token(std::int64_t batch, std::int64_t tokens, std::int64_t width, const Execution& execution,
                    Body&& body) {
    constexpr std::int64_t kElementsPerTask = 1 << 15;
    const std::int64_t count = batch * tokens;
    const std::int64_t per_task = std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(1, width));
    parallel_for(execution, (count + per_task - 1) / per_task, [&](std::int64_t task) {
        for (std::int64_t i = task * per_task; i < std::min(count, (task + 1) * per_task); ++i)
            body(i / tokens, i % tokens);
    });
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
