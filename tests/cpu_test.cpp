// What headwise says about the machine, and the quota that a container sets.
#include <headwise/cpu.h>

#include <gtest/gtest.h>

#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "core/cpu_count.h"

namespace headwise {
namespace {

// A made-up file system for cgroup_cpus().
class Tree {
public:
    Tree() {
        std::string pattern = (std::filesystem::temp_directory_path() / "headwise_cpu_XXXXXX").string();
        root_ = mkdtemp(pattern.data());
    }
    ~Tree() { std::filesystem::remove_all(root_); }
    Tree& file(const std::string& path, const std::string& content) {
        std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
        std::ofstream(root_ + path) << content << "\n";
        return *this;
    }
    int cpus() const { return cgroup_cpus(root_); }

private:
    std::string root_;
};

const char* const kMount2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

TEST(Cgroup, NoFilesMeanNoQuota) {
    EXPECT_EQ(Tree().cpus(), 0);
    EXPECT_EQ(Tree().file("/proc/self/mountinfo", kMount2).file("/proc/self/cgroup", "0::/").cpus(), 0);
    EXPECT_EQ(Tree().file("/proc/self/mountinfo", "nonsense").file("/proc/self/cgroup", "also").cpus(), 0);
}

TEST(Cgroup, Version2TakesTheSmallestQuotaOnTheWayUp) {
    Tree tree;
    tree.file("/proc/self/mountinfo", kMount2).file("/proc/self/cgroup", "0::/slice/job");
    tree.file("/sys/fs/cgroup/slice/job/cpu.max", "max 100000");
    EXPECT_EQ(tree.cpus(), 0);
    tree.file("/sys/fs/cgroup/slice/cpu.max", "400000 100000");
    EXPECT_EQ(tree.cpus(), 4);
    tree.file("/sys/fs/cgroup/slice/job/cpu.max", "250000 100000");
    EXPECT_EQ(tree.cpus(), 2) << "2.5, rounded down";
    tree.file("/sys/fs/cgroup/slice/job/cpu.max", "20000 100000");
    EXPECT_EQ(tree.cpus(), 1) << "never below 1";
    tree.file("/sys/fs/cgroup/slice/job/cpu.max", "garbage");
    EXPECT_EQ(tree.cpus(), 4);
}

TEST(Cgroup, Version1) {
    Tree tree;
    tree.file("/proc/self/mountinfo",
              "40 30 0:35 / /sys/fs/cgroup/cpuset rw shared:10 - cgroup cgroup rw,cpuset\n"
              "41 30 0:36 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct");
    tree.file("/proc/self/cgroup", "7:cpuset:/other\n4:cpu,cpuacct:/job\n0::/");
    tree.file("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1");
    tree.file("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000");
    EXPECT_EQ(tree.cpus(), 0);
    tree.file("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "350000");
    EXPECT_EQ(tree.cpus(), 3);
}

// A container may see only its own group, mounted at the top, while its path is the one outside.
TEST(Cgroup, MountOfTheOwnGroup) {
    Tree tree;
    tree.file("/proc/self/mountinfo", "41 30 0:36 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu");
    tree.file("/proc/self/cgroup", "4:cpu:/docker/abc");
    tree.file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "600000");
    tree.file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    EXPECT_EQ(tree.cpus(), 6);
}

TEST(Cpus, AffinityMaskIsObeyed) {
    const int all = available_cpus();
    ASSERT_GE(all, 1);
    EXPECT_LE(all, static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)));
    std::thread([] {  // the mask belongs to this thread alone
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        set_threads(0);
        EXPECT_EQ(available_cpus(), 1);
        EXPECT_EQ(threads(), 1);
    })
        .join();
    EXPECT_EQ(available_cpus(), 1) << "read once";
    set_threads(0);
    EXPECT_EQ(available_cpus(), all);
}

TEST(CpuInfo, IsComplete) {
    const CpuInfo info = cpu_info();
    EXPECT_FALSE(info.model.empty());
    EXPECT_GE(info.logical_cpus, 1);
    for (const std::int64_t bytes : {info.l1_data_bytes, info.l2_bytes, info.l3_bytes}) {
        EXPECT_TRUE(bytes == 0 || (bytes >= 4096 && bytes < (std::int64_t{1} << 34))) << bytes;
    }
    const std::set<std::string> unique(info.features.begin(), info.features.end());
    EXPECT_EQ(unique.size(), info.features.size());
#if defined(__x86_64__) && defined(__linux__)
    EXPECT_EQ(unique.contains("avx2"), static_cast<bool>(__builtin_cpu_supports("avx2")));
    EXPECT_EQ(unique.contains("avx512f"), static_cast<bool>(__builtin_cpu_supports("avx512f")));
#endif
}

TEST(BuildInfo, IsOneLineWithTheVersion) {
    EXPECT_STRNE(version(), "");
    const std::string info = build_info();
    EXPECT_NE(info.find(version()), std::string::npos);
    EXPECT_NE(info.find("flags"), std::string::npos);
    EXPECT_EQ(info.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace headwise
