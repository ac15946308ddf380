// Choosing the kernel table: the best ISA of this CPU, or the one that is forced.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/kernel_table.h"

namespace headwise {

// The table in force (see active_isa() in <headwise/cpu.h>). Throws Error invalid_argument.
const KernelTable& kernels();

// Every table of this build, best first, and those that this machine can run: tests loop over the latter.
std::vector<const KernelTable*> built_tables();
std::vector<const KernelTable*> usable_tables();

// Adds a table that the library itself does not hold (portable16 in tests); set_isa() then accepts its name.
void add_table(const KernelTable& table);

}  // namespace headwise
