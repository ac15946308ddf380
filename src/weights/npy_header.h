// The header of a .npy file: a Python dictionary literal with the keys descr, fortran_order and shape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headwise {

struct NpyHeader {
    std::string descr;
    bool fortran_order = false;
    std::vector<std::int64_t> shape;
};

// Throws Error bad_data, beginning with `where`; unsupported for structured element types.
NpyHeader parse_npy_header(std::string_view text, const std::string& where);

}  // namespace headwise
