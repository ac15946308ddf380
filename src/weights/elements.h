// What the readers and writers of both formats share about elements: counting, checking, and row-major bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <headwise/tensor.h>

#include "weights/file.h"

namespace headwise {

// bits * sizes[0] * sizes[1] * ..., or nothing if that leaves 63 bits. A 0 does not hide that the others overflow.
std::optional<std::int64_t> total_bits(std::int64_t bits, std::span<const std::int64_t> sizes) noexcept;

// Throws Error bad_data, beginning with `where`, if a boolean is stored as neither 0 nor 1.
void check_booleans(const Tensor& tensor, const std::string& where);

// Throws Error invalid_argument, beginning with `where`, for an empty view or one without memory behind it.
void check_writable(const ConstTensorView& view, const char* where);

// Bit for bit, except that booleans become 0 or 1. Copies at most a few KiB at a time.
void write_elements(OutputFile& file, const ConstTensorView& view);

// Calls body(const std::byte* element) for every element, the last axis fastest.
template <class Body>
void for_each_element(const ConstTensorView& view, Body body) {
    const auto bytes = static_cast<std::int64_t>(size_of(view.dtype));
    const auto* element = static_cast<const std::byte*>(view.data);
    const std::int64_t count = view.count();
    std::array<std::int64_t, kMaxRank> index{};
    std::int64_t offset = 0;
    for (std::int64_t n = 0; n < count; ++n) {
        body(element + offset * bytes);
        for (int axis = view.rank - 1; axis >= 0; --axis) {  // counts up like an odometer
            auto& at = index[static_cast<std::size_t>(axis)];
            offset += view.stride(axis);
            if (++at < view.size(axis)) break;
            offset -= at * view.stride(axis);
            at = 0;
        }
    }
}

}  // namespace headwise
