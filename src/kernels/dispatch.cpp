#include "kernels/dispatch.h"

#include <cstdlib>
#include <mutex>

#include <headwise/cpu.h>

#include "core/check.h"

namespace headwise {

#define HEADWISE_ISA_ENTRY(name)       \
    namespace name {                   \
    const KernelTable& kernel_table(); \
    }
#include "isa_list.inc"
#undef HEADWISE_ISA_ENTRY

namespace {

bool cpu_has(std::string_view isa) {
    if (isa == "avx2") {
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    }
    return isa == "scalar";
}

}  // namespace

std::vector<const KernelTable*> usable_tables() {
    std::vector<const KernelTable*> tables;
#define HEADWISE_ISA_ENTRY(name) \
    if (cpu_has(#name)) tables.push_back(&name::kernel_table());
#include "isa_list.inc"
#undef HEADWISE_ISA_ENTRY
    return tables;
}

const KernelTable& kernels() { return *usable_tables().front(); }

}  // namespace headwise
