// Building the text of an Error: where, what arrived, what was expected, what to do.
#pragma once

#include <sstream>
#include <string>

#include <headwise/error.h>

namespace headwise {

// Joins any streamable parts into one sentence.
template <class... Parts>
std::string text(const Parts&... parts) {
    std::ostringstream stream;
    (stream << ... << parts);
    return stream.str();
}

template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
    throw Error(code, text(parts...));
}

// The caller's mistake unless `ok`.
template <class... Parts>
void check(bool ok, const Parts&... parts) {
    if (!ok) fail(ErrorCode::invalid_argument, parts...);
}

}  // namespace headwise
