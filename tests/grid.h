// How many cases a numeric test runs. The release build takes the full grid; sanitizers and emulators set
// HEADWISE_TEST_GRID=thin (see CMakePresets.json) and get every kind of case, but fewer of each.
#pragma once

#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace headwise {

inline bool full_grid() {
    const char* grid = std::getenv("HEADWISE_TEST_GRID");
    return grid == nullptr || std::string_view(grid) != "thin";
}

// `full` on the full grid, `thin` on the thin one.
template <class T>
std::vector<T> grid(std::vector<T> full, std::vector<T> thin) {
    return full_grid() ? std::move(full) : std::move(thin);
}

}  // namespace headwise
