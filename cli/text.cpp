#include "cli/text.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

namespace headwise::cli {

std::string format(const char* pattern, ...) {
    std::va_list first, second;
    va_start(first, pattern);
    va_copy(second, first);
    const int length = std::vsnprintf(nullptr, 0, pattern, first);
    va_end(first);
    std::string text(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
    std::vsnprintf(text.data(), text.size() + 1, pattern, second);
    va_end(second);
    return text;
}

std::string list_text(std::span<const std::int64_t> values) {
    std::string text = "[";
    for (const std::int64_t value : values) {
        if (text.size() > 1) text += ", ";
        text += std::to_string(value);
    }
    return text + "]";
}

std::string numbers_text(std::span<const double> values) {
    std::string text = "[";
    for (const double value : values) text += format("%8.4f", value);
    return text + "]";
}

std::string bytes_text(std::int64_t bytes) {
    constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
    double amount = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (amount >= 1024 && unit + 1 < kUnits.size()) amount /= 1024, ++unit;
    if (unit == 0) return join(bytes, " B");
    return format(amount < 100 ? "%.3g %s" : "%.0f %s", amount, kUnits[unit]);
}

std::string pad(std::string_view text, std::size_t width) {
    std::string padded(text);
    if (padded.size() < width) padded.append(width - padded.size(), ' ');
    return padded;
}

std::string pad_left(std::string_view text, std::size_t width) {
    return text.size() < width ? std::string(width - text.size(), ' ').append(text) : std::string(text);
}

std::vector<std::int64_t> sizes_of(const ConstTensorView& view) {
    return {view.sizes.begin(), view.sizes.begin() + std::max(view.rank, 0)};
}

std::vector<std::int64_t> strides_of(const ConstTensorView& view) {
    return {view.strides.begin(), view.strides.begin() + std::max(view.rank, 0)};
}

std::string shape_text(const ConstTensorView& view) {
    return std::string(name_of(view.dtype)) + " " + list_text(sizes_of(view));
}

Json shape_json(const ConstTensorView& view) {
    return Json::object({{"dtype", name_of(view.dtype)}, {"shape", Json::array(sizes_of(view))}});
}

std::string wrap(std::string_view text, std::size_t width, std::size_t indent) {
    std::string wrapped;
    std::size_t column = indent;
    while (!text.empty()) {
        const std::size_t end = text.find(' ');
        const std::string_view word = text.substr(0, end);
        if (column + word.size() > width && column > indent) {
            wrapped.back() = '\n';
            wrapped.append(indent, ' ');
            column = indent;
        }
        wrapped.append(word).push_back(' ');
        column += word.size() + 1;
        text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
    if (!wrapped.empty()) wrapped.pop_back();
    return wrapped;
}

}  // namespace headwise::cli
