// Whether a view can be memory at all: checked at the public boundary, before anything is read or written.
#pragma once

#include <algorithm>
#include <limits>

#include <headwise/tensor.h>

#include "core/check.h"

namespace headwise {

// All elements lie within 60 bits of bytes from element 0, and there is memory if there are elements.
template <class Data>
void check_memory(const BasicView<Data>& view, const char* where, const char* name) {
    std::int64_t reach = 0;
    bool fits = true, some = true;
    for (int axis = 0; fits && axis < view.rank; ++axis) {
        std::int64_t step = 0;
        fits = view.size(axis) >= 0 &&
               !__builtin_mul_overflow(std::max<std::int64_t>(view.size(axis) - 1, 0),
                                       view.stride(axis) < 0 ? view.stride(axis) : -view.stride(axis), &step) &&
               !__builtin_add_overflow(reach, step, &reach);
        some = some && view.size(axis) > 0;
    }
    check(fits && reach >= std::numeric_limits<std::int64_t>::min() / 8, where, ": ", name, " is ", view,
          ", which no memory can hold");
    check(!some || view.data != nullptr, where, ": ", name, " is ", view, " at a null address");
}

// Memory that is written: no two elements at one place, as far as single strides tell.
template <class Data>
void check_writable(const BasicView<Data>& view, const char* where, const char* name) {
    check_memory(view, where, name);
    for (int axis = 0; axis < view.rank; ++axis) {
        check(view.count() == 0 || view.size(axis) <= 1 || view.stride(axis) != 0, where, ": ", name, " is ", view,
              "; a stride of 0 would write several numbers to one place");
    }
}

}  // namespace headwise
