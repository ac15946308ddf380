#include <cpuid.h>

#include <cstdint>

#include "kernels/cpu.h"

namespace headwise {
namespace {

// Where cpuid tells of a feature.
struct Feature {
    const char* name;
    unsigned leaf, subleaf;
    enum { eax, ebx, ecx, edx } word;
    int bit;
    int level;  // 2: avx2 needs it, 3: avx512 too, 4: avx512_bf16 too
};
constexpr Feature kFeatures[] = {
    {"avx", 1, 0, Feature::ecx, 28, 2},         {"fma", 1, 0, Feature::ecx, 12, 2},
    {"f16c", 1, 0, Feature::ecx, 29, 2},        {"avx2", 7, 0, Feature::ebx, 5, 2},
    {"avx512f", 7, 0, Feature::ebx, 16, 3},     {"avx512dq", 7, 0, Feature::ebx, 17, 3},
    {"avx512bw", 7, 0, Feature::ebx, 30, 3},    {"avx512vl", 7, 0, Feature::ebx, 31, 3},
    {"avx512_vnni", 7, 0, Feature::ecx, 11, 4}, {"avx512_bf16", 7, 1, Feature::eax, 5, 4},
};

bool cpu_has(const Feature& feature) {
    unsigned words[4] = {};
    if (__get_cpuid_count(feature.leaf, feature.subleaf, &words[0], &words[1], &words[2], &words[3]) == 0)
        return false;
    return (words[feature.word] >> feature.bit & 1u) != 0;
}

// The register state that the operating system saves at a task switch (XCR0); 0 where it does not say.
std::uint64_t saved_state() {
    constexpr Feature kXgetbvAllowed = {"osxsave", 1, 0, Feature::ecx, 27, 0};
    if (!cpu_has(kXgetbvAllowed)) return 0;
    std::uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return static_cast<std::uint64_t>(high) << 32 | low;
}

int level_of(std::string_view isa) {
    if (isa == "avx2") return 2;
    if (isa == "avx512") return 3;
    return isa == "avx512_bf16" ? 4 : 0;
}

}  // namespace

std::string missing_features(std::string_view isa) {
    const int level = level_of(isa);
    std::string missing;
    const auto add = [&](const char* name) {
        if (!missing.empty()) missing += ' ';
        missing += name;
    };
    for (const Feature& feature : kFeatures) {
        if (feature.level <= level && !cpu_has(feature)) add(feature.name);
    }
    constexpr std::uint64_t kYmm = 0x6;   // SSE and AVX halves of ymm
    constexpr std::uint64_t kZmm = 0xe6;  // and mask registers, upper halves, zmm16 to zmm31
    const std::uint64_t needed = level >= 3 ? kZmm : level >= 2 ? kYmm : 0;
    if ((saved_state() & needed) != needed) add("operating-system-support");
    return missing;
}

}  // namespace headwise
