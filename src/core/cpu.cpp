#include <headwise/cpu.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <sstream>

#include "core/check.h"

namespace headwise {
namespace {

// What /proc/cpuinfo says about the first CPU; its flags are those that the kernel lets programs use.
std::map<std::string, std::string> first_cpu() {
    std::map<std::string, std::string> fields;
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(':');
        if (colon == std::string::npos) {
            if (!fields.empty()) break;
            continue;
        }
        const std::size_t end = line.find_last_not_of(" \t", colon == 0 ? 0 : colon - 1);
        const std::size_t value = line.find_first_not_of(" \t", colon + 1);
        fields[line.substr(0, end == std::string::npos ? 0 : end + 1)] =
            value == std::string::npos ? "" : line.substr(value);
    }
    return fields;
}

// Arm cores carry numbers instead of a name.
std::string model_of(const std::map<std::string, std::string>& fields) {
    struct Core {
        std::string_view implementer, part, name;
    };
    static constexpr std::array<Core, 9> kCores = {{{"0x41", "0xd03", "Arm Cortex-A53"},
                                                    {"0x41", "0xd08", "Arm Cortex-A72"},
                                                    {"0x41", "0xd0b", "Arm Cortex-A76"},
                                                    {"0x41", "0xd0c", "Arm Neoverse N1"},
                                                    {"0x41", "0xd40", "Arm Neoverse V1"},
                                                    {"0x41", "0xd49", "Arm Neoverse N2"},
                                                    {"0x41", "0xd4f", "Arm Neoverse V2"},
                                                    {"0x41", "0xd8e", "Arm Neoverse N3"},
                                                    {"0xc0", "0xac3", "Ampere-1"}}};
    const auto field = [&fields](const char* name) {
        const auto found = fields.find(name);
        return found == fields.end() ? std::string() : found->second;
    };
    if (const std::string name = field("model name"); !name.empty()) return name;
    const std::string implementer = field("CPU implementer");
    const std::string part = field("CPU part");
    for (const Core& core : kCores) {
        if (implementer == core.implementer && part == core.part) return std::string(core.name);
    }
    return implementer.empty() ? "unknown" : text("implementer ", implementer, ", part ", part);
}

std::vector<std::string> features_of(const std::map<std::string, std::string>& fields) {
    static constexpr std::array<std::string_view, 16> kOfInterest = {
        "avx2",        "fma",         "f16c",     "avx512f",  "avx512bw", "avx512dq", "avx512vl", "avx512_vnni",
        "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile", "asimd",    "asimdhp",  "asimddp",  "bf16"};
    std::vector<std::string> features;
    for (const char* name : {"flags", "Features"}) {
        const auto found = fields.find(name);
        if (found == fields.end()) continue;
        std::istringstream words(found->second);
        for (std::string word; words >> word;) {
            if (std::find(kOfInterest.begin(), kOfInterest.end(), word) != kOfInterest.end()) {
                features.push_back(word);
            }
        }
    }
    return features;
}

// "512K", "32M"
std::int64_t parse_size(const std::string& size) {
    std::istringstream stream(size);
    std::int64_t value = 0;
    char unit = ' ';
    if (!(stream >> value) || value < 0 || value > (std::int64_t{1} << 40)) return 0;
    stream >> unit;
    return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : unit == 'G' ? value << 30 : value;
}

void add_caches(CpuInfo& info) {
    for (int i = 0; i < 8; ++i) {
        const std::string directory = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i);
        int level = 0;
        std::string type, size;
        std::ifstream level_file(directory + "/level"), type_file(directory + "/type"),
            size_file(directory + "/size");
        if (!(level_file >> level) || !(type_file >> type) || !(size_file >> size)) break;
        if (type == "Instruction") continue;
        if (level == 1) info.l1_data_bytes = parse_size(size);
        if (level == 2) info.l2_bytes = parse_size(size);
        if (level == 3) info.l3_bytes = parse_size(size);
    }
#if defined(_SC_LEVEL1_DCACHE_SIZE)  // glibc: from cpuid, where /sys is hidden
    const auto fill = [](std::int64_t& bytes, int name) {
        if (bytes == 0) bytes = std::max(0L, sysconf(name));
    };
    fill(info.l1_data_bytes, _SC_LEVEL1_DCACHE_SIZE);
    fill(info.l2_bytes, _SC_LEVEL2_CACHE_SIZE);
    fill(info.l3_bytes, _SC_LEVEL3_CACHE_SIZE);
#endif
}

}  // namespace

CpuInfo cpu_info() {
    const auto fields = first_cpu();
    CpuInfo info;
    info.model = model_of(fields);
    info.features = features_of(fields);
    info.logical_cpus = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    add_caches(info);
    return info;
}

std::string build_info() {
    constexpr std::string_view kBuild =
#include "build_info.inc"
        ;
    return text("headwise ", version(), ", ", kBuild);
}

const char* version() noexcept { return HEADWISE_VERSION; }

}  // namespace headwise
