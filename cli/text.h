// Words and numbers as the commands print them.
#pragma once

#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <headwise/tensor.h>

#include "cli/json.h"

namespace headwise::cli {

// Any printable parts, one after the other.
template <class... Parts>
std::string join(const Parts&... parts) {
    std::ostringstream stream;
    (stream << ... << parts);
    return stream.str();
}

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

std::string list_text(std::span<const std::int64_t> values);     // "[1, 16, 384]"
std::string numbers_text(std::span<const double> values);        // "[ 0.6378  0.3622]", four digits
std::string bytes_text(std::int64_t bytes);                      // "1.50 MiB"
std::string pad(std::string_view text, std::size_t width);       // spaces on the right
std::string pad_left(std::string_view text, std::size_t width);  // spaces on the left

std::vector<std::int64_t> sizes_of(const ConstTensorView& view);
std::vector<std::int64_t> strides_of(const ConstTensorView& view);
std::string shape_text(const ConstTensorView& view);  // "f32 [1, 16, 384]"
Json shape_json(const ConstTensorView& view);         // {"dtype": "f32", "shape": [1, 16, 384]}

// Text cut into lines of at most `width` characters, each after the first led by `indent` spaces.
std::string wrap(std::string_view text, std::size_t width, std::size_t indent);

}  // namespace headwise::cli
