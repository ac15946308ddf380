#include "attend/score_rules.h"

#include <algorithm>

#include "kernels/storage_of.h"

namespace headwise {
namespace {

// Column of the table for this distance; columns beyond its ends are those at the ends.
std::int64_t column_of(std::int64_t distance, std::int64_t first, std::int64_t columns) noexcept {
    std::int64_t column = 0;
    if (__builtin_sub_overflow(distance, first, &column)) return distance < 0 ? 0 : columns - 1;
    return std::clamp<std::int64_t>(column, 0, columns - 1);
}

}  // namespace

double ScoreRules::position_bias(std::int64_t h, std::int64_t distance) const noexcept {
    double sum = 0;
    if (!in_.alibi_slopes.empty()) {
        sum += load_f64(in_.alibi_slopes.data, in_.alibi_slopes.dtype, h * in_.alibi_slopes.stride(0)) *
               static_cast<double>(distance);
    }
    if (!in_.distance_bias.table.empty()) {
        const std::int64_t column = column_of(distance, in_.distance_bias.first, in_.distance_bias.table.size(1));
        sum += load_f64(in_.distance_bias.table.data, in_.distance_bias.table.dtype,
                        h * in_.distance_bias.table.stride(0) + column * in_.distance_bias.table.stride(1));
    }
    return sum;
}

void ScoreRules::add_position_bias(std::int64_t h, std::int64_t distance, int count, float* to) const noexcept {
    constexpr std::int64_t kNear = 1 << 30;  // distances that a conversion from i32 rounds once
    if (!in_.alibi_slopes.empty()) {
        const float slope = static_cast<const float*>(in_.alibi_slopes.data)[h * in_.alibi_slopes.stride(0)];
        if (distance > -kNear && distance < kNear) {
            const auto from = static_cast<std::int32_t>(distance);
            for (int n = 0; n < count; ++n) to[n] += slope * static_cast<float>(from + n);
        } else {
            const auto from = static_cast<double>(distance);  // where it is rounded, so is the sum
            for (int n = 0; n < count; ++n) to[n] += slope * static_cast<float>(from + n);
        }
    }
    if (in_.distance_bias.table.empty()) return;
    const auto* const row =
        static_cast<const float*>(in_.distance_bias.table.data) + h * in_.distance_bias.table.stride(0);
    for (int n = 0; n < count; ++n) {
        // Near the end of 64 bits the last distances are as good as the first.
        std::int64_t at = 0;
        if (__builtin_add_overflow(distance, std::int64_t{n}, &at)) at = distance;
        to[n] += row[column_of(at, in_.distance_bias.first, in_.distance_bias.table.size(1)) *
                     in_.distance_bias.table.stride(1)];
    }
}

void ScoreRules::load_gate(const KernelTable& kernels, const Visibility::Row& row, std::int64_t Dv,
                           float* to) const noexcept {
    if (in_.gate.rank == 3) {
        std::fill_n(to, Dv, static_cast<float>(gate(row, 0)));
    } else {
        const auto size = static_cast<std::int64_t>(size_of(in_.gate.dtype));
        kernels.rows.widen(to, static_cast<const std::byte*>(in_.gate.data) + gate_index(row) * size,
                           storage_of(in_.gate.dtype), Dv);
    }
}

}  // namespace headwise
