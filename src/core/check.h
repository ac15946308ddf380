// Building the text of an Error: where, what arrived, what was expected, what to do.
#pragma once

#include <sstream>
#include <string>

#include <headwise/error.h>
#include <headwise/tensor.h>

namespace headwise {

// One part of a message. Views and dtypes are described only here, so a check that holds costs no string.
template <class Part>
void append(std::ostream& stream, const Part& part) {
    if constexpr (requires { part.describe(); }) {
        stream << part.describe();
    } else if constexpr (std::is_same_v<Part, DType>) {
        stream << name_of(part);
    } else {
        stream << part;
    }
}

// Joins any parts into one sentence.
template <class... Parts>
std::string text(const Parts&... parts) {
    std::ostringstream stream;
    (append(stream, parts), ...);
    return stream.str();
}

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(ErrorCode code, const Parts&... parts) {
    throw Error(code, text(parts...));
}

// The caller's mistake unless `ok`. Pass views themselves, not view.describe(): the arguments are always evaluated.
template <class... Parts>
void check(bool ok, const Parts&... parts) {
    if (!ok) fail(ErrorCode::invalid_argument, parts...);
}

}  // namespace headwise
