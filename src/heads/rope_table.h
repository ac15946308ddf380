// Cosines and sines by position, shared by all layers of a process that turn by the same angles.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include <headwise/heads.h>

namespace headwise {

// cos(position * f_i), then sin(position * f_i), for i < half, times the multiplier.
void fill_angles(const double* frequencies, std::int64_t half, double multiplier, std::int64_t position,
                 float* to) noexcept;

// Pages of positions are made when they are first asked for and never change, so readers take no lock.
class RopeTable {
public:
    // The table of the process for these numbers: the only things that angles depend on. Tables that nobody holds are
    // forgotten.
    static std::shared_ptr<const RopeTable> shared(const RopeFrequencies& numbers);

    explicit RopeTable(const RopeFrequencies& numbers);
    ~RopeTable();
    RopeTable(const RopeTable&) = delete;
    RopeTable& operator=(const RopeTable&) = delete;

    std::int64_t half() const noexcept { return static_cast<std::int64_t>(numbers_.frequencies.size()); }

    // cos[0..half), then sin[0..half), of one position; null beyond the pages, where fill() computes the same numbers.
    // Throws Error out_of_memory when a new page does not fit.
    const float* find(std::int64_t position) const;
    void fill(std::int64_t position, float* to) const noexcept;

private:
    static constexpr std::int64_t kPageRows = 64;
    static constexpr std::int64_t kPages =
        2048;  // 131072 positions, 64 MiB at a width of 128 if all are asked for

    const float* page(std::size_t index) const;

    RopeFrequencies numbers_;
    mutable std::array<std::atomic<float*>, kPages> pages_{};
};

}  // namespace headwise
