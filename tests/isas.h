// The kernel tables that tests loop over.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/cpu.h>

#include "kernels/dispatch.h"

namespace headwise {

namespace portable16 {
extern const KernelTable kTable;
}

// The ISAs that are compiled but cannot run on this machine, as "avx512_bf16, avx512".
inline std::string isas_not_run() {
    std::string names;
    for (const IsaInfo& isa : isas()) {
        if (!isa.usable) names += (names.empty() ? "" : ", ") + isa.name;
    }
    return names;
}

// Every table that this machine can run, and portable16: the templates of the 16-lane ISAs on plain C++. The first call
// says what is left unproven.
inline const std::vector<const KernelTable*>& test_tables() {
    static const std::vector<const KernelTable*> tables = [] {
        add_table(portable16::kTable);
        std::vector<const KernelTable*> all = usable_tables();
        all.push_back(&portable16::kTable);
        if (const std::string names = isas_not_run(); !names.empty()) {
            std::fprintf(stderr, "[ISA] compiled, NOT run here: %s; their 16-lane templates run as portable16\n",
                         names.c_str());
        }
        return all;
    }();
    return tables;
}

// class NameTest : public IsaTest {};  TEST_P(NameTest, DoesThis) { ... table() ... }
// INSTANTIATE_TEST_SUITE_P(EveryIsa, NameTest, every_isa(), isa_name);
class IsaTest : public testing::TestWithParam<const KernelTable*> {
protected:
    static const KernelTable& table() { return *GetParam(); }
};
inline auto every_isa() { return testing::ValuesIn(test_tables()); }
inline std::string isa_name(const testing::TestParamInfo<const KernelTable*>& info) { return info.param->isa; }

}  // namespace headwise
