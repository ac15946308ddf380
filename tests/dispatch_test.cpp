// Which kernel table a call gets: the best one, HEADWISE_ISA, set_isa, and what is said when a name cannot be had.
#include "kernels/dispatch.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/cpu.h>
#include <headwise/error.h>

#include "isas.h"

namespace headwise {
namespace {

// The environment variable and the choice as they were, whatever a test does to them.
class Dispatch : public testing::Test {
protected:
    Dispatch() {
        if (const char* value = std::getenv("HEADWISE_ISA")) before_ = value;
        environment(nullptr);
    }
    ~Dispatch() override { environment(before_ ? before_->c_str() : nullptr); }

    // Sets the variable (null: removes it) and lets the next call choose again.
    static void environment(const char* value) {
        if (value != nullptr) {
            setenv("HEADWISE_ISA", value, 1);
        } else {
            unsetenv("HEADWISE_ISA");
        }
        set_isa("");
    }

private:
    std::optional<std::string> before_;
};

template <class Call>
std::string message_of(Call call) {
    try {
        call();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        return error.what();
    }
    return "no error";
}

TEST_F(Dispatch, BestUsableIsaByDefault) {
    EXPECT_EQ(&kernels(), usable_tables().front());
    EXPECT_EQ(active_isa(), usable_tables().front()->isa);
    EXPECT_EQ(active_isa_reason(), "best of this CPU");
}

TEST_F(Dispatch, EveryIsaIsListedWithItsReason) {
    const std::vector<IsaInfo> all = isas();
    ASSERT_EQ(all.size(), built_tables().size());
    EXPECT_EQ(all.back().name, "scalar");
    EXPECT_TRUE(all.back().usable);
    for (const IsaInfo& isa : all) EXPECT_EQ(isa.usable, isa.reason.empty()) << isa.name;
}

TEST_F(Dispatch, TablesDescribeTheirIsa) {
    for (const KernelTable* table : built_tables()) {
        EXPECT_EQ(table->panel, 2 * table->lanes) << table->isa;
        EXPECT_GE(table->lanes, 4) << table->isa;
        EXPECT_GE(table->tile_rows, 4) << table->isa;
    }
}

TEST_F(Dispatch, SetIsaForcesEveryUsableTable) {
    for (const KernelTable* table : usable_tables()) {
        set_isa(table->isa);
        EXPECT_EQ(&kernels(), table);
        EXPECT_EQ(active_isa(), table->isa);
        EXPECT_EQ(active_isa_reason(), "set_isa");
    }
    set_isa("");
    EXPECT_EQ(&kernels(), usable_tables().front());
}

TEST_F(Dispatch, EnvironmentForcesEveryUsableTable) {
    for (const KernelTable* table : usable_tables()) {
        environment(table->isa);
        EXPECT_EQ(&kernels(), table);
        EXPECT_EQ(active_isa_reason(), "HEADWISE_ISA");
    }
    environment("");  // as good as not there
    EXPECT_EQ(active_isa_reason(), "best of this CPU");
}

TEST_F(Dispatch, SetIsaGoesBeforeTheEnvironment) {
    environment("avx9");
    set_isa("scalar");
    EXPECT_EQ(active_isa(), "scalar");
    EXPECT_EQ(active_isa_reason(), "set_isa");
}

TEST_F(Dispatch, UnknownNameListsWhatIsThere) {
    const std::string message = message_of([] { set_isa("avx9"); });
    EXPECT_EQ(message.find("set_isa: no instruction set \"avx9\""), 0u) << message;
    for (const IsaInfo& isa : isas()) EXPECT_NE(message.find(isa.name), std::string::npos) << message;
    EXPECT_EQ(&kernels(), usable_tables().front());  // nothing has changed
}

TEST_F(Dispatch, UnknownNameInTheEnvironmentFailsEveryCall) {
    environment("AVX2");
    for (int call = 0; call < 2; ++call) {
        const std::string message = message_of([] { kernels(); });
        EXPECT_EQ(message.find("environment variable HEADWISE_ISA: no instruction set \"AVX2\""), 0u) << message;
    }
    EXPECT_NE(message_of([] { active_isa(); }), "no error");
    EXPECT_NE(message_of([] { active_isa_reason(); }), "no error");
    environment(nullptr);
    EXPECT_EQ(&kernels(), usable_tables().front());
}

TEST_F(Dispatch, UnusableNameSaysWhatIsMissing) {
    for (const IsaInfo& isa : isas()) {
        if (isa.usable) continue;
        const std::string message = message_of([&] { set_isa(isa.name); });
        const std::string missing = isa.reason.substr(isa.reason.find("have ") + 5);
        EXPECT_NE(message.find("\"" + isa.name + "\" needs " + missing), std::string::npos) << message;
        EXPECT_NE(message.find("usable here: "), std::string::npos) << message;
    }
}

TEST_F(Dispatch, AddedTableCanBeForced) {
    add_table(portable16::kTable);
    add_table(portable16::kTable);
    set_isa("portable16");
    EXPECT_EQ(&kernels(), &portable16::kTable);
    environment("portable16");
    EXPECT_EQ(&kernels(), &portable16::kTable);
}

TEST_F(Dispatch, ManyThreadsChooseTheSameTable) {
    for (int round = 0; round < 20; ++round) {
        set_isa("");
        std::vector<const KernelTable*> seen(4);
        std::vector<std::thread> threads;
        for (const KernelTable*& table : seen) threads.emplace_back([&table] { table = &kernels(); });
        for (std::thread& thread : threads) thread.join();
        for (const KernelTable* table : seen) EXPECT_EQ(table, usable_tables().front());
    }
}

// Linux lists what the CPU has and the system supports: a second opinion.
TEST_F(Dispatch, AgreesWithTheOperatingSystem) {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line) && line.rfind("flags", 0) != 0) {
    }
    std::istringstream words(line);
    const std::set<std::string> flags(std::istream_iterator<std::string>(words), {});
    if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags here";
    const std::vector<std::string> avx2 = {"avx2", "fma", "f16c"};
    std::vector<std::string> avx512 = avx2, avx512_bf16;
    for (const char* flag : {"avx512f", "avx512bw", "avx512dq", "avx512vl"}) avx512.emplace_back(flag);
    avx512_bf16 = avx512;
    for (const char* flag : {"avx512_bf16", "avx512_vnni"}) avx512_bf16.emplace_back(flag);
    for (const IsaInfo& isa : isas()) {
        const std::vector<std::string> needed = isa.name == "avx2"          ? avx2
                                                : isa.name == "avx512"      ? avx512
                                                : isa.name == "avx512_bf16" ? avx512_bf16
                                                                            : std::vector<std::string>();
        bool there = true;
        for (const std::string& flag : needed) there = there && flags.contains(flag);
        EXPECT_EQ(isa.usable, there) << isa.name << ": " << isa.reason;
    }
}

// A kernel that an ISA does not have would be missing in its row.
TEST_F(Dispatch, EveryIsaHasEveryKernel) {
    std::string all;
    for (const KernelTable* table : built_tables()) all += (all.empty() ? "" : " ") + std::string(table->isa);
    std::set<std::string> names;
    for (const KernelInfo& kernel : kernel_table()) {
        EXPECT_EQ(kernel.isas, all) << kernel.name;
        EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name << " is listed twice";
    }
    EXPECT_TRUE(names.contains("rotate_half"));
}

}  // namespace
}  // namespace headwise
