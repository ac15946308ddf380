// What attend() asks of the views it is given; shared by the files that check its arguments.
#pragma once

#include <headwise/tensor.h>

#include "core/check.h"
#include "core/check_memory.h"

namespace headwise {

template <class Data>
void check_rank(const BasicView<Data>& view, int rank, const char* name, const char* axes) {
    check(!view.empty(), "attend: ", name, " is missing; it must be ", axes);
    check(view.rank == rank, "attend: ", name, " is ", view, " but must have the ", rank, " axes ", axes);
    check_memory(view, "attend", name);
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

// Rows [.., .., .., width] that are written by several tasks.
template <class Data>
void check_distinct_rows(const BasicView<Data>& view, const char* where, const char* name) {
    for (int axis = 0; axis < 3; ++axis) {
        check(view.count() == 0 || view.size(axis) <= 1 || view.stride(axis) != 0, where, ": ", name, " is ", view,
              "; a stride of 0 would write several rows to one place");
    }
}

}  // namespace headwise
