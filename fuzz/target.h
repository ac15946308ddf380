// What all fuzz targets share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <headwise/error.h>

#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace headwise::fuzz {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

// A broken promise: stops the program, which both libFuzzer and the replay report.
inline void require(bool holds) {
    if (!holds) std::abort();
}

// Runs `body`. It may refuse the file with an Error that blames the file; any other exception ends the program.
template <class Body>
bool accepts(Body body) {
    try {
        body();
        return true;
    } catch (const Error& error) {
        require(error.code() == ErrorCode::bad_data || error.code() == ErrorCode::unsupported);
        require(!std::string_view(error.what()).empty());
        return false;
    }
}

}  // namespace headwise::fuzz
