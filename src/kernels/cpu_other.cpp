// CPUs other than x86-64: every ISA in their list is the baseline of its architecture.
#include "kernels/cpu.h"

namespace headwise {

std::string missing_features(std::string_view) { return {}; }

}  // namespace headwise
