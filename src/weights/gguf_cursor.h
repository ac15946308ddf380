// Walking through the header of a GGUF file without holding it in memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <headwise/weights.h>

#include "core/check.h"
#include "weights/file.h"

namespace headwise {

// Reads forward. Nothing is allocated before the file is known to hold the bytes for it.
class GgufCursor {
public:
    GgufCursor(const InputFile& file, const FileLimits& limits);

    std::int64_t at() const noexcept { return at_; }
    std::int64_t left() const noexcept { return end_ - at_; }

    // What the bytes that follow belong to, for messages: "metadata key 'x'".
    void enter(std::string what) { what_ = std::move(what); }

    std::uint64_t unsigned_number(int bytes);  // 1, 2, 4 or 8
    std::int64_t count(std::int64_t bytes_each,
                       const char* what);  // a u64 of things that take at least so many bytes
    std::string string(std::int64_t limit,
                       const char* limit_name);  // limit < 0: as long as the file allows; UTF-8
    void skip_string();
    void skip(std::int64_t bytes);

    // Throws Error bad_data that names the file, the byte and what is being read.
    template <class... Parts>
    [[noreturn]] void bad(const Parts&... parts) const {
        fail(ErrorCode::bad_data, file_.path(), ": ", what_, " at byte ", at_, ": ", parts...);
    }

private:
    void take(void* to, std::int64_t bytes);
    void need(std::int64_t bytes) const;

    const InputFile& file_;
    std::int64_t at_ = 0, end_ = 0;
    bool limited_ = false;  // by FileLimits, not by the file
    std::string what_ = "the header";
    std::int64_t buffer_begin_ = 0, buffer_end_ = 0;
    std::array<std::uint8_t, 1 << 14> buffer_;
};

}  // namespace headwise
