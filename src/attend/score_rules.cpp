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
    if (!slopes_.empty()) {
        sum += load_f64(slopes_.data, slopes_.dtype, h * slopes_.stride(0)) * static_cast<double>(distance);
    }
    if (!table_.empty()) {
        const std::int64_t column = column_of(distance, first_distance_, table_.size(1));
        sum += load_f64(table_.data, table_.dtype, h * table_.stride(0) + column * table_.stride(1));
    }
    return sum;
}

void ScoreRules::add_position_bias(std::int64_t h, std::int64_t distance, int count, float* to) const noexcept {
    constexpr std::int64_t kNear = 1 << 30;  // distances that a conversion from i32 rounds once
    if (!slopes_.empty()) {
        const float slope = static_cast<const float*>(slopes_.data)[h * slopes_.stride(0)];
        if (distance > -kNear && distance < kNear) {
            const auto from = static_cast<std::int32_t>(distance);
            for (int n = 0; n < count; ++n) to[n] += slope * static_cast<float>(from + n);
        } else {
            const auto from = static_cast<double>(distance);  // where it is rounded, so is the sum
            for (int n = 0; n < count; ++n) to[n] += slope * static_cast<float>(from + n);
        }
    }
    if (table_.empty()) return;
    const auto* const row = static_cast<const float*>(table_.data) + h * table_.stride(0);
    for (int n = 0; n < count; ++n) {
        // Near the end of 64 bits the last distances are as good as the first.
        std::int64_t at = 0;
        if (__builtin_add_overflow(distance, std::int64_t{n}, &at)) at = distance;
        to[n] += row[column_of(at, first_distance_, table_.size(1)) * table_.stride(1)];
    }
}

void ScoreRules::load_gate(const KernelTable& kernels, const Visibility::Row& row, std::int64_t Dv,
                           float* to) const noexcept {
    if (gate_.rank == 3) {
        std::fill_n(to, Dv, static_cast<float>(gate(row, 0)));
    } else {
        const auto size = static_cast<std::int64_t>(size_of(gate_.dtype));
        kernels.rows.widen(to, static_cast<const std::byte*>(gate_.data) + gate_index(row) * size,
                           storage_of(gate_.dtype), Dv);
    }
}

}  // namespace headwise
