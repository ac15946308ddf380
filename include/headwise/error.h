// The one exception type of headwise, and what its codes mean to a caller.
#pragma once

#include <stdexcept>
#include <string>

#include <headwise/export.h>

namespace headwise {

// Who has to act. The command line maps the codes to exit codes 2, 3 and 4 (docs/errors.md).
enum class ErrorCode {
    invalid_argument,  // the caller passed something that cannot be computed (shape, flag, ISA name)
    bad_data,          // a file's content is malformed or contradicts itself
    io,                // a file is missing or cannot be read or written
    unsupported,       // well-formed, but a feature that headwise does not have; the message names it
    out_of_memory,     // the allocation hook returned null
    cache_full,        // a key/value cache has no room for the tokens; nothing was changed
    internal,          // a defect of headwise itself
};

// The code in words: "invalid argument", "bad data", ...
HEADWISE_API const char* describe(ErrorCode code) noexcept;

// Message = where, what arrived, what was expected, what to do.
class HEADWISE_API Error : public std::runtime_error {
public:
    Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
    ErrorCode code() const noexcept { return code_; }

private:
    ErrorCode code_;
};

}  // namespace headwise
