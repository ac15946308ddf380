// SHA-256 (FIPS 180-4), to tell whether a vector file is the one that its manifest speaks of.
#pragma once

#include <string>
#include <string_view>

namespace headwise::conformance {

std::string sha256(std::string_view bytes);  // 64 lower-case hex digits

}  // namespace headwise::conformance
