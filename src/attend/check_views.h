// What attend() asks of the views it is given; shared by the files that check its arguments.
#pragma once

#include <algorithm>
#include <limits>

#include <headwise/tensor.h>

#include "core/check.h"

namespace headwise {

// All elements must lie within 63 bits of bytes from element 0, and there must be memory if there are elements.
template <class Data>
void check_extent(const BasicView<Data>& view, const char* where, const char* name) {
    std::int64_t reach = 0;
    bool some = true;
    for (int axis = 0; axis < view.rank; ++axis) {
        std::int64_t step = 0;
        const bool fits =
            view.size(axis) >= 0 &&
            !__builtin_mul_overflow(std::max<std::int64_t>(view.size(axis) - 1, 0),
                                    view.stride(axis) < 0 ? view.stride(axis) : -view.stride(axis), &step) &&
            !__builtin_add_overflow(reach, step, &reach);
        check(fits, where, ": ", name, " is ", view, ", which no memory can hold");
        some = some && view.size(axis) > 0;
    }
    check(reach >= std::numeric_limits<std::int64_t>::min() / 8, where, ": ", name, " is ", view,
          ", which no memory can hold");
    check(!some || view.data != nullptr, where, ": ", name, " is ", view, " at a null address");
}

template <class Data>
void check_rank(const BasicView<Data>& view, int rank, const char* name, const char* axes) {
    check(!view.empty(), "attend: ", name, " is missing; it must be ", axes);
    check(view.rank == rank, "attend: ", name, " is ", view, " but must have the ", rank, " axes ", axes);
    check_extent(view, "attend", name);
}

template <class Data>
void check_heads(const BasicView<Data>& view, const char* name, const char* axes) {
    check_rank(view, 4, name, axes);
    check(view.size(3) <= 1 || view.stride(3) == 1, "attend: ", name, " is ", view,
          "; its innermost stride must be 1 (other strides are free)");
}

template <class Data>
void check_size(const BasicView<Data>& view, int axis, std::int64_t expected, const char* name,
                const char* letter) {
    check(view.size(axis) == expected, "attend: ", name, " is ", view, " but ", letter, " (axis ", axis,
          ") must be ", expected);
}

}  // namespace headwise
