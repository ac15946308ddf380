#include "weights/gguf_cursor.h"

#include <algorithm>
#include <cstring>

#include "weights/quote.h"

namespace headwise {
namespace {

constexpr std::int64_t kLengthBytes = 8;  // of the field in front of a string

// Bytes of the character that begins at text[i], or 0 if it is not UTF-8.
std::size_t utf8_length(std::string_view text, std::size_t i) noexcept {
    const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
    const unsigned first = byte(i);
    if (first < 0x80) return 1;
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || i + length > text.size()) return 0;
    const unsigned second = byte(i + 1);
    const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;     // no longer than needed
    const unsigned greatest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;  // no surrogates, <= U+10FFFF
    if (second < least || second > greatest) return 0;
    for (std::size_t k = i + 2; k < i + length; ++k) {
        if ((byte(k) & 0xc0) != 0x80) return 0;
    }
    return length;
}

bool is_utf8(std::string_view text) noexcept {
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = utf8_length(text, i);
        if (length == 0) return false;
        i += length;
    }
    return true;
}

}  // namespace

GgufCursor::GgufCursor(const InputFile& file, const FileLimits& limits)
    : file_(file), end_(std::min(file.size(), std::max<std::int64_t>(limits.gguf_header_bytes, 0))) {
    limited_ = end_ < file.size();
}

void GgufCursor::need(std::int64_t bytes) const {
    if (bytes <= left()) return;
    if (limited_) {
        bad("the header is longer than the limit of ", end_, " bytes (FileLimits::gguf_header_bytes)");
    }
    bad("needs ", bytes, " bytes, but the file ends after ", left(), "; it was cut short or its header lies");
}

void GgufCursor::take(void* to, std::int64_t bytes) {
    need(bytes);
    auto* out = static_cast<std::uint8_t*>(to);
    while (bytes > 0) {
        if (at_ < buffer_begin_ || at_ >= buffer_end_) {
            buffer_begin_ = buffer_end_ = at_;
            const auto fill = std::min(left(), static_cast<std::int64_t>(buffer_.size()));
            file_.read(at_, buffer_.data(), fill);
            buffer_end_ = at_ + fill;
        }
        const std::int64_t step = std::min(bytes, buffer_end_ - at_);
        std::memcpy(out, &buffer_[static_cast<std::size_t>(at_ - buffer_begin_)], static_cast<std::size_t>(step));
        out += step;
        at_ += step;
        bytes -= step;
    }
}

std::uint64_t GgufCursor::unsigned_number(int bytes) {
    std::array<std::uint8_t, 8> field{};
    take(field.data(), bytes);
    std::uint64_t value = 0;
    for (std::size_t i = field.size(); i-- > 0;) value = value << 8 | field[i];
    return value;
}

std::int64_t GgufCursor::count(std::int64_t bytes_each, const char* what) {
    const std::uint64_t value = unsigned_number(8);
    if (value > static_cast<std::uint64_t>(left() / bytes_each)) {
        if (limited_ && value <= static_cast<std::uint64_t>((file_.size() - at_) / bytes_each)) need(left() + 1);
        bad(value, " ", what, ", but the ", left(), " bytes that follow cannot hold so many");
    }
    return static_cast<std::int64_t>(value);
}

std::string GgufCursor::string(std::int64_t limit, const char* limit_name) {
    const std::int64_t length = count(1, "bytes of text");
    if (limit >= 0 && length > limit) {
        bad("a name of ", length, " bytes is over the limit of ", limit, " (FileLimits::", limit_name, ")");
    }
    std::string result(static_cast<std::size_t>(length), '\0');
    take(result.data(), length);
    if (!is_utf8(result)) bad("the text ", quote(result), " is not UTF-8");
    return result;
}

void GgufCursor::skip_string() {
    need(kLengthBytes);
    skip(count(1, "bytes of text"));
}

void GgufCursor::skip(std::int64_t bytes) {
    need(bytes);
    at_ += bytes;
}

}  // namespace headwise
