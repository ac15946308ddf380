// Philox4x32-10, a random number generator that is a function of a counter: any weight's draw is known by its indices
// alone, whatever was drawn before (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#pragma once

#include <cstdint>

namespace headwise {

struct PhiloxWords {
    std::uint32_t word[4];
};

constexpr PhiloxWords philox(PhiloxWords counter, std::uint64_t key) noexcept {
    auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
    std::uint32_t a = counter.word[0], b = counter.word[1], c = counter.word[2], d = counter.word[3];
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t first = std::uint64_t{0xd2511f53} * a, second = std::uint64_t{0xcd9e8d57} * c;
        a = static_cast<std::uint32_t>(second >> 32) ^ b ^ low;
        b = static_cast<std::uint32_t>(second);
        c = static_cast<std::uint32_t>(first >> 32) ^ d ^ high;
        d = static_cast<std::uint32_t>(first);
        low += 0x9e3779b9u, high += 0xbb67ae85u;
    }
    return {{a, b, c, d}};
}

}  // namespace headwise
