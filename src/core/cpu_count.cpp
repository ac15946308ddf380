#include "core/cpu_count.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace headwise {
namespace {

// The quota of one directory in CPUs: version 2 "max 100000" or "150000 100000" in one file, version 1 two files.
std::optional<double> quota_of(const std::string& directory) {
    double quota = 0;
    double period = 0;
    std::ifstream both(directory + "/cpu.max");
    if (!(both >> quota >> period)) {
        std::ifstream first(directory + "/cpu.cfs_quota_us");
        std::ifstream second(directory + "/cpu.cfs_period_us");
        if (!(first >> quota) || !(second >> period)) return std::nullopt;
    }
    if (!(quota > 0) || !(period > 0)) return std::nullopt;  // version 1 says -1 for no limit
    return quota / period;
}

bool has_item(const std::string& list, const std::string& item) {
    std::istringstream items(list);
    for (std::string next; std::getline(items, next, ',');) {
        if (next == item) return true;
    }
    return false;
}

// Where this process stands in the hierarchy of version 2 (`cpu` false) or in that of version 1 that holds `cpu`.
// Lines are "0::/path" and "4:cpu,cpuacct:/path".
std::string group_path(const std::string& root, bool cpu) {
    std::ifstream file(root + "/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (cpu ? has_item(controllers, "cpu") : controllers.empty()) return line.substr(second + 1);
    }
    return "";
}

// The smallest quota from `mount` + `path` up to `mount`.
std::optional<double> smallest_quota(const std::string& mount, std::string path) {
    std::optional<double> smallest;
    for (;;) {
        while (path.ends_with('/')) path.pop_back();
        if (const auto quota = quota_of(mount + path)) smallest = std::min(smallest.value_or(*quota), *quota);
        if (path.empty()) return smallest;
        path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
}

int count_affinity() {
    for (std::size_t cpus = 1024; cpus <= 1024 * 1024; cpus *= 2) {
        std::vector<cpu_set_t> set(cpus / (8 * sizeof(cpu_set_t)));
        const std::size_t bytes = set.size() * sizeof(cpu_set_t);
        if (sched_getaffinity(0, bytes, set.data()) == 0) return CPU_COUNT_S(bytes, set.data());
    }  // EINVAL: the kernel's mask is wider
    return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

std::atomic<int> counted{0};  // 0: not yet

}  // namespace

int cgroup_cpus(const std::string& root) {
    std::optional<double> smallest;
    std::ifstream mounts(root + "/proc/self/mountinfo");
    for (std::string line; std::getline(mounts, line);) {
        // "id parent device root-within mount-point options [tags] - type source super-options"
        std::istringstream fields(line);
        std::string skip, inner, mount, type, super;
        fields >> skip >> skip >> skip >> inner >> mount;
        while (fields >> skip && skip != "-") {
        }
        fields >> type >> skip >> super;
        const bool version1 = type == "cgroup" && has_item(super, "cpu");
        if (!version1 && type != "cgroup2") continue;
        // A container may mount only its own group: then `inner` is a prefix of the path, which starts below it.
        std::string path = group_path(root, version1);
        if (inner != "/") path = path.starts_with(inner) ? path.substr(inner.size()) : "";
        if (const auto quota = smallest_quota(root + mount, path)) {
            smallest = std::min(smallest.value_or(*quota), *quota);
        }
    }
    if (!smallest) return 0;
    return static_cast<int>(std::clamp(std::floor(*smallest), 1.0, 1e6));
}

int available_cpus() noexcept {
    int cpus = counted.load(std::memory_order_relaxed);
    if (cpus > 0) return cpus;
    try {
        cpus = std::max(1, count_affinity());
        if (const int quota = cgroup_cpus(); quota > 0) cpus = std::min(cpus, quota);
    } catch (...) {
        cpus = std::max(cpus, 1);  // no memory to read a file: a guess is better than a failure
    }
    counted.store(cpus, std::memory_order_relaxed);
    return cpus;
}

void recount_cpus() noexcept { counted.store(0, std::memory_order_relaxed); }

}  // namespace headwise
