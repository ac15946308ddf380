// What vec_test.cpp and vec_memory_test.cpp share: the VecOps of every table that runs here.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "isas.h"
#include "vec_ops.h"

namespace headwise {

#define HEADWISE_ISA_ENTRY(name) \
    namespace name {             \
    extern const VecOps kVecOps; \
    }
#include "isa_list.inc"
HEADWISE_ISA_ENTRY(portable16)
#undef HEADWISE_ISA_ENTRY

inline const VecOps& ops_of(const KernelTable& table) {
    const VecOps* const all[] = {
        &portable16::kVecOps,
#define HEADWISE_ISA_ENTRY(name) &name::kVecOps,
#include "isa_list.inc"
#undef HEADWISE_ISA_ENTRY
    };
    for (const VecOps* ops : all) {
        if (ops->isa == std::string(table.isa)) return *ops;
    }
    throw std::logic_error(table.isa);
}

class VecTest : public IsaTest {
protected:
    const VecOps& ops = ops_of(table());
    const int lanes = ops.lanes;

    std::vector<float> lanes_of(float x = 0) const {
        return std::vector<float>(static_cast<std::size_t>(lanes), x);
    }
    // Portable code has no fused multiply-add; every other ISA has.
    bool fuses() const { return std::string(ops.isa) != "scalar" && std::string(ops.isa) != "portable16"; }
};

inline const float kSignalling = std::bit_cast<float>(0x7f812345u);

inline std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
inline bool same_number(float a, float b) { return bits(a) == bits(b) || (std::isnan(a) && std::isnan(b)); }

}  // namespace headwise
