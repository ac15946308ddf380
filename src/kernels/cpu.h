// What this CPU and its operating system can run. Twin files: cpu_x86.cpp, cpu_other.cpp.
#pragma once

#include <string>
#include <string_view>

namespace headwise {

// The features that the kernels of `isa` need and that are not there, as "avx512f avx512bw"; empty: it runs here.
std::string missing_features(std::string_view isa);

}  // namespace headwise
