// What one call does to the scores, weights and outputs of its rows besides scale, mask and softmax. All of it is known
// by the indices of a row and a key, so every path does the same.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <headwise/attend.h>

#include "attend/mask.h"
#include "attend/philox.h"
#include "core/dtype.h"
#include "kernels/kernel_table.h"

namespace headwise {

// The arguments must have passed check_attend().
class ScoreRules {
public:
    // `in` must outlive this object.
    explicit ScoreRules(const AttendInputs& in) noexcept
        : softcap(in.softcap),
          in_(in),
          threshold_(static_cast<std::uint64_t>(std::ceil(in.dropout.probability * 0x1p32))) {}

    const double softcap;  // 0: none

    double tau(std::int64_t b, std::int64_t i) const noexcept {
        if (in_.tau.empty()) return 1;
        return load_f64(in_.tau.data, in_.tau.dtype, b * in_.tau.stride(0) + i * in_.tau.stride(1));
    }

    bool has_position_bias() const noexcept {
        return !in_.alibi_slopes.empty() || !in_.distance_bias.table.empty();
    }
    // What head h adds to the score of a key at t - p = distance.
    double position_bias(std::int64_t h, std::int64_t distance) const noexcept;
    // The same for keys at distance, distance + 1, ...: to[n] += it.
    void add_position_bias(std::int64_t h, std::int64_t distance, int count, float* to) const noexcept;

    // The logit of head h that has no value; -inf: none.
    double sink(std::int64_t h) const noexcept {
        if (in_.sinks.empty()) return -std::numeric_limits<double>::infinity();
        return load_f64(in_.sinks.data, in_.sinks.dtype, h * in_.sinks.stride(0));
    }

    bool has_gate() const noexcept { return !in_.gate.empty(); }
    double gate(const Visibility::Row& row, std::int64_t c) const noexcept {
        return load_f64(in_.gate.data, in_.gate.dtype, gate_index(row) + (in_.gate.rank == 4 ? c : 0));
    }
    // The gates of a row's Dv columns.
    void load_gate(const KernelTable& kernels, const Visibility::Row& row, std::int64_t Dv,
                   float* to) const noexcept;

    // Is the weight of this key kept? Weights that are kept grow by 1 / keep_share().
    bool has_dropout() const noexcept { return in_.dropout.probability > 0; }
    double keep_share() const noexcept { return 1 - in_.dropout.probability; }
    bool keeps(const Visibility::Row& row, std::int64_t key) const noexcept {
        const auto word = [](std::int64_t n) { return static_cast<std::uint32_t>(n); };
        const PhiloxWords draw = philox({{word(row.b), word(row.h), word(row.i), word(key)}}, in_.dropout.seed);
        return draw.word[0] >= threshold_;
    }

private:
    std::int64_t gate_index(const Visibility::Row& row) const noexcept {
        return row.b * in_.gate.stride(0) + row.i * in_.gate.stride(1) + row.h * in_.gate.stride(2);
    }

    const AttendInputs& in_;
    std::uint64_t threshold_;  // draws below it drop the weight
};

}  // namespace headwise
